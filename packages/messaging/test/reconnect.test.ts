// After a reconnect no message is missing or duplicated, even if the server supports no extensions.
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { connect, type IncomingEvent, type MethodExecutionContext } from "../src/index.js";
import { join, once, serve, take } from "./support.js";

test("what was said while away comes once, and in order", async () => {
  const server = await serve();
  const [ann, bob] = [await join(server, "ann"), await join(server, "bob")];
  const events = bob.events();
  const seen: string[] = [];
  for (let round = 0; round < 5; round += 1) {
    await ann.send(`${round} here`);
    const [disconnected, reconnected] = [once((handler) => bob.onDisconnect(handler)), once((h) => bob.onReconnect(h))];
    server.cut("bob");
    await disconnected;
    expect([bob.connected, bob.reconnecting]).toEqual([false, true]);
    await ann.send(`${round} away`);
    await reconnected;
    expect([bob.connected, bob.reconnecting]).toEqual([true, false]);
    await ann.send(`${round} back`);
  }
  for (const event of await take(events, "message", 15)) {
    expect(event.kind).toBe("persisted");
    seen.push(event.content);
  }
  expect(seen).toEqual([0, 1, 2, 3, 4].flatMap((round) => [`${round} here`, `${round} away`, `${round} back`]));
  expect(bob.roster).toMatchObject({ ann: { id: "ann" }, bob: { id: "bob", metadata: { handle: "bob" } } });
});

test("a message whose answer was lost is stored once", async () => {
  let lose = 0;
  const server = await serve({ loseAnswers: ({ type }) => type === "message" && lose-- > 0 });
  const ann = await join(server, "ann");
  lose = 1;
  const [first, second] = await Promise.all([ann.send("one"), ann.send("two")]);
  expect([first.pubsubId, second.pubsubId].every((id) => typeof id === "number")).toBe(true);
  const stored = server.log.filter(({ type }) => type === "message").map(({ payload }) => payload);
  expect(stored).toMatchObject([
    { id: first.messageId, content: "one" },
    { id: second.messageId, content: "two" },
  ]);
});

test("what is not stored does not go out twice", async () => {
  let lose = false;
  const server = await serve({ loseAnswers: () => lose });
  const ann = await join(server, "ann");
  lose = true;
  await expect(ann.send("passing", { persist: false })).rejects.toMatchObject({ code: "connection-error" });
  lose = false;
  // Messages that are sent while there is no connection have not been transmitted yet.
  await ann.send("waits", { persist: false });
  const sent = server.received.filter(({ type }) => type === "message").map(({ payload }) => payload);
  expect(sent).toMatchObject([{ content: "passing" }, { content: "waits" }]);
});

test("a call outlives a cut on either side", async () => {
  const server = await serve();
  let finish: (value: string) => void = () => {};
  const running = new Promise<void>((started) => {
    void join(server, "worker", {
      methods: {
        work: {
          parameters: z.object({}),
          execute: () =>
            new Promise<string>((resolve) => {
              finish = resolve;
              started();
            }),
        },
      },
    }).then(async () => {
      const ann = await join(server, "ann");
      call = ann.callMethod("worker", "work", {});
      again = once((handler) => ann.onReconnect(handler));
    });
  });
  let call: ReturnType<Awaited<ReturnType<typeof join>>["callMethod"]> | undefined;
  let again: Promise<void> | undefined;
  await running;
  server.cut("ann");
  finish("done");
  await again;
  expect((await call?.result)?.content).toBe("done");
});

test("without reconnecting, a cut is the end", async () => {
  const server = await serve();
  const ann = await join(server, "ann", { reconnect: false });
  const events = ann.events();
  const disconnected = once((handler) => ann.onDisconnect(handler));
  server.cut("ann");
  await disconnected;
  const seen: IncomingEvent[] = [];
  for await (const event of events) seen.push(event);
  expect([ann.connected, ann.reconnecting]).toEqual([false, false]);
  await expect(ann.send("x")).rejects.toMatchObject({ code: "connection-error" });
});

test("after so many attempts it gives up, and says so", async () => {
  const server = await serve();
  const ann = await join(server, "ann", { reconnect: { delayMs: 1, maxAttempts: 2 } });
  const failed = new Promise<Error>((resolve) => {
    ann.onError(resolve);
  });
  const call = ann.send("in vain", { persist: true });
  await call;
  await server.stop();
  const waiting = ann.send("never");
  expect(await failed).toMatchObject({ code: "connection-error" });
  await expect(waiting).rejects.toMatchObject({ code: "connection-error" });
  expect(ann.reconnecting).toBe(false);
});

test("a refusal is final", async () => {
  const server = await serve();
  const options = { serverUrl: server.url, channel: "room", handle: "x", name: "X", type: "test", reconnect: true };
  await expect(connect({ ...options, token: "refused" })).rejects.toMatchObject({
    code: "connection-error",
    message: expect.stringContaining("unauthorized"),
  });
  await expect(connect({ ...options, token: "x", serverUrl: "ws://127.0.0.1:1" })).rejects.toMatchObject({
    code: "connection-error",
  });
  for (const wrong of [{ token: "" }, { serverUrl: "ftp://x" }, { handle: undefined as unknown as string }]) {
    await expect(connect({ ...options, token: "x", ...wrong })).rejects.toMatchObject({ code: "validation-error" });
  }
});

test("a server that answers no introduction is understood", async () => {
  const server = await serve({ answersIntroductions: false });
  const ann = await join(server, "ann");
  expect(ann.clientId).toBe("ann");
});

test("what nobody waits for ends no program", async () => {
  const server = await serve();
  const context: MethodExecutionContext[] = [];
  const worker = await join(server, "worker", {
    methods: { work: { parameters: z.any(), execute: (_, given) => new Promise(() => context.push(given)) } },
  });
  const ann = await join(server, "ann");
  const call = ann.callMethod("worker", "work", {});
  await vi.waitFor(() => expect(context).toHaveLength(1));
  await Promise.all([ann.close(), worker.close()]);
  // Each of these fails; an unhandled rejection would end this run.
  void ann.send("x");
  void ann.update("m", "x");
  void ann.complete("m");
  void ann.error("m", "x");
  void ann.pubsub.publish("custom-type", {});
  void call.cancel();
  void ann.callMethod("worker", "work", {});
  void context[0]?.stream("x");
  void context[0]?.progress(Number.NaN);
  await new Promise((resolve) => setImmediate(resolve));
  await expect(call.result).rejects.toMatchObject({ code: "connection-error" });
});

test("nothing is left of a closed client", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const unanswered = ann.send("the last word");
  await ann.close();
  await ann.close();
  expect((await unanswered).pubsubId).toBeTypeOf("number");
  while (server.connections > 0) await new Promise((resolve) => setImmediate(resolve));
  expect(ann.connected).toBe(false);
});

test("a client that closes is disconnected, once", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const told = vi.fn();
  ann.onDisconnect(told);
  await ann.close();
  await ann.close();
  expect(told).toHaveBeenCalledOnce();
});
