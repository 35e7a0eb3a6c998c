// Earlier messages are collected, streamed or skipped.
import { expect, test } from "vitest";
import { type ConnectOptions, connect, type IncomingEvent } from "../src/index.js";
import type { PlainServer } from "./server.js";
import { join, serve, take } from "./support.js";

async function withHistory(): Promise<{ server: PlainServer; messageId: string }> {
  const server = await serve();
  const ann = await join(server, "ann");
  const { messageId } = await ann.send("Hello", {
    attachments: [{ id: "a", data: new Uint8Array([1]), mimeType: "a/b" }],
  });
  await ann.update(messageId, ", ");
  await ann.update(messageId, "world", { attachments: [{ id: "b", data: new Uint8Array([2]), mimeType: "a/b" }] });
  await ann.complete(messageId);
  const failed = await ann.send("Half");
  await ann.error(failed.messageId, "no more", "internal-error");
  const passing = await ann.send("never stored", { persist: false });
  await ann.update(passing.messageId, "only this is");
  await ann.close();
  return { server, messageId };
}

async function replayed(server: PlainServer, options: Partial<ConnectOptions>): Promise<IncomingEvent[]> {
  const bob = await join(server, "bob", options);
  const events = bob.events({ includeReplay: true });
  await bob.send("now");
  const seen: IncomingEvent[] = [];
  for await (const event of events) {
    if (event.type === "message" && event.content === "now") break;
    if (event.type !== "presence") seen.push(event);
  }
  return seen;
}

test("collected: a message with its updates is one", async () => {
  const { server, messageId } = await withHistory();
  const events = await replayed(server, {});
  expect(events).toMatchObject([
    { type: "message", kind: "replay", id: messageId, content: "Hello, world", complete: true },
    { type: "message", content: "Half", complete: false, error: "no more", code: "internal-error" },
    { type: "message", content: "only this is", complete: false },
  ]);
  expect(events[0]?.attachments?.map(({ id }) => id)).toEqual(["a", "b"]);
});

test("streamed: one by one, as it was", async () => {
  const { server } = await withHistory();
  const events = await replayed(server, { replayMode: "stream" });
  expect(events.map(({ type }) => type)).toEqual([
    ...["message", "update-message", "update-message", "update-message", "message", "error", "update-message"],
  ]);
  expect(events.every(({ kind }) => kind === "replay")).toBe(true);
});

test("skipped: nothing", async () => {
  const { server } = await withHistory();
  expect(await replayed(server, { replayMode: "skip" })).toEqual([]);
});

test("from a message on", async () => {
  const { server } = await withHistory();
  const half = server.log.find(({ payload }) => (payload as { content?: string }).content === "Half");
  const events = await replayed(server, { replaySinceId: (half?.id ?? 0) - 1 });
  expect(events).toHaveLength(2);
});

test("without being asked for, it is not in the events", async () => {
  const { server } = await withHistory();
  const bob = await join(server, "bob");
  const events = bob.events();
  await bob.send("now");
  expect((await take(events, "message"))[0]?.content).toBe("now");
});

test("a session goes on where the last one ended", async () => {
  const { server } = await withHistory();
  const store = new Map<string, string>();
  const sessionStore = {
    getItem: (key: string) => store.get(key) ?? null,
    setItem: (key: string, value: string) => void store.set(key, value),
  };
  const session = { workspaceId: "my-workspace", sessionStore };
  expect(await replayed(server, session)).toHaveLength(3);
  // The first client is still connected and has read everything, including its own message.
  const again = await connect({
    ...{ serverUrl: server.url, token: "bob", channel: "room", handle: "bob", name: "Bob", type: "test" },
    ...session,
  });
  server.say("ann", "message", { id: "new", content: "new" });
  const events = again.events({ includeReplay: true });
  expect((await take(events, "message"))[0]?.content).toBe("new");
  await again.close();
});
