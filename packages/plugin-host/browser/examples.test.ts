// The example plugins answer as their manifests declare, and the host shows them.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { pluginManifestSchema } from "../../plugin-sdk/src/schema.js";
import type { Wanted } from "./pages/host.js";
import { hostSite, launch, type Site } from "./serve.js";

let browser: Browser;
let page: Page;
let host: Site;
let server: ChildProcess | undefined;

beforeAll(async () => {
  [browser, host] = await Promise.all([launch(), hostSite()]);
});

afterAll(async () => {
  await browser?.close();
  await host?.close();
});

beforeEach(async () => {
  page = await browser.newPage({ viewport: { width: 600, height: 520 } });
  page.setDefaultTimeout(10_000);
  await page.goto(host.origin);
});

afterEach(async () => {
  await page.context().close();
  if (server?.exitCode === null) {
    server.kill();
    await once(server, "exit");
  }
});

/** Starts an example on a free port, and reads its manifest as the gateway does. */
async function start(name: string) {
  const script = fileURLToPath(new URL(`../../../examples/${name}/server.mjs`, import.meta.url));
  server = spawn(process.execPath, [script, "0"], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = (await once(createInterface(server.stdout as NodeJS.ReadableStream), "line")) as [string];
  const origin = line.replace("listening on ", "");
  const manifest = pluginManifestSchema.parse(await (await fetch(`${origin}/manifest.json`)).json());
  const call = (args: unknown, headers: Record<string, string> = {}) =>
    fetch(manifest.api?.[0]?.url ?? "", { method: "POST", headers, body: JSON.stringify(args) });
  return { manifest: manifest as unknown as Wanted["manifest"], call };
}

const show = (wanted: Wanted) => page.evaluate((options) => window.host.showPlugin(options), wanted);
const inPlugin = (selector: string) => page.frameLocator("iframe").locator(selector);
/** For visual checks: `SCREENSHOTS=DIRECTORY`. */
const picture = async (name: string) => {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png` });
};

test("sun-times: JSON with a page", async () => {
  const { manifest, call } = await start("sun-times");
  const oslo = { latitude: 59.91, longitude: 10.75, place: "Oslo", date: "2026-06-21", timeZone: "Europe/Oslo" };
  const answer = await call(oslo);
  expect(answer.headers.get("content-type")).toContain("application/json");
  const content = await answer.text();
  expect(JSON.parse(content)).toMatchObject({ sunrise: "03:54", sunset: "22:44" });
  const settings = { "x-sperax-plugin-settings": '{"hour12":true}' };
  expect(await (await call(oslo, settings)).json()).toMatchObject({ sunset: "10:44 PM" });
  expect(await (await call({ ...oslo, latitude: 89 })).json()).toMatchObject({ sunrise: null, daylightMinutes: 1440 });
  for (const wrong of [{}, { ...oslo, latitude: 91 }, { ...oslo, date: "soon" }, { ...oslo, timeZone: "Mars" }, []]) {
    const refused = await call(wrong);
    expect([refused.status, await refused.json()]).toMatchObject([422, { errorType: "PluginApiParamsError" }]);
  }
  await show({ manifest, content });
  await expect.poll(() => inPlugin("#sunset").textContent()).toBe("22:44");
  expect(await inPlugin("#place").textContent()).toBe("Oslo");
  await picture("sun-times");
});

test("world-clock: Markdown", async () => {
  const { manifest, call } = await start("world-clock");
  const answer = await call({ timeZones: ["Europe/Oslo", "Asia/Tokyo"], instant: "2026-06-22T12:00:00Z" });
  const content = await answer.text();
  await show({ manifest, content });
  const cells = await page.locator(".switchboard-markdown td").allTextContents();
  expect(cells).toEqual(["Oslo", "14:00", "Monday", "💼 at work", "Tokyo", "21:00", "Monday", "☕ free"]);
  expect((await call({ timeZones: ["Nowhere/<b>"] })).status).toBe(422);
  await picture("world-clock");
});

test("checklist: a standalone page", async () => {
  const { manifest } = await start("checklist");
  const call = {
    apiName: "makeChecklist",
    arguments: '{"title":"Pack for Oslo","items":["Passport","Raincoat","Charger"]}',
  };
  const open = async () => {
    await show({ manifest, call, content: "", settings: { accent: "violet", syncToken: "s-1" } });
    await expect.poll(() => inPlugin("#title").textContent()).toBe("Pack for Oslo");
  };
  await open();
  await inPlugin("text=Raincoat").click();
  await expect.poll(() => inPlugin("#accent").inputValue()).toBe("violet");
  await inPlugin("#accent").selectOption("blue");
  await inPlugin("#finish").click();
  await inPlugin("#note").click();
  await expect
    .poll(() => page.evaluate(() => window.host.calls))
    .toEqual([
      ["secrets", expect.objectContaining({ fields: ["syncToken"] })],
      ["settings", { accent: "blue" }],
      ["message", { title: "Pack for Oslo", ticked: ["Raincoat"], open: ["Passport", "Charger"] }],
      ["trigger", "m-1"],
      ["assistant", "**Pack for Oslo**: 1 of 3 done."],
    ]);
  await picture("checklist");
  await page.reload();
  await open();
  expect(await inPlugin("input:checked + span").allTextContents()).toEqual(["Raincoat"]);
});
