import { afterEach } from "vitest";
import { type AgenticClient, type ConnectOptions, connect, type IncomingEvent } from "../src/index.js";
import type { AnySchema } from "../src/schemas.js";
import { PlainServer, type ServerOptions } from "./server.js";

const toEnd: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
});

/** A server that is closed after the test. */
export async function serve(options?: ServerOptions): Promise<PlainServer> {
  const server = await PlainServer.start(options);
  toEnd.push(() => server.stop());
  return server;
}

/** Joins as this participant; leaves after the test. */
export async function join(
  server: PlainServer,
  id: string,
  options: Partial<ConnectOptions<Record<string, AnySchema>>> = {},
): Promise<AgenticClient> {
  const client = await connect({
    serverUrl: server.url,
    token: id,
    channel: "room",
    handle: id,
    name: id,
    type: "test",
    reconnect: { delayMs: 5 },
    ...options,
  });
  toEnd.push(() => client.close());
  return client;
}

/** Reads until this number of events of this type has arrived. */
export async function take<T extends IncomingEvent["type"]>(
  events: AsyncIterator<IncomingEvent>,
  type: T,
  count = 1,
): Promise<Extract<IncomingEvent, { type: T }>[]> {
  const found: Extract<IncomingEvent, { type: T }>[] = [];
  while (found.length < count) {
    const { done, value } = await events.next();
    if (done) throw new Error(`the events ended after ${found.length} of type ${type}`);
    if (value.type === type) found.push(value as Extract<IncomingEvent, { type: T }>);
  }
  return found;
}

/** Resolves when the client calls its handler. */
export function once(subscribe: (handler: () => void) => () => void): Promise<void> {
  return new Promise((resolve) => {
    const stop = subscribe(() => {
      stop();
      resolve();
    });
  });
}
