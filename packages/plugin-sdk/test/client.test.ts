// The client sends requests only to its host, and each request gets its own answer.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createPluginClient, fetchPluginMessage, type PluginClient } from "../src/client.js";
import { Page } from "./page.js";

let page: Page;
let client: PluginClient;

beforeEach(() => {
  page = new Page();
  client = createPluginClient({ window: page.window, timeoutMs: 1000 });
});

afterEach(() => {
  vi.useRealTimers();
});

describe.each(["speraxos", "lobe-chat"] as const)("with the prefix %s", (prefix) => {
  beforeEach(() => client.configure({ prefix }));

  test("getPluginPayload says that the page is ready and reads the call", async () => {
    const payload = client.getPluginPayload<{ city: string }>();
    expect(page.last(`${prefix}:plugin-ready-for-render`)).toBeDefined();
    page.hear({
      type: `${prefix}:init-standalone-plugin`,
      payload: { apiName: "weather", arguments: '{"city":"Oslo"}', identifier: "w" },
      settings: { units: "celsius" },
      state: { count: 0 },
    });
    expect(await payload).toEqual({
      arguments: { city: "Oslo" },
      name: "weather",
      settings: { units: "celsius" },
      state: { count: 0 },
    });
  });

  test.each(["props", "payload"])("getPluginMessage reads %s", async (member) => {
    const message = client.getPluginMessage<{ title: string }>();
    expect(page.last(`${prefix}:fetch-plugin-message`)).toBeDefined();
    page.hear({ type: `${prefix}:render-plugin`, [member]: { content: { title: "Hi" }, name: "weather" } });
    expect(await message).toEqual({ title: "Hi" });
  });

  test("getPluginSettings and getPluginState read their value", async () => {
    const [settings, state] = [client.getPluginSettings(), client.getPluginState("count")];
    expect(page.last(`${prefix}:fetch-plugin-settings`)).toBeDefined();
    expect(page.last(`${prefix}:fetch-plugin-state`)).toMatchObject({ key: "count" });
    page.hear({ type: `${prefix}:render-plugin-settings`, value: { theme: "dark" } });
    page.hear({ type: `${prefix}:render-plugin-state`, key: "count", value: 3 });
    expect([await settings, await state]).toEqual([{ theme: "dark" }, 3]);
  });

  test("the setters send what they are given", async () => {
    await client.setPluginMessage({ done: true });
    await client.setPluginMessage("text", true);
    await client.setPluginState("count", 0);
    await client.setPluginSettings({ theme: "dark" });
    await client.triggerAIMessage();
    await client.triggerAIMessage("m-1");
    await client.createAssistantMessage("Hello");
    expect(page.sent).toEqual([
      { type: `${prefix}:fill-plugin-content`, content: { done: true } },
      { type: `${prefix}:fill-plugin-content`, content: "text", triggerAiMessage: true },
      { type: `${prefix}:update-plugin-state`, key: "count", value: 0 },
      { type: `${prefix}:update-plugin-settings`, value: { theme: "dark" } },
      { type: `${prefix}:trigger-ai-message` },
      { type: `${prefix}:trigger-ai-message`, id: "m-1" },
      { type: `${prefix}:create-assistant-message`, content: "Hello" },
    ]);
  });
});

test.each([0, false, "", null])("%j is a value", async (value) => {
  const [state, message] = [client.getPluginState("key"), client.getPluginMessage()];
  page.hear({ type: "speraxos:render-plugin-state", key: "key", value });
  page.hear({ type: "speraxos:render-plugin", props: { content: value } });
  expect([await state, await message]).toEqual([value, value]);
});

test("getters of different keys take their own answers, whatever the order", async () => {
  const values = Promise.all(["a", "b", "c"].map((key) => client.getPluginState<number>(key)));
  for (const [index, key] of ["c", "a", "b"].entries())
    page.hear({ type: "speraxos:render-plugin-state", key, value: index });
  expect(await values).toEqual([1, 2, 0]);
});

test("getters of one key that overlap a change see the value before and after it", async () => {
  const before = client.getPluginState("count");
  await client.setPluginState("count", 2);
  const after = client.getPluginState("count");
  page.hear({ type: "speraxos:render-plugin-state", key: "count", value: 1 });
  page.hear({ type: "speraxos:render-plugin-state", key: "count", value: 2 });
  expect([await before, await after]).toEqual([1, 2]);
});

test("a host that repeats ids may answer in any order", async () => {
  const [first, second] = [client.getPluginState("count"), client.getPluginState("count")];
  const ids = page.sent.map(({ requestId }) => requestId);
  expect(new Set(ids).size).toBe(2);
  page.hear({ type: "speraxos:render-plugin-state", key: "count", value: "second", requestId: ids[1] });
  page.hear({ type: "speraxos:render-plugin-state", key: "count", value: "first", requestId: ids[0] });
  expect([await first, await second]).toEqual(["first", "second"]);
});

