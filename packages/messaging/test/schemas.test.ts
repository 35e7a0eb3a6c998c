// Methods are described by Zod 3, Zod 4, JSON Schema or nothing, and behave the same. Zod 3 is a package of its own, or
// the part of Zod 4 that is named so.
import { expect, test } from "vitest";
import { z } from "zod";
import { z as z3 } from "zod/v3";
import { z as old } from "zod-3";
import type { AnySchema } from "../src/index.js";
import { join, serve } from "./support.js";

const KINDS: Record<string, { parameters: AnySchema; returns: AnySchema }> = {
  "Zod 4": {
    parameters: z.object({ name: z.string().describe("Who"), times: z.number().default(2) }),
    returns: z.string(),
  },
  "Zod 3": {
    parameters: z3.object({ name: z3.string().describe("Who"), times: z3.number().default(2) }),
    returns: z3.string(),
  },
  "the package zod 3": {
    parameters: old.object({ name: old.string().describe("Who"), times: old.number().default(2) }),
    returns: old.string(),
  },
  "JSON Schema": {
    parameters: {
      type: "object",
      properties: { name: { type: "string", description: "Who" }, times: { type: "number", default: 2 } },
      required: ["name"],
    },
    returns: { type: "string" },
  },
};

test.each(Object.entries(KINDS))("%s", async (_, { parameters, returns }) => {
  const server = await serve();
  const execute = ({ name, times }: { name: string; times: number }) => (times > 9 ? times : name.repeat(times));
  await join(server, "worker", { methods: { repeat: { parameters, returns, execute } } });
  const ann = await join(server, "ann");
  const [found] = ann.discoverMethodDefs();
  expect(found?.parameters).toMatchObject({
    type: "object",
    properties: { name: { type: "string", description: "Who" }, times: { type: "number", default: 2 } },
    required: ["name"],
  });
  expect(found?.parameters).not.toHaveProperty("$schema");
  expect(found?.returns).toEqual({ type: "string" });
  const call = (args: unknown) => ann.callMethod("worker", "repeat", args).result;
  expect((await call({ name: "ha" })).content).toBe("haha");
  await expect(call({ name: 7 })).rejects.toMatchObject({
    code: "validation-error",
    message: expect.stringContaining("name"),
  });
  await expect(call({ name: "ha", times: 10 }), "a wrong result").rejects.toMatchObject({ code: "validation-error" });
});

test("arguments are checked before they are sent by a schema of either version", async () => {
  const server = await serve();
  await join(server, "worker", { methods: { any: { execute: (args: unknown) => args } } });
  const ann = await join(server, "ann");
  const schemas = [z.object({ n: z.number() }), z3.object({ n: z3.number() }), old.object({ n: old.number() })];
  for (const validateArgs of schemas) {
    const call = ann.callMethod("worker", "any", { n: "x" }, { validateArgs });
    await expect(call.result).rejects.toMatchObject({ code: "validation-error" });
  }
  expect((await ann.callMethod("worker", "any", { n: "x" }).result).content, "no parameters").toEqual({ n: "x" });
  expect((await ann.callMethod("worker", "any").result).content).toEqual({});
});

test("an invalid schema is refused, and the error names the method", async () => {
  const server = await serve();
  const execute = () => 1;
  for (const wrong of [
    { parameters: { name: z.string() }, execute },
    { parameters: "string", execute },
    { parameters: null, execute },
    { parameters: [], execute },
    { parameters: { type: 7 }, execute },
    { parameters: new Map(), execute },
    { returns: () => true, execute },
    { returns: null, execute },
    { returns: false, execute },
    { parameters: {} },
    null,
  ]) {
    const methods = { greet: wrong } as unknown as Record<string, { execute: () => number }>;
    await expect(join(server, "worker", { methods }), JSON.stringify(wrong)).rejects.toMatchObject({
      name: "ValidationError",
      message: expect.stringContaining('"greet"'),
    });
  }
});
