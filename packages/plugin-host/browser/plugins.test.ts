// In a real browser, plugins of our SDK and of the published SDK work in our host, and no other page gets any data.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { Browser, BrowserContext, Frame, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sandboxPage, sandboxPageHeaders } from "../src/mcp/sandbox-page.js";
import type { Wanted } from "./pages/host.js";
import { bundle, hostSite, launch, Site, scripted } from "./serve.js";

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

let browser: Browser;
let context: BrowserContext;
let page: Page;
let host: Site;
let plugins: Site;
let strangers: Site;
let app: string;
let failures: string[];

beforeAll(async () => {
  [host, plugins, strangers] = [await hostSite(), await new Site().open(), await new Site().open()];
  const [author, published, appScript, evil, climber] = await Promise.all([
    // In the format with the least time between the SDK's start and the first render.
    bundle(at("../../plugin-sdk/test/author/page.tsx"), "iife"),
    bundle(at("pages/published.tsx")),
    bundle(at("pages/app.ts")),
    readFile(at("pages/evil.html"), "utf8"),
    readFile(at("pages/climber.html"), "utf8"),
  ]);
  app = appScript;
  const policy = `default-src 'none'; script-src 'self'; style-src 'self'; frame-src 'self' ${plugins.origin}`;
  host.pages.set("/strict", { body: host.pages.get("/")?.body ?? "", headers: { "content-security-policy": policy } });
  host.pages.set("/sandbox.html", { body: sandboxPage, headers: sandboxPageHeaders as Record<string, string> });
  plugins.pages.set("/author", { body: scripted(author, "", "text/javascript") });
  plugins.pages.set("/published", { body: scripted(published) });
  plugins.pages.set("/redirected", { body: "", status: 302, headers: { location: `${strangers.origin}/evil` } });
  plugins.pages.set("/data", { body: "{}", headers: { "access-control-allow-origin": "*" } });
  strangers.pages.set("/data", { body: "{}", headers: { "access-control-allow-origin": "*" } });
  strangers.pages.set("/evil", { body: evil });
  plugins.pages.set("/nested", { body: `<iframe src="${strangers.origin}/evil"></iframe>` });
  for (const site of [host, plugins]) site.pages.set("/climber", { body: climber });
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  await Promise.all([host, plugins, strangers].map((site) => site?.close()));
});

beforeEach(async () => {
  context = await browser.newContext();
  context.setDefaultTimeout(10_000);
  page = await context.newPage();
  failures = [];
  page.on("pageerror", (error) => failures.push(error.message));
  await page.goto(host.origin);
});

afterEach(async () => {
  await context.close();
  expect(failures).toEqual([]);
});

const SETTINGS = {
  type: "object",
  properties: { apiKey: { type: "string", format: "password" }, theme: { type: "string" } },
};
const manifest = (url: string): Wanted["manifest"] => ({
  identifier: "weather",
  type: "standalone",
  ui: { url, height: 400 },
  settings: SETTINGS,
});

const show = (wanted: Wanted) => page.evaluate((options) => window.host.showPlugin(options), wanted);
const calls = () => page.evaluate(() => window.host.calls);
const problems = () => page.evaluate(() => window.host.problems);
const state = () => page.evaluate(() => window.host.view?.status.state);
const inPlugin = (selector: string) => page.frameLocator("iframe").locator(selector);
const text = (selector: string) => inPlugin(selector).textContent();

/** Returns the frame with this address, once it exists. */
async function frameAt(path: string): Promise<Frame> {
  const found = () => page.frames().find((frame) => new URL(frame.url(), "http://none").pathname === path);
  await expect.poll(found).toBeDefined();
  return found() as Frame;
}

