// A view has the manifest's size, shows its status, and frames pages so that they cannot access their host.

import { afterEach, expect, test, vi } from "vitest";
import { frameRules } from "../src/frame.js";
import { Hosted, PAGE } from "./hosted.js";

let hosted: Hosted;

afterEach(() => {
  vi.useRealTimers();
  hosted?.view.destroy();
});

const ui = (members: object) => ({
  manifest: { identifier: "weather", meta: { title: "Weather" }, ui: { url: PAGE, ...members } },
});

test("the frame may run scripts, and has no way to its host or its tab", () => {
  hosted = new Hosted(ui({}));
  expect(hosted.frame.getAttribute("sandbox")?.split(" ").sort()).toEqual([
    "allow-forms",
    "allow-popups",
    "allow-same-origin",
    "allow-scripts",
  ]);
  expect(hosted.frame.getAttribute("allow")).toBe("");
  expect(hosted.frame.getAttribute("referrerpolicy")).toBe("no-referrer");
  expect(hosted.frame.title).toBe("Weather");
  expect(hosted.frame.src).toBe(PAGE);
});

test.each(["https://host.example/plugin", "/plugin", "//host.example/plugin", "https://HOST.example:443/plugin"])(
  "a page of the host's own origin loses it: %s",
  (address) => {
    const rules = frameRules(address, "https://host.example/chat");
    expect(rules.origin).toBe("null");
    expect(rules.sandbox).not.toContain("allow-same-origin");
  },
);

test.each(["https://plugin.example/", "http://host.example/", "https://host.example:8443/"])(
  "another origin keeps it: %s",
  (address) => {
    const rules = frameRules(address, "https://host.example/chat");
    expect(rules.origin).toBe(new URL(address).origin);
    expect(rules.sandbox).toContain("allow-same-origin");
  },
);

test.each([
  "javascript:alert(1)",
  "data:text/html,x",
  "blob:https://host.example/1",
  "file:///etc/passwd",
  "about:blank",
  "https://",
  "https://a:b@c.example/",
])("%s is not shown", (url) => {
  hosted = new Hosted(ui({ url }));
  expect(hosted.view.status).toMatchObject({ state: "error", problem: { kind: "bad-address" } });
  expect(hosted.container.querySelector("iframe")).toBeNull();
  expect(hosted.container.querySelector('[role="alert"]')?.textContent).toContain("ui.url");
});

test("a page that would run inside the host's is not shown", () => {
  hosted = new Hosted(ui({ mode: "module" }));
  expect(hosted.view.status).toMatchObject({ state: "error", problem: { kind: "unsupported" } });
});

test.each([
  [{}, "100%", "320px"],
  [{ width: 400, height: 200 }, "400px", "200px"],
  [{ width: 1, height: 1 }, "160px", "40px"],
  [{ width: 1e9, height: 1e9 }, "4000px", "2000px"],
  [{ width: Number.NaN, height: "200" as unknown as number }, "100%", "320px"],
])("the size %j is %s by %s", (size, width, height) => {
  hosted = new Hosted(ui(size));
  expect(hosted.view.element.style.height).toBe(height);
  expect(hosted.view.element.style.width).toBe(width);
});

test("it loads until the page speaks, whatever it says first", async () => {
  hosted = new Hosted();
  expect(hosted.view.element.getAttribute("aria-busy")).toBe("true");
  expect(hosted.container.querySelector('[role="status"]')?.textContent).toContain("Loading");
  await hosted.ask({ type: "speraxos:fetch-plugin-message" }, "speraxos:render-plugin");
  expect(hosted.states).toEqual(["ready"]);
  expect(hosted.view.element.getAttribute("aria-busy")).toBe("false");
});

test("a page that never speaks is an error, which a late word heals", async () => {
  vi.useFakeTimers();
  hosted = new Hosted({ readyTimeoutMs: 500 });
  vi.advanceTimersByTime(499);
  expect(hosted.view.status.state).toBe("loading");
  vi.advanceTimersByTime(1);
  expect(hosted.view.status).toMatchObject({ state: "error", problem: { kind: "timeout" } });
  hosted.say({ type: "speraxos:plugin-ready-for-render" });
  expect(hosted.states).toEqual(["error", "ready"]);
});

test("trying again starts anew", () => {
  vi.useFakeTimers();
  hosted = new Hosted({ readyTimeoutMs: 500 });
  vi.advanceTimersByTime(500);
  const before = hosted.frame;
  hosted.container.querySelector("button")?.click();
  expect(hosted.view.status.state).toBe("loading");
  expect(hosted.frame).not.toBe(before);
  vi.advanceTimersByTime(500);
  expect(hosted.view.status.state).toBe("error");
});

test("nothing but words of the protocol counts as speaking", () => {
  hosted = new Hosted();
  hosted.say({ type: "webpackOk" });
  hosted.say({ type: "speraxos:nonsense" });
  expect(hosted.view.status.state).toBe("loading");
});

test("without a page the result is shown as text", () => {
  hosted = new Hosted({ manifest: { identifier: "weather" }, content: '{"a":"<b>"}' });
  expect(hosted.container.querySelector("pre")?.textContent).toBe('{\n  "a": "<b>"\n}');
  hosted.view.setContent("plain");
  expect(hosted.container.querySelector("pre")?.textContent).toBe("plain");
});
