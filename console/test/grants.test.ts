import { beforeEach, expect, test } from "vitest";
import { decide, findGrant, grants, takeBack } from "../src/data/grants";
import type { Plugin } from "../src/data/plugins";
import { enter, leave } from "../src/lib/session";

const plugin: Plugin = {
  identifier: "vault",
  meta: {},
  type: "standalone",
  enabled: true,
  ui: { url: "https://vault.example/page" },
  api: [{ name: "open", parameters: {} }],
  settings: { properties: { key: { format: "password" } } },
};
const ORIGIN = "https://vault.example";
const found = (changes: Partial<Plugin> = {}, origin = ORIGIN) =>
  findGrant(grants.get(), { ...plugin, ...changes }, origin)?.values;

beforeEach(() => {
  leave();
  enter({ token: "t", expires_ms: Date.now() + 1_000 });
});

test("a grant is for one plugin, one origin and one manifest", () => {
  decide(plugin, ORIGIN, ["key"], { key: "k" });
  expect(found()).toEqual({ key: "k" });
  expect(found({ enabled: false, fetched_ms: 7 }), "what is no part of the manifest").toEqual({ key: "k" });
  expect(found({}, "https://other.example")).toBeUndefined();
  expect(found({ identifier: "other" })).toBeUndefined();
  expect(found({ settings: { properties: {} } })).toBeUndefined();
  expect(found({ ui: { url: "https://vault.example/other" } })).toBeUndefined();
  expect(found({ api: [{ name: "send", parameters: {} }] })).toBeUndefined();
});

test("the last decision counts, a no as well", () => {
  decide(plugin, ORIGIN, ["key"], { key: "k" });
  decide(plugin, ORIGIN, ["key"]);
  expect(grants.get()).toHaveLength(1);
  expect(findGrant(grants.get(), plugin, ORIGIN)).toMatchObject({ fields: ["key"] });
  expect(found()).toBeUndefined();
});

test("it ends when it is taken back and at sign-out, in the storage too", () => {
  decide(plugin, ORIGIN, ["key"], { key: "canary" });
  expect(JSON.stringify({ ...sessionStorage })).toContain("canary");
  const [grant] = grants.get();
  if (grant) takeBack(grant);
  expect(grants.get()).toEqual([]);
  decide(plugin, ORIGIN, ["key"], { key: "canary" });
  leave("You are signed out.");
  expect(grants.get()).toEqual([]);
  expect(JSON.stringify({ ...sessionStorage })).not.toContain("canary");
});
