// A slow reader uses a bounded amount of memory, and gets the position to resume from.
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { AgenticError, createInterruptHandler, type IncomingEvent, type MethodExecutionContext } from "../src/index.js";
import { join, once, serve, take } from "./support.js";

/** Returns the values that a reader got until its end, and its error. */
async function rest(events: AsyncIterable<IncomingEvent>): Promise<{ ids: unknown[]; error?: AgenticError }> {
  const ids: unknown[] = [];
  try {
    for await (const event of events) if (event.type === "message") ids.push(event.id);
    return { ids };
  } catch (error) {
    return { ids, error: error as AgenticError };
  }
}

test.each([
  ["events", { events: 10 }, ""],
  ["bytes", { bytes: 10 * 1536 }, "x".repeat(1024)],
])("a reader that stops is told so, with where to go on: bounded in %s", async (_, eventBuffer, filler) => {
  const server = await serve();
  const ann = await join(server, "ann", { eventBuffer });
  const errors: Error[] = [];
  ann.onError((error) => errors.push(error));
  const stopped = ann.events();
  const reading = ann.events();
  // Both have read the presence events of joining.
  await take(stopped, "presence", 2);
  await take(reading, "presence", 2);
  const seen: number[] = [];
  for (let n = 0; n < 100; n += 1) {
    server.say("bob", "message", { id: `${n}`, content: filler });
    const [event] = await take(reading, "message");
    seen.push(event?.pubsubId as number);
  }
  expect(errors).toMatchObject([{ name: "AgenticError", code: "lagged" }]);
  const { ids, error } = await rest(stopped);
  expect(ids, "nothing is left out in between").toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(String));
  expect(error).toMatchObject({ code: "lagged", cause: { replaySinceId: seen[9] } });
  expect(error?.message).toContain(`after pubsubId ${seen[9]}`);
  expect(await stopped.next(), "and then it is over").toEqual({ done: true, value: undefined });

  // `connect` accepts this position.
  const { replaySinceId } = (error as AgenticError).cause as { replaySinceId: number };
  const again = await join(server, "again", { replayMode: "stream", replaySinceId });
  const missed = again.events({ includeReplay: true });
  expect((await take(missed, "message", 90)).map(({ id }) => id)).toEqual(
    Array.from({ length: 90 }, (_, n) => `${n + 10}`),
  );
});

test("a reader that leaves in time is told nothing", async () => {
  const server = await serve();
  const ann = await join(server, "ann", { eventBuffer: { events: 2 } });
  const onError = vi.fn();
  ann.onError(onError);
  const left = ann.events();
  await left.return?.();
  for (let n = 0; n < 10; n += 1) server.say("bob", "message", { id: `${n}`, content: "" });
  await ann.send("last");
  expect(onError).not.toHaveBeenCalled();
  expect(await left.next()).toEqual({ done: true, value: undefined });
});

test("history that there is no room for is cut at its beginning, and that is said", async () => {
  const server = await serve();
  for (let n = 0; n < 100; n += 1) server.say("bob", "message", { id: `${n}`, content: "x".repeat(1000) });
  const ann = await join(server, "ann", { eventBuffer: { bytes: 16_000 } });
  const events = ann.events({ includeReplay: true });
  const [first] = await take(events, "message");
  expect(Number(first?.id)).toBeGreaterThan(80);
  const rest = await take(events, "message", 99 - Number(first?.id));
  expect(rest.at(-1)?.id).toBe("99");
});

test("parts of a call that nobody reads make room for later ones", async () => {
  const server = await serve();
  const count = {
    parameters: z.object({}),
    async execute(_: unknown, context: MethodExecutionContext) {
      for (let n = 0; n < 50; n += 1) await context.stream(n);
      return "done";
    },
  };
  await join(server, "worker", { methods: { count } });
  const ann = await join(server, "ann", { eventBuffer: { events: 10 } });
  const call = ann.callMethod("worker", "count", {});
  expect((await call.result).content).toBe("done");
  const parts: unknown[] = [];
  for await (const { missed, content } of call.stream) parts.push(missed === undefined ? content : { missed });
  expect(parts).toEqual([{ missed: 41 }, 41, 42, 43, 44, 45, 46, 47, 48, 49, "done"]);
});

test("a watch for interrupts outlives a callback that takes too long", async () => {
  const server = await serve();
  const agent = await join(server, "agent", { eventBuffer: { events: 2 } });
  let goOn = () => {};
  const onPause = vi.fn(() => new Promise<void>((resolve) => (goOn = resolve)));
  const handler = createInterruptHandler({ client: agent, messageId: "m1", onPause });
  const monitoring = handler.monitor();
  const lagged = once((handle) => agent.onError((error) => error instanceof AgenticError && handle()));
  server.say("user", "execution-pause", { messageId: "m1", status: "paused" });
  await vi.waitFor(() => expect(onPause).toHaveBeenCalledOnce());
  for (let n = 0; n < 10; n += 1) server.say("bob", "message", { id: `${n}`, content: "" });
  await lagged;
  const reported = once((handle) => agent.onError(handle));
  goOn();
  await reported;
  server.say("user", "execution-pause", { messageId: "m1", status: "resumed" });
  await vi.waitFor(() => expect(handler.isPaused()).toBe(false));
  handler.cleanup();
  await monitoring;
});

test("who asks for the roster is told at once who is here", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const told: string[][] = [];
  const stop = ann.onRoster(({ participants }) => told.push(Object.keys(participants)));
  expect(told).toEqual([["ann"]]);
  stop();
});
