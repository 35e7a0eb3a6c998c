// The client uses the extensions that a server announces in `ready`, and accepts its results of calls.
import { expect, test, vi } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { z } from "zod";
import { connect } from "../src/index.js";
import { once } from "./support.js";

/** A server that sends exactly the frames of the test, to one client. */
async function script(
  ready: (query: URLSearchParams, connection: number) => Record<string, unknown>,
  replay: (connection: number) => unknown[] = () => [],
) {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await new Promise((resolve) => server.once("listening", resolve));
  const frames: Record<string, unknown>[] = [];
  const queries: URLSearchParams[] = [];
  let socket: WebSocket | undefined;
  let answer = true;
  const envelope = { kind: "persisted", senderId: "ann", ts: 1, senderMetadata: {} };
  server.on("connection", (connected, request) => {
    socket = connected;
    const query = new URL(request.url ?? "", "ws://x").searchParams;
    queries.push(query);
    for (const frame of replay(queries.length)) connected.send(JSON.stringify(frame));
    connected.send(JSON.stringify({ kind: "ready", ...ready(query, queries.length) }));
    connected.on("message", (data) => {
      const frame = JSON.parse(String(data));
      frames.push(frame);
      if (frame.action === "update-metadata" && (answer || frame.ref === 0)) {
        const payload = { action: "update", metadata: frame.payload };
        connected.send(
          JSON.stringify({ ...envelope, type: "presence", payload, id: 100 * queries.length, ref: frame.ref }),
        );
      } else if (answer && frame.action === "publish") {
        connected.send(
          JSON.stringify({
            ...envelope,
            type: frame.type,
            payload: frame.payload,
            id: 50,
            ref: frame.ref,
            duplicate: true,
          }),
        );
      }
    });
  });
  const { port } = server.address() as { port: number };
  return {
    url: `ws://127.0.0.1:${port}`,
    frames,
    queries,
    send: (frame: unknown) => socket?.send(JSON.stringify(frame)),
    cut: () => socket?.terminate(),
    setAnswers: (on: boolean) => {
      answer = on;
    },
    async [Symbol.asyncDispose]() {
      for (const client of server.clients) client.terminate();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const extensions = ["client-message-id", "epoch", "get-messages-before", "roster-snapshot"];
const about = { token: "t", channel: "room", handle: "ann", name: "Ann", type: "test", reconnect: { delayMs: 1 } };

test("resume goes by id and epoch, and a resent message keeps its id", async () => {
  const server = await script(() => ({
    extensions,
    participantId: "ann",
    epoch: "e1",
    lastId: 7,
    roster: { bob: { metadata: {} } },
  }));
  const ann = await connect({ ...about, serverUrl: server.url });
  expect(Object.keys(ann.roster)).toEqual(["bob", "ann"]);
  expect(Object.fromEntries(server.queries[0] ?? [])).toEqual({
    token: "t",
    channel: "room",
    roster: "snapshot",
    instance: expect.any(String),
    sinceId: "0",
  });
  const events = ann.events();
  server.setAnswers(false);
  const sending = ann.send("once");
  await vi.waitFor(() => expect(server.frames.filter(({ type }) => type === "message")).toHaveLength(1));
  server.setAnswers(true);
  server.cut();
  expect(await sending).toMatchObject({ pubsubId: 50 });
  expect(server.queries[1]?.get("sinceId")).toBe("100");
  expect(server.queries[1]?.get("epoch")).toBe("e1");
  expect(server.queries[1]?.get("instance")).toBe(server.queries[0]?.get("instance"));
  const [first, second] = server.frames.filter(({ type }) => type === "message");
  expect(first?.clientMessageId).toBeTypeOf("string");
  expect(second?.clientMessageId).toBe(first?.clientMessageId);
  // The answer to the second frame is not a message event, because all readers already have the message.
  server.send({
    kind: "persisted",
    type: "message",
    payload: { id: "x", content: "news" },
    senderId: "bob",
    ts: 1,
    id: 300,
  });
  for await (const event of events) {
    if (event.type !== "message") continue;
    expect(event.content).toBe("news");
    break;
  }
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("the notice of a handle conflict does not change the roster", async () => {
  const roster = { bob: { metadata: { handle: "Helper" } } };
  const server = await script(() => ({ extensions, participantId: "ann", epoch: "e1", lastId: 7, roster }));
  const ann = await connect({ ...about, serverUrl: server.url });
  const update = (handle: string) => {
    const payload = { action: "update", metadata: { handle } };
    server.send({ kind: "ephemeral", type: "presence", senderId: "bob", ts: 1, senderMetadata: {}, payload });
  };
  server.setAnswers(false);
  const updating = ann.pubsub.updateMetadata({ handle: "@helper" });
  await vi.waitFor(() => expect(server.frames).toHaveLength(2));
  const changes = vi.fn();
  ann.pubsub.onRoster(({ change }) => changes(change));
  changes.mockClear();
  update("@helper");
  server.send({ kind: "error", error: "the handle is taken", code: "handle-conflict", ref: server.frames[1]?.ref });
  await expect(updating).rejects.toMatchObject({ code: "handle-conflict" });
  expect(ann.roster.bob?.metadata.handle).toBe("Helper");
  // The same update without a pending conflict is a change.
  update("@helper");
  await vi.waitFor(() => expect(ann.roster.bob?.metadata.handle).toBe("@helper"));
  expect(changes).toHaveBeenCalledOnce();
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("a channel has a context and a configuration", async () => {
  const told = { contextId: "ctx-1", channelConfig: { title: "A" } };
  const server = await script(() => ({ extensions, participantId: "ann", epoch: "e1", lastId: 7, ...told }));
  const ann = await connect({ ...about, serverUrl: server.url, contextId: "ctx-1", channelConfig: { title: "B" } });
  expect(server.queries[0]?.get("contextId")).toBe("ctx-1");
  expect(server.queries[0]?.get("channelConfig")).toBe('{"title":"B"}');
  expect([ann.pubsub.contextId, ann.pubsub.channelConfig]).toEqual(["ctx-1", { title: "A" }]);
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("a conflict is one, also with a participant that says the same of itself", async () => {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await new Promise((resolve) => server.once("listening", resolve));
  server.on("connection", (socket) => {
    socket.send(JSON.stringify({ kind: "ready", extensions, participantId: "ann", epoch: "e1", lastId: 7 }));
    socket.on("message", (data) => {
      const { action, payload, ref } = JSON.parse(String(data));
      if (action !== "update-metadata") return;
      const presence = { kind: "ephemeral", type: "presence", senderId: "bob", ts: 1, senderMetadata: {} };
      socket.send(JSON.stringify({ ...presence, payload: { action: "update", metadata: payload } }));
      socket.send(JSON.stringify({ kind: "error", error: "taken", code: "handle-conflict", ref }));
    });
  });
  const { port } = server.address() as { port: number };
  const connecting = connect({ ...about, serverUrl: `ws://127.0.0.1:${port}` });
  await expect(connecting).rejects.toMatchObject({ code: "handle-conflict" });
  await new Promise((resolve) => server.close(resolve));
});

test("a gap that could not be closed is told", async () => {
  const server = await script((_, connection) => ({
    extensions,
    participantId: "ann",
    epoch: "e1",
    lastId: 7,
    recovered: connection === 1,
  }));
  const ann = await connect({ ...about, serverUrl: server.url });
  const told = new Promise<Error>((resolve) => ann.onError(resolve));
  server.cut();
  expect(await told).toMatchObject({ code: "connection-error", message: expect.stringContaining("deleted") });
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("a call that was missed is run once, if somebody still waits for it", async () => {
  const missed = { kind: "replay", type: "method-call", senderId: "bob", ts: 1, senderMetadata: {} };
  const payload = (callId: string) => ({ callId, methodName: "run", providerId: "ann", args: { callId } });
  const server = await script(
    () => ({ extensions, participantId: "ann", epoch: "e1", lastId: 7 }),
    (connection) =>
      connection === 1
        ? [{ ...missed, id: 1, payload: payload("long ago") }]
        : [
            { ...missed, id: 109, payload: payload("before") },
            { ...missed, id: 110, payload: payload("waited for") },
            { ...missed, id: 111, payload: payload("answered") },
            { ...missed, id: 112, payload: payload("cancelled") },
            { ...missed, id: 113, payload: payload("from outside"), senderMetadata: { type: "gateway" } },
            {
              ...{ ...missed, id: 114, type: "method-result", senderId: "ann" },
              payload: { callId: "answered", content: { error: "gone" }, complete: true, isError: true },
            },
            { ...missed, id: 115, type: "method-cancel", payload: { callId: "cancelled" } },
          ],
  );
  const execute = vi.fn(async ({ callId }: { callId: string }) => callId);
  const run = { parameters: z.object({ callId: z.string() }), execute };
  const ann = await connect({ ...about, serverUrl: server.url, methods: { run } });
  server.send({ ...missed, kind: "persisted", id: 101, payload: payload("before") });
  await vi.waitFor(() => expect(execute).toHaveBeenCalledTimes(1));
  const again = once((handler) => ann.onReconnect(handler));
  server.cut();
  await again;
  server.send({ ...missed, kind: "persisted", id: 301, payload: payload("after") });
  await vi.waitFor(() => expect(execute.mock.calls.some(([{ callId }]) => callId === "after")).toBe(true));
  expect(execute.mock.calls.map(([{ callId }]) => callId)).toEqual(["before", "waited for", "after"]);
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("a call of a method that nobody has declared is answered", async () => {
  const server = await script(() => ({ extensions, participantId: "ann", epoch: "e1", lastId: 7 }));
  const ann = await connect({ ...about, serverUrl: server.url });
  const base = { kind: "persisted", ts: 1, senderMetadata: {} };
  const presence = { action: "update", metadata: { methods: [{ name: "theirs" }] } };
  server.send({ ...base, type: "presence", senderId: "ann", id: 101, payload: presence });
  // Another connection answers the first call, and no other connection answers the second.
  for (const [id, methodName] of [
    [102, "theirs"],
    [103, "nobodys"],
  ] as const) {
    const payload = { callId: methodName, methodName, providerId: "ann" };
    server.send({ ...base, type: "method-call", senderId: "bob", id, payload });
  }
  const results = () => server.frames.filter(({ type }) => type === "method-result");
  await vi.waitFor(() => expect(results()).toHaveLength(1));
  expect(results()[0]?.payload).toMatchObject({ callId: "nobodys", content: { code: "method-not-found" } });
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("a method stops when the server has answered in its place", async () => {
  const server = await script(() => ({ extensions, participantId: "ann", epoch: "e1", lastId: 7 }));
  const [begun, aborted] = [vi.fn(), vi.fn()];
  const execute = (_: unknown, { signal }: { signal: AbortSignal }) =>
    new Promise((resolve) => {
      begun();
      signal.addEventListener("abort", () => {
        aborted();
        resolve("late");
      });
    });
  const ann = await connect({ ...about, serverUrl: server.url, methods: { run: { parameters: z.any(), execute } } });
  const base = { kind: "persisted", ts: 1, senderMetadata: {} };
  const call = { callId: "c1", methodName: "run", providerId: "ann" };
  server.send({ ...base, type: "method-call", senderId: "bob", id: 101, payload: call });
  await vi.waitFor(() => expect(begun).toHaveBeenCalledOnce());
  const result = { callId: "c1", content: { error: "left", code: "provider-offline" }, complete: true, isError: true };
  server.send({ ...base, type: "method-result", senderId: "ann", id: 102, payload: result });
  await vi.waitFor(() => expect(aborted).toHaveBeenCalledOnce());
  // A call that was answered before it started does not start.
  server.send({ ...base, type: "method-call", senderId: "bob", id: 103, payload: { ...call, callId: "c2" } });
  server.send({ ...base, type: "method-result", senderId: "ann", id: 104, payload: { ...result, callId: "c2" } });
  await ann.send("anything");
  expect(begun).toHaveBeenCalledOnce();
  await ann.close();
  expect(server.frames.filter(({ type }) => type === "method-result")).toEqual([]);
  await server[Symbol.asyncDispose]();
});

test("a session of a channel that was made anew begins anew", async () => {
  const server = await script((query) => ({
    ...{ extensions, participantId: "ann", epoch: "e2", lastId: 7 },
    ...(query.get("epoch") === "e1" ? { recovered: false } : {}),
  }));
  const kept = JSON.stringify({ position: 90, epoch: "e1" });
  const sessionStore = { getItem: () => kept, setItem: vi.fn() };
  const ann = await connect({ ...about, serverUrl: server.url, workspaceId: "w", sessionStore });
  expect(server.queries.map((query) => [query.get("sinceId"), query.get("epoch")])).toEqual([
    ["90", "e1"],
    ["0", null],
  ]);
  expect(sessionStore.setItem).toHaveBeenLastCalledWith(
    expect.any(String),
    JSON.stringify({ position: 200, epoch: "e2" }),
  );
  await ann.close();
  await server[Symbol.asyncDispose]();
});

test("a server that is gone without a word is noticed", async () => {
  const server = await script(() => ({ extensions, participantId: "ann", epoch: "e1", lastId: 7 }));
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const ann = await connect({ ...about, serverUrl: server.url, reconnect: false });
    const lost = once((handler) => ann.onDisconnect(handler));
    const probes = () => server.frames.filter(({ action }) => action === "get-messages-before");
    // The client received frames in the first interval, and none in the second.
    vi.advanceTimersByTime(25_000);
    vi.advanceTimersByTime(25_000);
    while (probes().length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(ann.connected).toBe(true);
    vi.advanceTimersByTime(15_000);
    await lost;
    expect(probes()).toMatchObject([{ before: 1, limit: 1 }]);
    expect(ann.connected).toBe(false);
  } finally {
    vi.useRealTimers();
  }
  await server[Symbol.asyncDispose]();
});

test("a server that never becomes ready is given up", async () => {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await new Promise((resolve) => server.once("listening", resolve));
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const connected = new Promise((resolve) => server.once("connection", resolve));
    const connecting = connect({
      ...about,
      serverUrl: `ws://127.0.0.1:${(server.address() as { port: number }).port}`,
    });
    connecting.catch(() => {});
    await connected;
    // The client's socket opens some turns later, and then its timer starts.
    for (let turn = 0; turn < 200; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    const message = expect.stringContaining("does not answer");
    const failed = expect(connecting).rejects.toMatchObject({ code: "connection-error", message });
    for (let waited = 0; waited < 10; waited += 1) {
      vi.advanceTimersByTime(10_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await failed;
  } finally {
    vi.useRealTimers();
  }
  for (const socket of server.clients) socket.terminate();
  await new Promise((resolve) => server.close(resolve));
});
