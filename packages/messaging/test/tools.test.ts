// Methods as tools for a model: names that are valid everywhere, all methods present, attachments kept.
import { expect, test } from "vitest";
import { z } from "zod";
import { createToolsForAgentSDK, type DiscoveredMethod } from "../src/index.js";
import { join, serve } from "./support.js";

const method = (providerId: string, name: string): DiscoveredMethod => ({
  ...{ providerId, name, providerName: providerId, parameters: { type: "object" }, streaming: false },
});

function names(...methods: DiscoveredMethod[]): string[] {
  const client = {
    discoverMethodDefs: () => methods,
    callMethod: () => {
      throw new Error("not called");
    },
  };
  return createToolsForAgentSDK(client).definitions.map(({ name }) => name);
}

test("names are plain where they can be", () => {
  expect(names(method("worker", "search"))).toEqual(["pubsub_worker_search"]);
});

test("two methods never share a name, however they are listed", () => {
  const pair = [method("a_b", "c"), method("a", "b_c"), method("a.b", "c")];
  const found = names(...pair);
  expect(new Set(found).size).toBe(3);
  expect(names(...[...pair].reverse())).toEqual([...found].reverse());
});

test("long and strange names are cut to 64 characters that every model takes", () => {
  const long = "x".repeat(100);
  const found = names(method("web:page/7", "öffnen"), method(long, "one"), method(long, "two"));
  expect(new Set(found).size).toBe(3);
  for (const name of found) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
});

test("tools are executed by their names", async () => {
  const server = await serve();
  await join(server, "worker", {
    methods: {
      greet: {
        description: "Say hello",
        parameters: z.object({ name: z.string() }),
        execute: async ({ name }) => `Hello, ${name}!`,
      },
      draw: {
        parameters: z.object({}),
        execute: (_, context) =>
          context.resultWithAttachments({ width: 1 }, [{ id: "i", data: new Uint8Array([7]), mimeType: "image/png" }]),
      },
      wait: { parameters: z.object({}), execute: () => new Promise(() => {}) },
    },
  });
  const ann = await join(server, "ann");
  const { definitions, execute } = createToolsForAgentSDK(ann, {
    namePrefix: "t",
    filter: ({ name }) => name !== "hidden",
  });
  expect(definitions[0]).toMatchObject({
    ...{ name: "t_worker_greet", description: "[worker] Say hello", providerId: "worker", originalMethodName: "greet" },
    parameters: { type: "object", required: ["name"] },
  });
  expect(definitions[1]?.description, "without one of its own").toBe("[worker] draw");
  expect(await execute("t_worker_greet", { name: "Ann" })).toBe("Hello, Ann!");
  const drawn = (await execute("t_worker_draw", {})) as { content: unknown; attachments: { data: Uint8Array }[] };
  expect(drawn.content).toEqual({ width: 1 });
  expect(drawn.attachments[0]?.data).toEqual(new Uint8Array([7]));
  await expect(execute("t_nobody_greet", {})).rejects.toMatchObject({ code: "method-not-found" });
  const abort = new AbortController();
  const waiting = execute("t_worker_wait", {}, abort.signal);
  abort.abort();
  await expect(waiting).rejects.toMatchObject({ code: "cancelled" });
});
