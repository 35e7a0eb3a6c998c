// A Zod schema accepts exactly the values that the JSON Schema accepts.
import { expect, test } from "vitest";
import { z } from "zod";
import { jsonSchemaToZod, jsonSchemaToZodRawShape } from "../src/index.js";

const check = (schema: Record<string, unknown>, good: unknown[], bad: unknown[]) => {
  const zod = jsonSchemaToZod(schema);
  for (const value of good) expect(zod.safeParse(value).success, `${JSON.stringify(value)} is good`).toBe(true);
  for (const value of bad) expect(zod.safeParse(value).success, `${JSON.stringify(value)} is bad`).toBe(false);
};

test("values of each type", () => {
  check({ type: "string" }, ["", "x"], [1, null]);
  check({ type: "number" }, [1.5, -2], ["1", null]);
  check({ type: "integer" }, [3, 1e15], [1.5]);
  check({ type: "boolean" }, [true, false], [0]);
  check({ type: "null" }, [null], [0]);
  check({ type: ["string", "null"] }, ["x", null], [1]);
  check({ type: "string", nullable: true }, ["x", null], [1]);
  check({ enum: ["a", 1, null, { b: 1, c: 2 }] }, ["a", 1, null, { c: 2, b: 1 }], ["b", {}]);
  check({ const: { a: [1] } }, [{ a: [1] }], [{ a: [2] }]);
  check({}, [1, "x", null, {}], []);
  expect(jsonSchemaToZod(true).safeParse(1).success).toBe(true);
  expect(jsonSchemaToZod(false).safeParse(1).success).toBe(false);
});

test("schemas of others that go round in circles, lead nowhere, or ask for too much", () => {
  const circles = [
    { $ref: "#" },
    { allOf: [{ $ref: "#" }] },
    { anyOf: [{ $ref: "#" }, { type: "string" }] },
    { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } },
  ];
  for (const schema of [...circles, { $ref: "#/%" }, { $ref: "#/constructor/name" }]) check(schema, ["x"], []);
  // Each schema doubles the checks of the one before.
  const doubled = (n: number) => ({ allOf: [{ $ref: `#/$defs/d${n + 1}` }, { $ref: `#/$defs/d${n + 1}` }] });
  const $defs = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`d${n}`, doubled(n)]));
  check({ $ref: "#/$defs/d0", $defs }, ["x"], []);
  // A schema that contains itself for a part of the value goes as deep as the value.
  const tree = { type: "object", properties: { left: { $ref: "#" }, name: { type: "string" } } };
  check(tree, [{ left: { left: { name: "x" } } }], [{ left: { left: { name: 1 } } }]);
});

test("limits", () => {
  check({ type: "string", minLength: 2, maxLength: 3 }, ["ab", "🙂🙂🙂"], ["a", "abcd"]);
  check({ type: "string", pattern: "^a+$" }, ["aa"], ["b"]);
  check({ type: "string", pattern: "(" }, ["anything"], []);
  check({ type: "string", format: "email" }, ["a@b.co"], ["a"]);
  check({ type: "number", minimum: 1, exclusiveMaximum: 3, multipleOf: 0.1 }, [1, 2.3], [0.9, 3, 1.25]);
  check(
    { type: "array", items: { type: "number" }, minItems: 1, maxItems: 2, uniqueItems: true },
    [[1]],
    [[], [1, 1], ["x"], [1, 2, 3]],
  );
  check({ type: "array", prefixItems: [{ type: "string" }], items: false }, [["x"], []], [["x", 1], [1]]);
});

test("objects", () => {
  const schema = { type: "object", properties: { a: { type: "string" }, b: { type: "number" } }, required: ["a"] };
  check(schema, [{ a: "x" }, { a: "x", b: 1, c: true }], [{}, { a: 1 }, { a: "x", b: null }, []]);
  check({ ...schema, additionalProperties: false }, [{ a: "x" }], [{ a: "x", c: 1 }]);
  check({ ...schema, additionalProperties: { type: "boolean" } }, [{ a: "x", c: true }], [{ a: "x", c: 1 }]);
  check({ properties: { a: { type: "string" } }, required: ["z"] }, [{ z: 1 }], [{ a: "x" }, { a: 1, z: 1 }]);
  expect(jsonSchemaToZod(schema).parse({ a: "x", c: 1 })).toEqual({ a: "x", c: 1 });
});

test("defaults are filled in, descriptions kept", () => {
  const shape = jsonSchemaToZodRawShape({
    type: "object",
    properties: { n: { type: "integer", default: 100, description: "How many" }, s: { type: "string" } },
  });
  expect(z.object(shape).parse({})).toEqual({ n: 100 });
  expect(jsonSchemaToZod({ type: "string", description: "A name" }).description).toBe("A name");
  expect(jsonSchemaToZodRawShape({ type: "string" })).toEqual({});
});

test("combinations and references", () => {
  check({ anyOf: [{ type: "string" }, { type: "number", minimum: 5 }] }, ["x", 6], [1, null]);
  check(
    { allOf: [{ properties: { a: { type: "string" } }, required: ["a"] }, { properties: { b: { type: "number" } } }] },
    [{ a: "x", b: 1 }],
    [{ b: 1 }, { a: "x", b: "y" }],
  );
  const tree = {
    $ref: "#/$defs/node",
    $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" } }, additionalProperties: false } },
  };
  check(tree, [{}, { next: { next: {} } }], [{ next: { other: 1 } }]);
  expect(Object.keys(jsonSchemaToZodRawShape(tree))).toEqual(["next"]);
  check({ $ref: "https://elsewhere.example/schema" }, [1], []);
  check({ type: "unheard-of" }, [1], []);
});

test("there and back again", () => {
  const zod = z.object({
    pattern: z.string().min(1),
    limit: z.number().int().default(3),
    tags: z.array(z.enum(["a", "b"])).optional(),
  });
  const back = jsonSchemaToZod(z.toJSONSchema(zod, { io: "input" }));
  expect(back.parse({ pattern: "x" })).toEqual({ pattern: "x", limit: 3 });
  expect(back.safeParse({ pattern: "x", tags: ["c"] }).success).toBe(false);
});
