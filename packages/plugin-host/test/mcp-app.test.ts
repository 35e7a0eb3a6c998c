// An MCP App gets the features of the protocol only after its handshake, and features that were not offered are
// refused.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type AppView, type AppViewOptions, mountMcpApp } from "../src/index.js";
import { appPolicy, readCsp } from "../src/mcp/policy.js";
import { sandboxPage } from "../src/mcp/sandbox-page.js";

const RESOURCE = { uri: "ui://weather/view", mimeType: "text/html;profile=mcp-app", text: "<p>app</p>" };
const TOOLS = [
  { name: "forecast", inputSchema: { type: "object" } },
  { name: "refresh", _meta: { ui: { visibility: ["app"] } } },
  { name: "secret", _meta: { ui: { visibility: ["model"] } } },
];
const POLL = { interval: 1 };

let app: AppView;
let container: HTMLElement;
let sent: Record<string, unknown>[];
let problems: string[];
let page: object;

function open(options: Partial<AppViewOptions> = {}): void {
  app = mountMcpApp(container, {
    resource: RESOURCE,
    tool: TOOLS[0] as { name: string },
    tools: TOOLS,
    onProblem: (problem) => problems.push(problem),
    ...options,
  });
  page = {
    postMessage(message: Record<string, unknown>, origin: string) {
      expect(origin).toBe(options.sandboxUrl ? "https://sandbox.example" : "*");
      sent.push(structuredClone(message));
    },
  };
  Object.defineProperty(container.querySelector("iframe"), "contentWindow", { value: page });
}

function say(data: unknown, origin = "null", source: unknown = page): void {
  const event = new MessageEvent("message", { data, origin });
  Object.defineProperty(event, "source", { value: source });
  window.dispatchEvent(event);
}

const notify = (method: string, params: object = {}) => say({ jsonrpc: "2.0", method, params });

async function ask(method: string, params: object = {}): Promise<Record<string, unknown>> {
  const id = `q-${Math.random()}`;
  say({ jsonrpc: "2.0", id, method, params });
  return vi.waitFor(() => {
    const answer = sent.find((message) => message.id === id);
    expect(answer).toBeDefined();
    return answer as Record<string, unknown>;
  }, POLL);
}

async function shake(): Promise<Record<string, unknown>> {
  const answer = await ask("ui/initialize", {
    protocolVersion: "2026-01-26",
    appInfo: { name: "a", version: "1" },
    appCapabilities: {},
  });
  notify("ui/notifications/initialized");
  return answer;
}

beforeEach(() => {
  // Outside of the document, where frames stay empty.
  container = document.createElement("div");
  [sent, problems] = [[], []];
});

afterEach(() => {
  vi.useRealTimers();
  app?.destroy();
});

test("the frame has scripts and forms, and no origin", () => {
  open();
  const frame = container.querySelector("iframe");
  expect(frame?.getAttribute("sandbox")).toBe("allow-scripts allow-forms");
  expect(frame?.srcdoc).toBe(sandboxPage);
});

test("the sandbox page is sent the app once, with its policy", () => {
  open({
    resource: {
      ...RESOURCE,
      _meta: { ui: { csp: { connectDomains: ["https://api.example"] }, permissions: { camera: {} } } },
    },
  });
  notify("ui/notifications/sandbox-proxy-ready");
  notify("ui/notifications/sandbox-proxy-ready");
  expect(sent).toEqual([
    {
      jsonrpc: "2.0",
      method: "ui/notifications/sandbox-resource-ready",
      params: expect.objectContaining({
        html: "<p>app</p>",
        sandbox: "allow-scripts allow-forms",
        allow: "",
        policy: expect.stringContaining("connect-src https://api.example;"),
      }),
    },
  ]);
});

test("features of the browser are given where the host allows them and the app asks", () => {
  open({
    permissions: ["camera", "geolocation"],
    resource: { ...RESOURCE, _meta: { ui: { permissions: { camera: {}, microphone: {} } } } },
  });
  expect(container.querySelector("iframe")?.getAttribute("allow")).toBe("camera");
});

