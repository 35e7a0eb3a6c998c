// Parses server-sent events, as specified in https://html.spec.whatwg.org/multipage/server-sent-events.html

/** The maximum length of an event in characters. Most of a large event are the arguments of a tool. */
const MAX_EVENT = 64 * 1024 * 1024;

/** Such a stream cannot be read further: the following text may belong to the event. */
export class EventTooLong extends Error {
  /** @param {number} most */
  constructor(most) {
    super(`an event is longer than ${most} characters`);
    this.name = "EventTooLong";
  }
}

/** Parses events from pieces of text. Reads each character once, and buffers at most one event. */
export class EventReader {
  #most;
  #line = "";
  #event = "";
  /** The event's lines of data, with a line feed after each. */
  #data = "";
  #id;
  /** Whether the last line ended in a carriage return, to which a line feed may still belong. */
  #afterReturn = false;

  constructor(most = MAX_EVENT) {
    this.#most = most;
  }

  /** Returns the events that this text completes. @param {string} text */
  *push(text) {
    let start = this.#afterReturn && text.startsWith("\n") ? 1 : 0;
    if (text !== "") this.#afterReturn = false;
    const ends = /\r\n|\n|\r/g;
    ends.lastIndex = start;
    for (let end = ends.exec(text); end !== null; end = ends.exec(text)) {
      this.#take(text.slice(start, end.index));
      start = ends.lastIndex;
      this.#afterReturn = end[0] === "\r" && start === text.length;
      const event = this.#endLine();
      if (event) yield event;
    }
    this.#take(text.slice(start));
  }

  #take(piece) {
    if (this.#event.length + this.#data.length + this.#line.length + piece.length > this.#most)
      throw new EventTooLong(this.#most);
    this.#line += piece;
  }

  #endLine() {
    const line = this.#line;
    this.#line = "";
    if (line === "") return this.#complete();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data += `${value}\n`;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #complete() {
    const [event, data] = [this.#event || "message", this.#data];
    this.#event = "";
    this.#data = "";
    // An event without a line of data is ignored, even if it has a name.
    if (data === "") return undefined;
    return { event, data: data.slice(0, -1), ...(this.#id === undefined ? {} : { id: this.#id }) };
  }
}

/** Returns the events of a response's body. @param {AsyncIterable<Uint8Array>} body */
export async function* eventsOf(body, most = MAX_EVENT) {
  // It removes the byte order mark at the start of a stream.
  const decoder = new TextDecoder();
  const reader = new EventReader(most);
  for await (const bytes of body) yield* reader.push(decoder.decode(bytes, { stream: true }));
}
