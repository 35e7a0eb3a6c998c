// The hooks show the host's messages, store the page's values, and leave no listeners behind.

import * as React from "react";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import * as lazy from "../src/client.js";
import { createHooks } from "../src/hooks.js";
import { createPluginClient, type PluginClient } from "../src/speraxos.js";
import { Page } from "./page.js";

(globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;

let page: Page;
let client: PluginClient;
let root: Root;
let element: HTMLElement;
let hooks: ReturnType<typeof createHooks>;

beforeEach(() => {
  page = new Page();
  client = createPluginClient({ window: page.window, timeoutMs: 20 });
  hooks = createHooks(() => React, client);
  element = document.createElement("div");
  root = createRoot(element);
});

afterEach(async () => {
  await act(async () => root.unmount());
  vi.useRealTimers();
});

const render = (Component: React.FC) => act(async () => root.render(<Component />));
const hear = (data: object) => act(async () => page.hear(data));

test("useWatchPluginMessage follows the message", async () => {
  await render(function Watch() {
    const { data, loading } = hooks.useWatchPluginMessage<{ title: string }>();
    return loading ? "loading" : data.title;
  });
  expect(element.textContent).toBe("loading");
  expect(page.last("speraxos:plugin-ready-for-render")).toBeDefined();
  await hear({ type: "speraxos:render-plugin", props: { content: { title: "one" } } });
  expect(element.textContent).toBe("one");
  await hear({ type: "speraxos:render-plugin", props: { content: { title: "two" } } });
  expect(element.textContent).toBe("two");
});

test("useWatchPluginMessage shows what the page itself writes, which the host does not send back", async () => {
  await render(function Watch() {
    return JSON.stringify(hooks.useWatchPluginMessage<unknown>().data);
  });
  for (const [written, shown] of [
    [{ a: 1 }, '{"a":1}'],
    ['{"a":2}', '{"a":2}'],
    ["text", '"text"'],
  ] as const) {
    await act(() => client.setPluginMessage(written));
    expect(element.textContent).toBe(shown);
  }
});

test("useWatchPluginMessage says that nobody answers, and still hears who comes late", async () => {
  vi.useFakeTimers();
  await render(function Watch() {
    const { data, error } = hooks.useWatchPluginMessage<string>();
    return error ? "nobody" : (data ?? "waiting");
  });
  await act(() => vi.advanceTimersByTimeAsync(20));
  expect(element.textContent).toBe("nobody");
  await hear({ type: "speraxos:render-plugin", props: { content: "late" } });
  expect(element.textContent).toBe("late");
});

test("useOnStandalonePluginInit calls back once", async () => {
  const payloads: unknown[] = [];
  await render(function Init() {
    hooks.useOnStandalonePluginInit<{ city: string }>((payload) => payloads.push(payload.arguments?.city));
    return null;
  });
  const init = { type: "speraxos:init-standalone-plugin", payload: { apiName: "a", arguments: '{"city":"Oslo"}' } };
  await hear(init);
  await hear(init);
  expect(payloads).toEqual(["Oslo"]);
});

describe("usePluginState", () => {
  let setCount: (value: number | ((last: number) => number)) => void;
  function Counter() {
    const [count, set] = hooks.usePluginState("count", 5);
    setCount = set;
    return String(count);
  }

  test.each([0, 7])("shows the kept value %d", async (value) => {
    await render(Counter);
    expect(element.textContent).toBe("5");
    await hear({ type: "speraxos:render-plugin-state", key: "count", value });
    expect(element.textContent).toBe(String(value));
  });

  test("keeps the initial value where nothing was kept", async () => {
    await render(Counter);
    await hear({ type: "speraxos:render-plugin-state", key: "count", value: undefined });
    expect(element.textContent).toBe("5");
  });

  test("does not let an answer overtake what was set since", async () => {
    await render(Counter);
    await act(async () => setCount(9));
    await hear({ type: "speraxos:render-plugin-state", key: "count", value: 1 });
    expect(element.textContent).toBe("9");
    expect(page.last("speraxos:update-plugin-state")).toMatchObject({ key: "count", value: 9 });
  });

  test("counts every step of several at once", async () => {
    await render(Counter);
    await act(async () => {
      setCount((last) => last + 1);
      setCount((last) => last + 1);
    });
    expect(element.textContent).toBe("7");
  });

  test("is one value for all who use the key", async () => {
    await render(function Pair() {
      return (
        <>
          <Counter />
          <Counter />
        </>
      );
    });
    await act(async () => setCount(3));
    expect(element.textContent).toBe("33");
  });
});

test("usePluginSettings shows the host's settings, news of them, and its own changes", async () => {
  let change: (changes: { theme?: string; key?: string }) => void = () => undefined;
  await render(function Settings() {
    const [settings, set] = hooks.usePluginSettings<{ theme: string; key?: string }>({ theme: "light" });
    change = set;
    return JSON.stringify(settings);
  });
  expect(JSON.parse(element.textContent ?? "")).toEqual({ theme: "light" });
  await hear({ type: "speraxos:render-plugin-settings", value: { theme: "" } });
  expect(JSON.parse(element.textContent ?? "")).toEqual({ theme: "" });
  await hear({ type: "speraxos:render-plugin-settings", value: { theme: "", key: "granted" } });
  await act(async () => change({ theme: "dark" }));
  expect(JSON.parse(element.textContent ?? "")).toEqual({ theme: "dark", key: "granted" });
  expect(page.last("speraxos:update-plugin-settings")).toMatchObject({ value: { theme: "dark" } });
});

test("unmounting takes every listener off", async () => {
  await render(function All() {
    hooks.useWatchPluginMessage();
    hooks.useOnStandalonePluginInit(() => undefined);
    hooks.usePluginState("a", 1);
    hooks.usePluginSettings({});
    return null;
  });
  expect(page.listeners).toBe(1);
  await act(async () => root.render(null));
  await expect.poll(() => page.listeners).toBe(0);
});

test("the hooks that are exported beside the client find React themselves", async () => {
  await render(function Lazy() {
    const [value] = lazy.usePluginState("key", "initial");
    return value;
  });
  expect(element.textContent).toBe("initial");
});
