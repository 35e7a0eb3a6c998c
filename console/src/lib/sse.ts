export interface ServerEvent {
  event: string;
  data: string;
  id?: string;
}

/** Cuts a stream of text into server-sent events. A comment, which keeps the connection alive, is none. */
export class EventReader {
  #rest = "";

  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const found = parse(block);
      if (found) events.push(found);
    }
    return events;
  }
}

function parse(block: string): ServerEvent | undefined {
  let event = "message";
  let id: string | undefined;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    const name = line.slice(0, colon);
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "id") id = value;
  }
  if (data.length === 0) return undefined;
  return id === undefined ? { event, data: data.join("\n") } : { event, data: data.join("\n"), id };
}