test("only the parent window is heard", async () => {
  const state = client.getPluginState("key");
  const answer = (value: string) => ({ type: "speraxos:render-plugin-state", key: "key", value });
  page.hear(answer("sibling"), new EventTarget());
  page.hear(answer("nobody"), null);
  page.hear(answer("the page itself"), page);
  page.hear(answer("host"));
  expect(await state).toBe("host");
});

test("with a host's origin, no other is heard or spoken to", async () => {
  client.configure({ hostOrigin: "https://host.example" });
  const state = client.getPluginState("key");
  expect(page.parent.postMessage.mock.lastCall?.[1]).toBe("https://host.example");
  const answer = (value: string) => ({ type: "speraxos:render-plugin-state", key: "key", value });
  page.hear(answer("wrong"), page.parent, "https://evil.example");
  page.hear(answer("right"));
  expect(await state).toBe("right");
});

test.each([null, undefined, 7, "text", [], {}, { type: 7 }, { type: "render-plugin" }, { type: "speraxos:" }])(
  "%j from the host is no answer",
  async (data) => {
    const settings = client.getPluginSettings();
    page.hear(data);
    page.hear({ type: "speraxos:render-plugin-settings", value: "answer" });
    expect(await settings).toBe("answer");
  },
);

test("an answer of another prefix is none", async () => {
  const settings = client.getPluginSettings();
  page.hear({ type: "lobe-chat:render-plugin-settings", value: "other" });
  page.hear({ type: "speraxos:render-plugin-settings", value: "ours" });
  expect(await settings).toBe("ours");
});

test.each(["getPluginPayload", "getPluginMessage", "getPluginSettings", "getPluginState"] as const)(
  "%s rejects when nobody answers",
  async (method) => {
    vi.useFakeTimers();
    const failure = expect(client[method]("key")).rejects.toMatchObject({ name: "PluginHostError", code: "timeout" });
    await vi.advanceTimersByTimeAsync(1000);
    await failure;
  },
);

test("the time is settable, and one getter's end is not another's", async () => {
  vi.useFakeTimers();
  const patient = client.getPluginState("a");
  client.configure({ timeoutMs: 10 });
  const hasty = expect(client.getPluginState("b")).rejects.toMatchObject({ code: "timeout" });
  await vi.advanceTimersByTimeAsync(10);
  await hasty;
  page.hear({ type: "speraxos:render-plugin-state", key: "a", value: "late" });
  expect(await patient).toBe("late");
});

test.each([Number.POSITIVE_INFINITY, 3e9])("a time of %s does not end at once", async (timeoutMs) => {
  client.configure({ timeoutMs });
  const patient = client.getPluginState("a");
  await new Promise((next) => setTimeout(next, 5));
  page.hear({ type: "speraxos:render-plugin-state", key: "a", value: "in time" });
  expect(await patient).toBe("in time");
});

test("no listener stays behind", async () => {
  vi.useFakeTimers();
  const gone = expect(client.getPluginState("a")).rejects.toThrow();
  const answered = client.getPluginState("b");
  expect(page.listeners).toBe(1);
  page.hear({ type: "speraxos:render-plugin-state", key: "b", value: 1 });
  await answered;
  await vi.advanceTimersByTimeAsync(1000);
  await gone;
  const stop = client.watchSettings(() => undefined);
  expect(page.listeners).toBe(1);
  stop();
  expect(page.listeners).toBe(0);
});

test("what cannot be sent rejects and leaves nothing", async () => {
  page.parent.postMessage.mockImplementation(() => {
    throw new DOMException("could not be cloned", "DataCloneError");
  });
  await expect(client.setPluginMessage(() => undefined)).rejects.toMatchObject({ code: "not-sent" });
  await expect(client.getPluginState("a")).rejects.toMatchObject({ code: "not-sent" });
  expect(page.listeners).toBe(0);
});

test("arguments that are not JSON reject", async () => {
  const payload = client.getPluginPayload();
  page.hear({ type: "speraxos:init-standalone-plugin", payload: { apiName: "a", arguments: '{"city":' } });
  await expect(payload).rejects.toMatchObject({ code: "bad-answer" });
});

test("without a window it says where it belongs", async () => {
  vi.stubGlobal("window", undefined);
  await expect(createPluginClient().getPluginMessage()).rejects.toMatchObject({ code: "no-window" });
  vi.unstubAllGlobals();
});

test("fetchPluginMessage asks the host of the global window", async () => {
  vi.stubGlobal("window", page.window);
  const message = fetchPluginMessage<{ title: string }>();
  expect(page.sent).toMatchObject([{ type: "speraxos:fetch-plugin-message" }]);
  page.hear({ type: "speraxos:render-plugin", props: { content: { title: "Hi" }, name: "weather" } });
  expect(await message).toEqual({ title: "Hi" });
  vi.unstubAllGlobals();
});

test("methods work on their own", async () => {
  const { getPluginState, setPluginState } = client;
  await setPluginState("key", 1);
  const value = getPluginState("key");
  page.hear({ type: "speraxos:render-plugin-state", key: "key", value: 1 });
  expect(await value).toBe(1);
});
