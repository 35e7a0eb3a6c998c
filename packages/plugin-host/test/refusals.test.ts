// Foreign, invalid or excessive messages get no answer.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Hosted } from "./hosted.js";

let hosted: Hosted;

beforeEach(() => {
  hosted = new Hosted({
    settings: { read: () => ({ theme: "dark" }), write: () => undefined },
    limits: {
      messageBurst: 10,
      messagesPerSecond: 1,
      floodAfter: 500,
      actionsPerMinute: 2,
      maxStateKeys: 3,
      maxBytes: 1000,
    },
  });
  expect(hosted.page).toBeDefined();
});

afterEach(() => hosted.view.destroy());

const READY = { type: "speraxos:plugin-ready-for-render" };

test.each([
  ["another window", () => window],
  ["a frame of somebody else", () => ({ postMessage: () => undefined })],
  ["nobody", () => null],
])("%s is not heard", async (_, source) => {
  hosted.say(READY, source());
  await hosted.settle();
  expect(hosted.answers).toEqual([]);
});

test.each([
  "https://evil.example",
  "http://plugin.example",
  "https://plugin.example:8443",
  "https://plugin.example.evil.example",
  "null",
  "",
])("the origin %j is not heard, though it is the frame's window", async (origin) => {
  hosted.say(READY, hosted.page, origin);
  await hosted.settle();
  expect(hosted.answers).toEqual([]);
  expect(hosted.problems).toHaveLength(1);
});

test.each([
  ["fetch-plugin-state", {}],
  ["fetch-plugin-state", { key: "" }],
  ["fetch-plugin-state", { key: 7 }],
  ["fetch-plugin-state", { key: "k".repeat(257) }],
  ["update-plugin-state", { value: 1 }],
  ["update-plugin-state", { key: ["a"], value: 1 }],
  ["update-plugin-settings", {}],
  ["update-plugin-settings", { value: "dark" }],
  ["update-plugin-settings", { value: [] }],
  ["fill-plugin-content", {}],
  ["fill-plugin-content", { content: "a", triggerAiMessage: "yes" }],
  ["trigger-ai-message", { id: 7 }],
  ["create-assistant-message", {}],
  ["create-assistant-message", { content: { text: "a" } }],
  ["render-plugin", {}],
  ["", {}],
  ["plugin-ready-for-render:more", {}],
])("%s with %j is refused", async (channel, body) => {
  hosted.say({ type: `speraxos:${channel}`, ...body });
  await hosted.settle();
  expect(hosted.answers).toEqual([]);
  expect(hosted.actions.setMessage).not.toHaveBeenCalled();
  expect(hosted.actions.triggerAi).not.toHaveBeenCalled();
  expect(hosted.problems).toHaveLength(1);
});

test.each([
  null,
  undefined,
  7,
  "speraxos:plugin-ready-for-render",
  [],
  {},
  { type: 7 },
  { type: "webpackOk" },
  { type: "other:plugin-ready-for-render" },
])("%j is none of ours and passes without a word", async (data) => {
  hosted.say(data);
  await hosted.settle();
  expect(hosted.answers).toEqual([]);
  expect(hosted.problems).toEqual([]);
});

describe("what is not JSON, or too much of it", () => {
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  let deep: unknown = 1;
  for (let depth = 0; depth < 100; depth += 1) deep = [deep];
  test.each([
    ["a cycle", cyclic],
    ["depth", deep],
    ["a date", new Date(0)],
    ["a map", new Map([["a", 1]])],
    ["bytes", new Uint8Array(4)],
    ["not a number", Number.NaN],
    ["length", "x".repeat(1001)],
    ["many members", Array.from({ length: 1001 }, () => 0)],
    ["holes", new Array(1_000_000_000)],
    ["keys", Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`key${index}`, 1]))],
  ])("%s is refused", async (_, value) => {
    hosted.say({ type: "speraxos:update-plugin-state", key: "a", value });
    await hosted.settle();
    expect(hosted.problems).toHaveLength(1);
    const kept = await hosted.ask({ type: "speraxos:fetch-plugin-state", key: "a" }, "speraxos:render-plugin-state");
    expect(kept.value).toBeUndefined();
  });
});

test("state is limited in keys and in all", async () => {
  for (const key of ["a", "b", "c", "d"]) hosted.say({ type: "speraxos:update-plugin-state", key, value: 1 });
  const start = await hosted.ask(READY, "speraxos:init-standalone-plugin");
  expect(start.state).toEqual({ a: 1, b: 1, c: 1 });
  expect(hosted.problems).toHaveLength(1);
});

test("messages beyond the rate are dropped, and let through again after a while", async () => {
  for (let count = 0; count < 50; count += 1) hosted.say({ type: "speraxos:fetch-plugin-message" });
  await vi.waitFor(() => expect(hosted.answers).toHaveLength(10));
  hosted.now += 1000;
  await hosted.ask({ type: "speraxos:fetch-plugin-state", key: "a" }, "speraxos:render-plugin-state");
  expect(hosted.answers).toHaveLength(11);
  expect(hosted.view.status.state).toBe("ready");
});

test("a page that does not stop is taken down, and can be tried again", async () => {
  const page = hosted.page;
  for (let count = 0; count < 600; count += 1) hosted.say(READY, page);
  expect(hosted.view.status).toMatchObject({ state: "error", problem: { kind: "flood" } });
  expect(hosted.container.querySelector("iframe")).toBeNull();
  hosted.container.querySelector("button")?.click();
  expect(hosted.view.status.state).toBe("loading");
  await hosted.ask(READY, "speraxos:init-standalone-plugin");
});

test("what costs money is limited more", async () => {
  for (let count = 0; count < 5; count += 1) hosted.say({ type: "speraxos:trigger-ai-message" });
  await hosted.settle();
  expect(hosted.actions.triggerAi).toHaveBeenCalledTimes(2);
});

test("questions that wait for a slow store are bounded", async () => {
  hosted.view.destroy();
  let read = (_: Record<string, unknown>): void => undefined;
  hosted = new Hosted({
    limits: { maxWaiting: 3 },
    store: {
      read: () =>
        new Promise((resolve) => {
          read = resolve;
        }),
      write: () => undefined,
    },
  });
  for (let count = 0; count < 8; count += 1) hosted.say({ type: "speraxos:fetch-plugin-state", key: "a" });
  expect(hosted.problems).toHaveLength(5);
  for (let count = 0; count < 3; count += 1) {
    await vi.waitFor(() => {
      read({});
      expect(hosted.answers.length).toBeGreaterThan(count);
    });
  }
});

test("what the host does not offer is refused, and the page lives on", async () => {
  hosted.view.destroy();
  hosted = new Hosted({ actions: {} });
  hosted.say({ type: "speraxos:fill-plugin-content", content: "a" });
  hosted.say({ type: "speraxos:trigger-ai-message" });
  hosted.say({ type: "speraxos:create-assistant-message", content: "a" });
  hosted.say({ type: "speraxos:update-plugin-settings", value: { a: 1 } });
  await hosted.settle();
  expect(hosted.problems).toHaveLength(4);
});

test("after destroy nobody listens", async () => {
  const page = hosted.page;
  hosted.view.destroy();
  hosted.say(READY, page);
  expect(hosted.container.childElementCount).toBe(0);
  expect(hosted.answers).toEqual([]);
});
