import { type AgenticClient, connect, type IncomingEvent } from "@natstack/agentic-messaging";

/** Returns a setting from the environment. */
export function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`set ${name}`);
  return value;
}

export const serverUrl = setting("SERVER_URL");
export const channel = setting("CHANNEL");

type Options = Parameters<typeof connect>[0];

/** Joins with the token that is set for this name. */
export function join(name: string, options: Partial<Options> = {}): Promise<AgenticClient> {
  const token = setting(`TOKEN_${name.toUpperCase()}`);
  const about = { handle: name, name, type: "worker", ...options };
  return connect({ serverUrl, token, channel, reconnect: { delayMs: 20, maxDelayMs: 100 }, ...about });
}

/** Reads until an event that satisfies the predicate. */
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

/** Returns the same bytes for every caller. */
export function pattern(size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  let state = 1;
  for (let at = 0; at < size; at += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    bytes[at] = state >>> 16;
  }
  return bytes;
}
