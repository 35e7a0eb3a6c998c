// Settings that the schema marks as secret reach a page, or are changed by it, only with the user's grant.

import { afterEach, describe, expect, test, vi } from "vitest";
import type { PluginViewOptions, SecretsAnswer, SecretsRequest } from "../src/index.js";
import { mergeSettings, secretPaths, splitSecrets, withSecrets } from "../src/secrets.js";
import { Hosted, PAGE } from "./hosted.js";

const SCHEMA = {
  type: "object",
  properties: {
    apiKey: { type: "string", format: "password" },
    endpoint: { type: "string" },
    account: {
      type: "object",
      properties: { name: { type: "string" }, token: { type: "string", format: "password" } },
    },
  },
};

let hosted: Hosted | undefined;
let settings: Record<string, unknown>;

afterEach(() => hosted?.view.destroy());

type Ask = (request: SecretsRequest) => SecretsAnswer | Promise<SecretsAnswer>;

function open(requestSecrets?: Ask, more: Partial<PluginViewOptions> = {}): Hosted {
  settings = { apiKey: "k-1", endpoint: "e", account: { name: "Ann", token: "t-1" } };
  hosted = new Hosted({
    manifest: { identifier: "weather", type: "standalone", ui: { url: PAGE }, settings: SCHEMA },
    settings: {
      read: () => settings,
      write: (changes) => {
        settings = { ...settings, ...changes };
      },
    },
    ...(requestSecrets ? { requestSecrets } : {}),
    ...more,
  });
  return hosted;
}

const FETCH = { type: "speraxos:fetch-plugin-settings" };
const OPEN = { endpoint: "e", account: { name: "Ann" } };
const everything = (page: Hosted) => JSON.stringify(page.answers);

test.each([
  ["nobody is asked", undefined],
  ["the user says no", () => false],
  ["the answer is not a yes", () => "true" as unknown as boolean],
  ["asking fails", () => Promise.reject(new Error("closed"))],
  ["the user does not answer", () => new Promise<boolean>(() => undefined)],
])("they are withheld when %s", async (_, answer) => {
  const page = open(answer);
  expect((await page.ask(FETCH, "speraxos:render-plugin-settings")).value).toEqual(OPEN);
  const start = await page.ask({ type: "speraxos:plugin-ready-for-render" }, "speraxos:init-standalone-plugin");
  expect(start.settings).toEqual(OPEN);
  await page.settle();
  expect(everything(page)).not.toMatch(/k-1|t-1/);
});

test("with a yes the page is told again, and from then on", async () => {
  const ask = vi.fn((_: SecretsRequest) => true);
  const page = open(ask);
  expect((await page.ask(FETCH, "speraxos:render-plugin-settings")).value).toEqual(OPEN);
  await vi.waitFor(() =>
    expect(page.answers.at(-1)?.message).toEqual({ type: "speraxos:render-plugin-settings", value: settings }),
  );
  expect((await page.ask(FETCH, "speraxos:render-plugin-settings")).value).toEqual(settings);
  const request = {
    identifier: "weather",
    origin: "https://plugin.example",
    purpose: "read",
    fields: ["apiKey", "account.token"],
  };
  expect(ask.mock.calls).toEqual([[request]]);
});

test("a no is not asked again", async () => {
  const ask = vi.fn(() => false);
  const page = open(ask);
  for (let count = 0; count < 3; count += 1) await page.ask(FETCH, "speraxos:render-plugin-settings");
  expect(ask).toHaveBeenCalledTimes(1);
});

test.each([true, false])("changing one needs its own yes (%s)", async (yes) => {
  const ask = vi.fn(({ purpose }: SecretsRequest) => purpose === "write" && yes);
  const page = open(ask);
  page.say({
    type: "speraxos:update-plugin-settings",
    value: { apiKey: "k-2", endpoint: "f", account: { name: "Bob" } },
  });
  await page.settle();
  await vi.waitFor(() => expect(ask).toHaveBeenCalledTimes(1));
  await page.settle();
  expect(settings).toEqual({ apiKey: yes ? "k-2" : "k-1", endpoint: "f", account: { name: "Bob", token: "t-1" } });
  // Permission to write does not include permission to read.
  expect((await page.ask(FETCH, "speraxos:render-plugin-settings")).value).toEqual({
    endpoint: "f",
    account: { name: "Bob" },
  });
});

const GIVEN = { values: { apiKey: "typed", "account.name": "not secret", other: "unknown" } };
const SEEN = { apiKey: "typed", endpoint: "e", account: { name: "Ann" } };

