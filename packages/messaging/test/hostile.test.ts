// Names and messages of other participants are data: they never reach prototypes or other participants' state.
import { expect, test, vi } from "vitest";
import { z } from "zod";
import type { IncomingMethodCall } from "../src/index.js";
import { readMethods } from "../src/methods.js";
import { Provider } from "../src/provider.js";
import { Roster } from "../src/roster.js";
import { decodeFrame } from "../src/wire.js";
import { join, serve, take } from "./support.js";

const raise = (error: Error) => {
  throw error;
};

const NAMES = ["__proto__", "constructor", "toString", "hasOwnProperty"];

test("nobody is found by what objects inherit", async () => {
  const server = await serve();
  const client = await join(server, "ann");
  for (const name of NAMES) {
    expect(client.roster[name]).toBeUndefined();
    expect(client.discoverMethodDefsFrom(name)).toEqual([]);
    await expect(client.callMethod(name, "x").result).rejects.toMatchObject({ code: "provider-not-found" });
  }
});

test("participants of such names are in the roster, and called", async () => {
  const server = await serve();
  const provider = await join(server, "__proto__", {
    methods: { greet: { parameters: z.object({}), execute: () => "hello" } },
  });
  const client = await join(server, "ann");
  expect(Object.keys(client.roster).sort()).toEqual(["__proto__", "ann"]);
  expect((await client.callMethod("__proto__", "greet", {}).result).content).toBe("hello");
  await expect(client.callMethod("__proto__", "toString").result).rejects.toMatchObject({ code: "method-not-found" });
  await provider.close();
  expect(({} as { metadata?: unknown }).metadata).toBeUndefined();
});

test("a roster in one piece has everybody, whatever they are called and say", () => {
  const json = '{"kind":"ready","roster":{"__proto__":{"metadata":{"name":"P"}},"bad":7,"ann":{"metadata":{"a":1}}}}';
  const frame = decodeFrame(json);
  if (frame?.kind !== "ready") throw new Error("no ready");
  const roster = new Roster(() => {});
  roster.ready(frame.roster);
  expect(Object.entries(roster.participants).map(([id, { metadata }]) => [id, metadata])).toEqual([
    ["__proto__", { name: "P" }],
    ["bad", {}],
    ["ann", { a: 1 }],
  ]);
});

test("payloads change no prototype", async () => {
  const server = await serve();
  const seen: unknown[] = [];
  const provider = await join(server, "worker", {
    methods: {
      look: {
        parameters: z.looseObject({}),
        execute: (args) => {
          seen.push((args as { polluted?: unknown }).polluted);
          return args;
        },
      },
    },
  });
  const events = provider.events();
  const hostile = JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}');
  server.say("eve", "method-call", { callId: "c1", methodName: "look", providerId: "worker", args: hostile });
  server.say("eve", "message", { id: "m1", content: "x", metadata: hostile, ...hostile });
  server.say("eve", "presence", { action: "join", metadata: hostile });
  const [message] = await take(events, "message");
  expect(message?.content).toBe("x");
  await take(events, "method-result");
  expect(seen).toEqual([undefined]);
  expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  expect(provider.roster.eve?.metadata).not.toHaveProperty("polluted");
});

const call = (callId: string): IncomingMethodCall => ({
  ...{ type: "method-call", kind: "persisted", senderId: "ann", ts: 1, args: {} },
  ...{ callId, methodName: "stuck", providerId: "me" },
});

test("a method that never returns is answered for once its call was cancelled", async () => {
  vi.useFakeTimers();
  try {
    const sent: unknown[] = [];
    const stuck = { parameters: z.object({}), execute: () => new Promise(() => {}) };
    const provider = new Provider(readMethods({ stuck }), async (payload) => sent.push(payload), raise);
    provider.call(call("c1"));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(sent).toEqual([]);
    provider.cancel("c1", "eve");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(sent).toEqual([]);
    provider.cancel("c1", "ann");
    provider.cancel("c1", "ann");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(sent).toMatchObject([{ callId: "c1", content: { code: "cancelled" }, complete: true, isError: true }]);
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

test("no more methods run at once than there is room for", async () => {
  const sent: { callId: string; content?: unknown }[] = [];
  const stuck = { parameters: z.object({}), execute: () => new Promise(() => {}) };
  const provider = new Provider(readMethods({ stuck }), async (payload) => sent.push(payload), raise);
  for (let n = 0; n <= 1000; n += 1) provider.call(call(`c${n}`));
  await vi.waitFor(() => expect(sent).toHaveLength(1));
  expect(sent).toMatchObject([{ callId: "c1000", content: { code: "execution-error" } }]);
  provider.close();
});
