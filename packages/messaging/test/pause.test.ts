// Requests to pause a participant call the callbacks, once for each request.
import { expect, test, vi } from "vitest";
import { createInterruptHandler, createPauseMethodDefinition } from "../src/index.js";
import { join, serve, take } from "./support.js";

test("by a call of its pause method", async () => {
  const server = await serve();
  const called = vi.fn();
  const agent = await join(server, "agent", {
    methods: { pause: createPauseMethodDefinition(async (reason) => called(reason)) },
  });
  const [onPause, user] = [vi.fn(), await join(server, "user")];
  const handler = createInterruptHandler({ client: agent, messageId: "m1", onPause });
  const monitoring = handler.monitor();
  const events = user.events();
  const { content } = await user.callMethod("agent", "pause", { reason: "look at this" }).result;
  expect(content).toEqual({ paused: true, reason: "look at this" });
  const [told] = await take(events, "execution-pause");
  expect(told).toMatchObject({ messageId: "m1", status: "paused", reason: "look at this", senderId: "agent" });
  expect(called.mock.calls).toEqual([["look at this"]]);
  expect(onPause.mock.calls).toEqual([["look at this"]]);
  expect(handler.isPaused()).toBe(true);
  handler.cleanup();
  await monitoring;
});

test("by a message, which may be taken back", async () => {
  const server = await serve();
  const agent = await join(server, "agent");
  const [onPause, onResume, onCancel] = [vi.fn(), vi.fn(), vi.fn()];
  const handler = createInterruptHandler({ client: agent, messageId: "m1", onPause, onResume, onCancel });
  const monitoring = handler.monitor();
  server.say("user", "execution-pause", { messageId: "other", status: "paused" });
  server.say("user", "execution-pause", { messageId: "m1", status: "paused", reason: "wait" }, false);
  server.say("user", "execution-pause", { messageId: "m1", status: "paused", reason: "wait" });
  await vi.waitFor(() => expect(handler.isPaused()).toBe(true));
  server.say("user", "execution-pause", { messageId: "m1", status: "resumed", reason: "go on" });
  server.say("user", "execution-pause", { messageId: "m1", status: "cancelled" });
  await vi.waitFor(() => expect(onCancel).toHaveBeenCalledOnce());
  expect([onPause.mock.calls, onResume.mock.calls]).toEqual([[["wait"]], [["go on"]]]);
  await agent.close();
  await monitoring;
});

test("a callback that fails is reported, and the watch goes on", async () => {
  const server = await serve();
  const agent = await join(server, "agent");
  const errors: Error[] = [];
  agent.onError((error) => errors.push(error));
  const onResume = vi.fn();
  const onPause = () => Promise.reject(new Error("cannot stop"));
  void createInterruptHandler({ client: agent, messageId: "m1", onPause, onResume }).monitor();
  server.say("user", "execution-pause", { messageId: "m1", status: "paused" });
  server.say("user", "execution-pause", { messageId: "m1", status: "resumed" });
  await vi.waitFor(() => expect(onResume).toHaveBeenCalledOnce());
  expect(errors.map(({ message }) => message)).toEqual(["cannot stop"]);
});
