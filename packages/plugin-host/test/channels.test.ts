// Every channel is answered, with the prefix of the request.

import { afterEach, describe, expect, test, vi } from "vitest";
import { memoryStore, webStorageStore } from "../src/index.js";
import { Hosted, PAGE } from "./hosted.js";

let hosted: Hosted;

afterEach(() => hosted.view.destroy());

describe.each(["speraxos", "lobe-chat"])("in the prefix %s", (prefix) => {
  test.each(["plugin-ready-for-render", "init-standalone-plugin"])("%s starts a standalone page", async (channel) => {
    hosted = new Hosted({ settings: { read: () => ({ units: "celsius" }), write: () => undefined } });
    hosted.say({ type: `${prefix}:update-plugin-state`, key: "count", value: 0 });
    const start = await hosted.ask({ type: `${prefix}:${channel}` }, `${prefix}:init-standalone-plugin`);
    expect(start).toMatchObject({
      payload: { apiName: "forecast", arguments: '{"city":"Oslo"}', identifier: "weather" },
      settings: { units: "celsius" },
      state: { count: 0 },
    });
  });

  test("plugin-ready-for-render renders a default page", async () => {
    hosted = new Hosted({ manifest: { identifier: "weather", ui: { url: PAGE } } });
    const render = await hosted.ask({ type: `${prefix}:plugin-ready-for-render` }, `${prefix}:render-plugin`);
    const props = { content: { temperature: 7 }, name: "forecast" };
    expect(render).toMatchObject({ props, payload: props });
    // Such a page may also request its arguments.
    await vi.waitFor(() => expect(hosted.answers.at(-1)?.message.type).toBe(`${prefix}:init-standalone-plugin`));
  });

  test("fetch-plugin-message is answered with the content", async () => {
    hosted = new Hosted();
    const answer = await hosted.ask({ type: `${prefix}:fetch-plugin-message` }, `${prefix}:render-plugin`);
    expect(answer.props).toEqual({ content: { temperature: 7 }, name: "forecast" });
  });

  test("fill-plugin-content changes the message, then triggers the model if asked to", async () => {
    hosted = new Hosted();
    const order: string[] = [];
    hosted.actions.setMessage.mockImplementation(() => void order.push("set"));
    hosted.actions.triggerAi.mockImplementation(() => void order.push("trigger"));
    hosted.say({ type: `${prefix}:fill-plugin-content`, content: { a: 1 } });
    const again = await hosted.ask({ type: `${prefix}:fetch-plugin-message` }, `${prefix}:render-plugin`);
    expect(again).toMatchObject({ props: { content: { a: 1 } } });
    hosted.say({ type: `${prefix}:fill-plugin-content`, content: "", triggerAiMessage: true });
    await hosted.settle();
    expect(hosted.actions.setMessage.mock.calls).toEqual([[{ a: 1 }], [""]]);
    expect(order).toEqual(["set", "set", "trigger"]);
    expect(hosted.actions.triggerAi).toHaveBeenCalledWith("m-1");
  });

  test.each([0, false, "", null, { deep: [1] }])("state keeps %j", async (value) => {
    hosted = new Hosted();
    hosted.say({ type: `${prefix}:update-plugin-state`, key: "key", value });
    const answer = await hosted.ask(
      { type: `${prefix}:fetch-plugin-state`, key: "key" },
      `${prefix}:render-plugin-state`,
    );
    expect(answer).toEqual({ type: `${prefix}:render-plugin-state`, key: "key", value });
  });

  test("settings are read and changed", async () => {
    let settings: Record<string, unknown> = { theme: "light", size: 1 };
    hosted = new Hosted({
      settings: {
        read: () => settings,
        write: (changes) => {
          settings = { ...settings, ...changes };
        },
      },
    });
    hosted.say({ type: `${prefix}:update-plugin-settings`, value: { theme: "dark" } });
    const answer = await hosted.ask({ type: `${prefix}:fetch-plugin-settings` }, `${prefix}:render-plugin-settings`);
    expect(answer.value).toEqual({ theme: "dark", size: 1 });
  });

  test("trigger-ai-message and create-assistant-message reach the host", async () => {
    hosted = new Hosted();
    hosted.say({ type: `${prefix}:trigger-ai-message` });
    hosted.say({ type: `${prefix}:trigger-ai-message`, id: "m-9" });
    hosted.say({ type: `${prefix}:create-assistant-message`, content: "Hello" });
    await hosted.settle();
    expect(hosted.actions.triggerAi.mock.calls).toEqual([["m-1"], ["m-9"]]);
    expect(hosted.actions.createAssistantMessage.mock.calls).toEqual([["Hello"]]);
  });
});

test("answers go to the page's origin and nowhere else", async () => {
  hosted = new Hosted();
  await hosted.ask({ type: "speraxos:plugin-ready-for-render" }, "speraxos:init-standalone-plugin");
  await hosted.settle();
  expect(new Set(hosted.answers.map(({ origin }) => origin))).toEqual(new Set(["https://plugin.example"]));
});

test("an answer repeats the question's id", async () => {
  hosted = new Hosted();
  const question = { type: "speraxos:fetch-plugin-state", key: "a", requestId: "7" };
  expect(await hosted.ask(question, "speraxos:render-plugin-state")).toMatchObject({ requestId: "7" });
});

test.each([
  ["plain text", "plain text"],
  ["0", 0],
  ['"quoted"', "quoted"],
  [{ already: "parsed" }, { already: "parsed" }],
])("the content %j is sent as %j", async (content, sent) => {
  hosted = new Hosted({ content });
  const answer = await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(answer.props).toMatchObject({ content: sent });
});