test("a host that cannot read its secrets gives what the user typed, for the fields that are secret", async () => {
  const page = open(() => GIVEN);
  await page.ask(FETCH, "speraxos:render-plugin-settings");
  await vi.waitFor(() =>
    expect(page.answers.at(-1)?.message).toEqual({ type: "speraxos:render-plugin-settings", value: SEEN }),
  );
  expect(everything(page)).not.toMatch(/k-1|t-1|unknown|not secret/);
});

test("what was granted before is in the first answer, and for its own page alone", async () => {
  const granted = vi.fn((_: { identifier: string; origin: string }) => GIVEN);
  const ask = vi.fn(() => false);
  const page = open(ask, { grantedSecrets: granted });
  const start = await page.ask({ type: "speraxos:plugin-ready-for-render" }, "speraxos:init-standalone-plugin");
  expect(start.settings).toEqual(SEEN);
  expect((await page.ask(FETCH, "speraxos:render-plugin-settings")).value).toEqual(SEEN);
  expect(granted.mock.calls).toEqual([[{ identifier: "weather", origin: "https://plugin.example" }]]);
  expect(ask, "for the field that was not given").toHaveBeenCalledTimes(1);
});

test("a page that sends back what it was shown changes no secret, and nobody is asked", async () => {
  const ask = vi.fn(({ purpose }: SecretsRequest): SecretsAnswer => (purpose === "read" ? GIVEN : true));
  const page = open(ask);
  await page.ask(FETCH, "speraxos:render-plugin-settings");
  await vi.waitFor(() => expect(page.answers.at(-1)?.message.value).toEqual(SEEN));
  page.say({ type: "speraxos:update-plugin-settings", value: { ...SEEN, endpoint: "f" } });
  await page.settle();
  expect(settings).toEqual({ apiKey: "k-1", endpoint: "f", account: { name: "Ann", token: "t-1" } });
  expect(ask.mock.calls.map(([{ purpose }]) => purpose)).toEqual(["read"]);
  page.say({ type: "speraxos:update-plugin-settings", value: { ...SEEN, apiKey: "k-2" } });
  await vi.waitFor(() => expect(settings.apiKey).toBe("k-2"));
});

test("secrets are put in without following prototypes", () => {
  const paths = [
    ["__proto__", "a"],
    ["b", "c"],
  ];
  const made = withSecrets({ b: "not an object" }, paths, { "__proto__.a": 1, "b.c": 2 });
  expect(JSON.stringify(made)).toBe('{"b":{"c":2},"__proto__":{"a":1}}');
  expect(({} as Record<string, unknown>).a).toBeUndefined();
  expect(withSecrets({ a: 1 }, [[]], { b: 2 })).toEqual({ a: 1, b: 2 });
});

describe("secretPaths finds", () => {
  const secret = { type: "string", format: "password" };
  test.each([
    ["nothing in no schema", undefined, []],
    ["nothing in a schema of open settings", { properties: { a: { type: "string" } } }, []],
    ["what can only be written", { properties: { a: { writeOnly: true } } }, [["a"]]],
    ["what is nested", { properties: { a: { properties: { b: secret } } } }, [["a", "b"]]],
    ["what a reference leads to", { properties: { a: { $ref: "#/$defs/s" } }, $defs: { s: secret } }, [["a"]]],
    ["references that lead nowhere", { properties: { a: { $ref: "https://else.example/s" } } }, [["a"]]],
    ["what is in a branch", { anyOf: [{ properties: { a: secret } }] }, [["a"]]],
    ["lists of secrets, whole", { properties: { a: { items: secret } } }, [["a"]]],
    ["maps of secrets, whole", { properties: { a: { additionalProperties: secret } } }, [["a"]]],
    ["everything, where any member may be secret", { additionalProperties: secret }, [[]]],
  ])("%s", (_, schema, paths) => expect(secretPaths(schema)).toEqual(paths));

  test("everything, in a schema that never ends", () => {
    const endless: Record<string, unknown> = { allOf: Array.from({ length: 20 }, () => ({ $ref: "#/$defs/again" })) };
    const found = secretPaths({ ...endless, $defs: { again: endless } });
    expect(splitSecrets({ a: 1 }, found)).toMatchObject({ open: {}, secret: { a: 1 } });
  });
});

test("merging keeps what it does not name, and prototypes as they are", () => {
  expect(mergeSettings({ a: { b: 1, c: 2 }, d: [1] }, { a: { b: 3 }, d: [2] })).toEqual({ a: { b: 3, c: 2 }, d: [2] });
  mergeSettings({}, JSON.parse('{"__proto__":{"polluted":true}}') as Record<string, unknown>);
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});