describe.each(["/", "/strict"])("a page in the words of its hosts' documentation, in a host at %s", (place) => {
  test("does everything it can", async () => {
    await page.goto(host.origin + place);
    await show({ manifest: manifest(`${plugins.origin}/author`), settings: { theme: "light", apiKey: "k-1" } });
    await expect.poll(() => text("#title")).toBe("From the server");
    await expect.poll(() => text("#message")).toBe('{"title":"From the server"}');
    await expect.poll(() => text("#payload")).toBe("forecast Oslo");
    await expect.poll(() => text("#theme")).toBe("light without a key");
    expect(await state()).toBe("ready");
    await inPlugin("#increment").click();
    await inPlugin("#theme").click();
    await inPlugin("#ask").click();
    await expect.poll(() => text("#title")).toBe("User completed the form");
    await inPlugin("#send").click();
    await inPlugin("#read").click();
    await expect.poll(() => text("#everything")).toBe("forecast User completed the form dark 0 1");
    expect((await calls()).filter(([name]) => name !== "secrets")).toEqual([
      ["settings", { theme: "dark" }],
      ["message", { title: "User completed the form", data: { name: "Alice", age: 25 } }],
      ["trigger", "m-1"],
      ["assistant", "Based on my analysis, here are the results..."],
      ["settings", { theme: "blue" }],
    ]);
  });
});

test("state survives a reload of the page", async () => {
  const open = async () => {
    await show({ manifest: manifest(`${plugins.origin}/author`) });
    await expect.poll(() => text("#payload")).toBe("forecast Oslo");
  };
  await open();
  await inPlugin("#increment").click();
  await inPlugin("#increment").click();
  await expect.poll(() => text("#count")).toBe("2");
  await page.reload();
  await open();
  await expect.poll(() => text("#count")).toBe("2");
});

test("a granted secret reaches the page", async () => {
  await show({
    manifest: manifest(`${plugins.origin}/author`),
    settings: { theme: "light", apiKey: "k-1" },
    grant: true,
  });
  await expect.poll(() => text("#theme")).toBe("light with a key");
});

test("a page made with the published SDK works as well", async () => {
  await show({ manifest: manifest(`${plugins.origin}/published`), settings: { theme: "blue" } });
  await expect.poll(() => text("#title")).toBe("From the server");
  await expect.poll(() => text("#payload")).toBe("forecast Oslo");
  await expect.poll(() => text("#theme")).toBe("blue");
  await inPlugin("#count").click();
  await inPlugin("#theme").click();
  await inPlugin("#finish").click();
  await inPlugin("#read").click();
  await expect.poll(() => text("#everything")).toBe('[{"title":"Done"},{"theme":"dark"},6]');
  expect(await calls()).toEqual([
    ["settings", { theme: "dark" }],
    ["message", { title: "Done" }],
    ["trigger", "m-1"],
    ["assistant", "Hello"],
  ]);
});

describe("nobody else gets anything", () => {
  /** Lets the foreign page send its messages, and waits until the host could have answered all of them. */
  async function expectNothing(frame: Frame): Promise<void> {
    await frame.waitForFunction("window.asked");
    // The test's own message round trip ends after all effects of the foreign page's messages.
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 0)));
    await frame.evaluate(
      "new Promise((resolve) => { const own = new MessageChannel(); own.port1.onmessage = resolve; own.port2.postMessage(0); })",
    );
    expect(await frame.evaluate("window.got")).toEqual([]);
    expect(await calls()).toEqual([]);
  }

  test("a frame that the host did not make", async () => {
    await show({ manifest: manifest(`${plugins.origin}/author`) });
    await expect.poll(() => text("#payload")).toBe("forecast Oslo");
    await page.evaluate((address) => {
      document.body.append(Object.assign(document.createElement("iframe"), { src: address }));
    }, `${strangers.origin}/evil`);
    await expectNothing(await frameAt("/evil"));
  });

  test("a frame inside a plugin's page", async () => {
    await show({ manifest: manifest(`${plugins.origin}/nested`) });
    await expectNothing(await frameAt("/evil"));
  });

  test("the page that a plugin's address redirects to", async () => {
    await show({ manifest: manifest(`${plugins.origin}/redirected`) });
    await expectNothing(await frameAt("/evil"));
    expect(await state()).toBe("loading");
    expect((await problems()).length).toBeGreaterThan(0);
  });

  test("the page that a plugin's page goes to", async () => {
    await show({ manifest: manifest(`${plugins.origin}/author`) });
    await expect.poll(() => text("#payload")).toBe("forecast Oslo");
    await (await frameAt("/author")).evaluate((address) => {
      location.href = address;
    }, `${strangers.origin}/evil`);
    await expectNothing(await frameAt("/evil"));
  });
});