test("new content reaches the page in its prefix", async () => {
  hosted = new Hosted();
  await hosted.ask({ type: "lobe-chat:fetch-plugin-message" }, "lobe-chat:render-plugin");
  hosted.view.setContent("new");
  expect(hosted.answers.at(-1)?.message).toMatchObject({ type: "lobe-chat:render-plugin", props: { content: "new" } });
});

test("a page's own write is not sent back to it, however the host keeps it", async () => {
  hosted = new Hosted();
  hosted.actions.setMessage.mockImplementation((content) => hosted.view.setContent(JSON.stringify(content)));
  hosted.say({ type: "speraxos:fill-plugin-content", content: { a: 1 } });
  await hosted.settle();
  hosted.view.setContent('{"a":1}');
  expect(hosted.answers).toEqual([]);
  hosted.view.setContent('{"a":2}');
  expect(hosted.answers.map(({ message }) => message.props)).toEqual([{ content: { a: 2 }, name: "forecast" }]);
});

test("a page's own write is not sent back to it with its keys in another order", async () => {
  hosted = new Hosted();
  hosted.say({ type: "speraxos:fill-plugin-content", content: { list: [{ a: 1, b: 2 }], name: "x" } });
  await hosted.settle();
  hosted.view.setContent('{"name":"x","list":[{"b":2,"a":1}]}');
  expect(hosted.answers).toEqual([]);
  // The order of a list is part of its value.
  hosted.view.setContent({ list: [2, 1] });
  hosted.view.setContent({ list: [1, 2] });
  expect(hosted.answers).toHaveLength(2);
});

test("a late echo of an earlier write does not replace a later one", async () => {
  hosted = new Hosted();
  for (const content of ["one", "two", "one", "three"]) hosted.say({ type: "speraxos:fill-plugin-content", content });
  await hosted.settle();
  for (const echo of ["one", "one", "two", "one"]) hosted.view.setContent(echo);
  expect(hosted.answers).toEqual([]);
  const answer = await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(answer.props).toMatchObject({ content: "three" });
  hosted.view.setContent("three");
  // Echoes arrive in the order of the writes, so this is a change by the host.
  hosted.view.setContent("two");
  expect(hosted.answers.slice(1).map(({ message }) => message.props)).toEqual([{ content: "two", name: "forecast" }]);
});

test("after a change by the host, an earlier write of the page is a change, too", async () => {
  hosted = new Hosted();
  hosted.say({ type: "speraxos:fill-plugin-content", content: "mine" });
  await hosted.settle();
  hosted.view.setContent("the host's");
  hosted.view.setContent("mine");
  expect(hosted.answers.map(({ message }) => (message.props as { content: unknown }).content)).toEqual([
    "the host's",
    "mine",
  ]);
});

test("a write that the host refused leaves the content as it was", async () => {
  hosted = new Hosted();
  hosted.actions.setMessage.mockImplementation(() => {
    throw new Error("no room");
  });
  hosted.say({ type: "speraxos:fill-plugin-content", content: { a: 1 } });
  const answer = await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(answer.props).toMatchObject({ content: { temperature: 7 } });
});

test("a page that has said nothing yet is told nothing, and finds the new content when it asks", async () => {
  hosted = new Hosted();
  expect(hosted.page).toBeDefined();
  hosted.view.setContent("new");
  expect(hosted.answers).toEqual([]);
  const answer = await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(answer.props).toMatchObject({ content: "new" });
});

test("state belongs to its message and survives a reload", async () => {
  localStorage.clear();
  const open = (messageId: string) =>
    new Hosted({ store: webStorageStore(localStorage), call: { messageId, apiName: "forecast" } });
  const read = async () =>
    (await hosted.ask({ type: "speraxos:fetch-plugin-state", key: "count" }, "speraxos:render-plugin-state")).value;
  hosted = open("m-1");
  hosted.say({ type: "speraxos:update-plugin-state", key: "count", value: 0 });
  expect(await read()).toBe(0);
  hosted.view.reload();
  expect(await read()).toBe(0);
  hosted.view.destroy();
  hosted = open("m-2");
  expect(await read()).toBeUndefined();
  hosted.view.destroy();
  hosted = open("m-1");
  expect(await read()).toBe(0);
});

test("a changed message is still changed after a reload", async () => {
  hosted = new Hosted();
  hosted.say({ type: "speraxos:fill-plugin-content", content: "mine" });
  await hosted.settle();
  hosted.view.reload();
  const answer = await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(answer.props).toMatchObject({ content: "mine" });
});

test("keys of state cannot reach prototypes", async () => {
  hosted = new Hosted();
  for (const key of ["__proto__", "constructor"]) {
    hosted.say({ type: "speraxos:update-plugin-state", key, value: { polluted: true } });
    const answer = await hosted.ask({ type: "speraxos:fetch-plugin-state", key }, "speraxos:render-plugin-state");
    expect(answer.value).toEqual({ polluted: true });
  }
  expect(
    await hosted.ask({ type: "speraxos:fetch-plugin-state", key: "toString" }, "speraxos:render-plugin-state"),
  ).toMatchObject({
    key: "toString",
    value: undefined,
  });
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

test("one that fails does not keep the next from being answered", async () => {
  const store = memoryStore();
  hosted = new Hosted({
    store: {
      ...store,
      write: () => {
        throw new Error("disk full");
      },
    },
  });
  hosted.say({ type: "speraxos:update-plugin-state", key: "a", value: 1 });
  await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(hosted.problems).toEqual(['weather: "update-plugin-state" failed: disk full']);
});
