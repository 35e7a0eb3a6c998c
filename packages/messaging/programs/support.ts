import { type AgenticClient, connect, type IncomingEvent } from "@natstack/agentic-messaging";

/** What the programs are told by whoever starts them. */
export function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`set ${name}`);
  return value;
}

export const serverUrl = setting("SERVER_URL");
export const channel = setting("CHANNEL");

type Options = Parameters<typeof connect>[0];

/** Joins by the token that is set for this name. */
export function join(name: string, options: Partial<Options> = {}): Promise<AgenticClient> {
  const token = setting(`TOKEN_${name.toUpperCase()}`);
  const about = { handle: name, name, type: "worker", ...options };
  return connect({ serverUrl, token, channel, reconnect: { delayMs: 20, maxDelayMs: 100 }, ...about });
}

/** Reads until an event for which this holds. */
export async function until(
  events: AsyncIterator<IncomingEvent>,
  wanted: (event: IncomingEvent) => boolean,
): Promise<IncomingEvent> {
  for (;;) {
    const { done, value } = await events.next();
    if (done) throw new Error("the events ended");
    if (wanted(value)) return value;
  }
}

/** The same bytes for whoever makes them. */
export function pattern(size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  let state = 1;
  for (let at = 0; at < size; at += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    bytes[at] = state >>> 16;
  }
  return bytes;
}