test("a sandbox page of another origin is answered there only", () => {
  open({ sandboxUrl: "https://sandbox.example/page" });
  expect(container.querySelector("iframe")?.src).toBe("https://sandbox.example/page");
  say({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready" }, "null");
  expect(sent).toEqual([]);
  say({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready" }, "https://sandbox.example");
  expect(sent).toHaveLength(1);
});

test("input and result wait for the handshake, and come in order", async () => {
  open({ context: { theme: "dark" } });
  app.setPartialInput({ city: "Os" });
  app.setInput({ city: "Oslo" });
  app.setResult({ content: [{ type: "text", text: "7°" }] });
  expect(app.status.state).toBe("loading");
  const { result } = await ask("ui/initialize", {});
  expect(result).toMatchObject({
    protocolVersion: "2026-01-26",
    hostInfo: { name: "switchboard" },
    hostContext: { theme: "dark", displayMode: "inline", toolInfo: { tool: { name: "forecast" } } },
  });
  expect(sent).toHaveLength(1);
  notify("ui/notifications/initialized");
  expect(sent.slice(1).map(({ method }) => method)).toEqual([
    "ui/notifications/tool-input-partial",
    "ui/notifications/tool-input",
    "ui/notifications/tool-result",
  ]);
  expect(sent[2]?.params).toEqual({ arguments: { city: "Oslo" } });
  expect(app.status.state).toBe("ready");
});

test("what happens later is told at once", async () => {
  open();
  await shake();
  app.setContext({ theme: "light" });
  app.setCancelled("the user stopped it");
  expect(sent.slice(-2)).toEqual([
    { jsonrpc: "2.0", method: "ui/notifications/host-context-changed", params: { theme: "light" } },
    { jsonrpc: "2.0", method: "ui/notifications/tool-cancelled", params: { reason: "the user stopped it" } },
  ]);
});

describe("tools/call", () => {
  test("reaches tools that are for apps", async () => {
    const callTool = vi.fn(async () => ({ content: [] }));
    open({ actions: { callTool } });
    const { result } = await shake();
    expect(result).toMatchObject({ hostCapabilities: { serverTools: {} } });
    for (const name of ["forecast", "refresh"]) {
      expect(await ask("tools/call", { name, arguments: { a: 1 } })).toMatchObject({ result: { content: [] } });
      expect(callTool).toHaveBeenLastCalledWith(name, { a: 1 }, expect.any(AbortSignal));
    }
  });

  test.each(["secret", "of another server", 7])("refuses %s", async (name) => {
    const callTool = vi.fn();
    open({ actions: { callTool } });
    await shake();
    expect(await ask("tools/call", { name })).toMatchObject({ error: { code: -32000 } });
    expect(callTool).not.toHaveBeenCalled();
  });

  test("says why a call failed", async () => {
    open({ actions: { callTool: () => Promise.reject(new Error("offline")) } });
    await shake();
    expect(await ask("tools/call", { name: "forecast" })).toMatchObject({
      error: { code: -32603, message: "offline" },
    });
  });

  test("is cancelled by the app, and by taking it down", async () => {
    const signals: AbortSignal[] = [];
    open({
      actions: {
        callTool: (_name, _args, signal) => {
          signals.push(signal);
          return new Promise(() => undefined);
        },
      },
    });
    await shake();
    for (const id of [1, 2]) say({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "forecast" } });
    notify("notifications/cancelled", { requestId: 1 });
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
    app.destroy();
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
  });
});

test("the host's other services", async () => {
  const actions = {
    readResource: vi.fn(async () => ({ contents: [] })),
    openLink: vi.fn(() => true),
    sendMessage: vi.fn((_: unknown[]) => true),
    updateModelContext: vi.fn(),
    log: vi.fn(),
    close: vi.fn(),
  };
  open({ actions });
  await shake();
  expect(await ask("ping")).toMatchObject({ result: {} });
  expect(await ask("resources/read", { uri: "ui://weather/data" })).toMatchObject({ result: { contents: [] } });
  expect(await ask("ui/open-link", { url: "https://a.example" })).toMatchObject({ result: {} });
  const text = { type: "text", text: "Hi" };
  expect(await ask("ui/message", { role: "user", content: text })).toMatchObject({ result: {} });
  expect(await ask("ui/message", { role: "user", content: [text] })).toMatchObject({ result: {} });
  expect(await ask("ui/update-model-context", { structuredContent: { a: 1 } })).toMatchObject({ result: {} });
  expect(await ask("ui/request-display-mode", { mode: "fullscreen" })).toMatchObject({ result: { mode: "inline" } });
  notify("notifications/message", { level: "warning", data: "careful" });
  notify("ui/notifications/request-teardown");
  expect(actions.openLink).toHaveBeenCalledWith("https://a.example/", expect.any(AbortSignal));
  expect(actions.sendMessage.mock.calls.map(([content]) => content)).toEqual([[text], [text]]);
  expect(actions.updateModelContext).toHaveBeenCalledWith({ structuredContent: { a: 1 } });
  expect(actions.log).toHaveBeenCalledWith("warning", "careful");
  expect(actions.close).toHaveBeenCalledOnce();
});

test.each([
  ["ui/open-link", { url: "javascript:alert(1)" }, -32000],
  ["ui/open-link", { url: "nonsense" }, -32602],
  ["ui/message", { role: "assistant", content: [] }, -32602],
  ["ui/message", { role: "user", content: ["text"] }, -32602],
  ["resources/read", {}, -32602],
  ["tools/call", { name: "forecast", arguments: [] }, -32602],
  ["sampling/createMessage", {}, -32601],
  ["ui/download-file", {}, -32601],
])("%s with %j is refused", async (method, params, code) => {
  const actions = { openLink: vi.fn(), sendMessage: vi.fn(), readResource: vi.fn(), callTool: vi.fn() };
  open({ actions });
  await shake();
  expect(await ask(method, params)).toMatchObject({ error: { code } });
  for (const action of Object.values(actions)) expect(action).not.toHaveBeenCalled();
});

test("what the user denies is said to be denied", async () => {
  const actions = { openLink: vi.fn(() => false), sendMessage: vi.fn(async () => false) };
  open({ actions });
  await shake();
  expect(await ask("ui/open-link", { url: "https://a.example" })).toMatchObject({
    error: { code: -32000, message: "Link opening denied by user" },
  });
  expect(await ask("ui/message", { role: "user", content: [{ type: "text", text: "Hi" }] })).toMatchObject({
    error: { code: -32000, message: "Message sending denied" },
  });
});

test("what the host leaves out is neither offered nor done", async () => {
  open();
  const { result } = await shake();
  expect(Object.keys((result as { hostCapabilities: object }).hostCapabilities)).toEqual(["sandbox"]);
  for (const method of ["resources/read", "ui/open-link", "ui/message", "ui/update-model-context"]) {
    expect(await ask(method, { url: "https://a.example", role: "user", content: [], uri: "ui://a" })).toMatchObject({
      error: { code: -32601 },
    });
  }
});

test.each([null, 7, "text", {}, { jsonrpc: "1.0", id: 1, method: "ping" }, { jsonrpc: "2.0" }])(
  "%j is not answered",
  async (data) => {
    open();
    say(data);
    await ask("ping");
    expect(sent).toHaveLength(1);
  },
);

test("other windows and origins are not heard", async () => {
  open();
  say({ jsonrpc: "2.0", id: 1, method: "ping" }, "null", window);
  say({ jsonrpc: "2.0", id: 1, method: "ping" }, "https://evil.example");
  await ask("ping");
  expect(sent).toHaveLength(1);
});

test("its size follows the app, within bounds", async () => {
  open({ maxHeight: 500 });
  await shake();
  for (const [height, shown] of [
    [200.4, "201px"],
    [9_999, "500px"],
    [1, "40px"],
    [-5, "40px"],
    ["300", "40px"],
  ]) {
    notify("ui/notifications/size-changed", { width: 100, height });
    expect(app.element.style.height).toBe(shown);
  }
});

test("before it is taken down the app may save what it has", async () => {
  open();
  await shake();
  const gone = app.teardown("done");
  const request = sent.at(-1);
  expect(request).toMatchObject({ method: "ui/resource-teardown", params: { reason: "done" } });
  expect(container.childElementCount).toBe(1);
  say({ jsonrpc: "2.0", id: request?.id, result: {} });
  await gone;
  expect(container.childElementCount).toBe(0);
});

test("an app that does not answer is taken down all the same, and one that never starts is an error", async () => {
  open({ readyTimeoutMs: 500 });
  vi.useFakeTimers();
  app.destroy();
  open({ readyTimeoutMs: 500 });
  vi.advanceTimersByTime(500);
  expect(app.status).toMatchObject({ state: "error", problem: { kind: "timeout" } });
  notify("ui/notifications/initialized");
  expect(app.status.state).toBe("ready");
  const gone = app.teardown();
  await vi.advanceTimersByTimeAsync(1000);
  await gone;
  expect(container.childElementCount).toBe(0);
});

test.each([
  { ...RESOURCE, uri: "https://a.example/" },
  { ...RESOURCE, mimeType: "text/html" },
  { uri: RESOURCE.uri, mimeType: RESOURCE.mimeType },
])("%j is no app", (resource) => {
  expect(() => mountMcpApp(container, { resource, tool: { name: "a" } })).toThrow(resource.uri);
});

test("HTML may come as base64", () => {
  open({ resource: { uri: RESOURCE.uri, mimeType: "text/html; profile=mcp-app", blob: btoa("<p>\u00c3\u00a9</p>") } });
  notify("ui/notifications/sandbox-proxy-ready");
  expect(sent[0]?.params).toMatchObject({ html: "<p>é</p>" });
});

describe("the policy", () => {
  test("allows nothing outside by default", () => {
    expect(appPolicy({})).toBe(
      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:; connect-src 'none'; frame-src 'none'; base-uri 'none'; object-src 'none'; form-action 'none'",
    );
  });

  test.each([
    "*",
    "'self'",
    "https:",
    "data:",
    "https://a.example; script-src *",
    "https://a.example https://b.example",
    "https://a.example\n",
    "javascript:x",
    "https://*",
    7,
    null,
  ])("%j is no origin", (domain) => expect(readCsp({ connectDomains: [domain] })).toEqual({}));

  test.each(["https://a.example", "https://*.a.example", "http://localhost:3000", "wss://a.example:8443"])(
    "%s is one",
    (domain) => {
      expect(readCsp({ connectDomains: [domain] })).toEqual({ connectDomains: [domain] });
    },
  );
});