/** Returns the results of a page that tries to escape from its frame. */
async function climbed(): Promise<Record<string, string>> {
  const frame = await frameAt("/climber");
  await frame.waitForFunction("window.heard");
  const results = (await frame.evaluate("window.results")) as Record<string, string>;
  await inPlugin("#top").click();
  expect(new URL(page.url()).pathname).toBe("/");
  expect(await page.title()).toBe("host");
  return results;
}

test("a plugin's page cannot reach the page around it, or send it elsewhere", async () => {
  await show({ manifest: manifest(`${plugins.origin}/climber`) });
  const results = await climbed();
  expect(results).toEqual({
    document: "refused: SecurityError",
    "frame element": "refused: TypeError",
    storage: "refused: SecurityError",
    "own storage": "done: 0",
    location: "refused: SecurityError",
    "parent's location": "refused: SecurityError",
    open: expect.stringMatching(/refused|done: null/),
  });
});

test("nor can one of the host's own origin, which has none in its frame", async () => {
  await show({ manifest: manifest(`${host.origin}/climber`) });
  const results = await climbed();
  for (const way of ["document", "storage", "own storage", "location", "parent's location"])
    expect(results[way]).toMatch(/^refused/);
  await (await frameAt("/climber")).evaluate((address) => {
    location.href = address;
  }, `${strangers.origin}/evil`);
  await expect.poll(state).toBe("error");
  expect(await page.locator("iframe").count()).toBe(0);
});

describe.each([
  ["made from text", "/", undefined],
  ["served to a host with a strict policy", "/strict", "/sandbox.html"],
])("an MCP App, its sandbox %s", (_, place, sandboxUrl) => {
  test("speaks with its host, and reaches only what it declared", async () => {
    await page.goto(host.origin + place);
    const html = scripted(app, ` data-elsewhere="${strangers.origin}/data" data-allowed="${plugins.origin}/data"`);
    const meta = { csp: { connectDomains: [plugins.origin] } };
    await page.evaluate(
      ([body, ui, address]) => window.host.showApp(body as string, ui as object, address as string | undefined),
      [html, meta, sandboxUrl] as const,
    );
    const inApp = (id: string) => page.frameLocator("iframe").frameLocator("iframe").locator(`#${id}`).textContent();
    await expect.poll(() => inApp("finished"), { timeout: 20_000 }).toBe("yes");
    expect(await inApp("input")).toBe('{"city":"Oslo"}');
    expect(await inApp("result")).toBe('[{"type":"text","text":"7 degrees"}]');
    expect(await inApp("theme")).toBe("dark");
    expect(await inApp("called")).toBe('[{"type":"text","text":"called forecast"}]');
    expect(await calls()).toEqual([["tool", { name: "forecast", args: { city: "Bergen" } }]]);
    for (const way of ["foreign", "host", "parent", "storage", "undeclared"])
      expect(await inApp(way), way).toMatch(/^refused/);
    expect(await inApp("declared")).toBe("done");
    expect(await page.evaluate(() => window.host.app?.status.state)).toBe("ready");
  });

  test("cannot carry anything away by going elsewhere", async () => {
    await page.goto(host.origin + place);
    const html = scripted(`location.href = "${strangers.origin}/evil?stolen"`);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    const refused = page.waitForEvent("console", (message) => message.text().includes("Content Security Policy"));
    await page.evaluate(([body, address]) => window.host.showApp(body as string, {}, address as string | undefined), [
      html,
      sandboxUrl,
    ] as const);
    await refused;
    expect(asked.filter((address) => address.includes("stolen"))).toEqual([]);
  });
});
