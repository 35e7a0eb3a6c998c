// The page shows any answer of the gateway, a model or a tool's schema, or reports that it cannot.
import fc from "fast-check";
import { expect, test } from "vitest";
import { Problem } from "../src/lib/api";
import { fieldOf } from "../src/lib/schema";

test("any failure becomes words", () => {
  const nearly = fc.record(
    { detail: fc.anything(), kind: fc.anything(), hint: fc.anything(), call_id: fc.anything() },
    { requiredKeys: [] },
  );
  const body = fc.oneof(
    fc.string(),
    fc.json(),
    nearly.map((value) => {
      try {
        return JSON.stringify(value);
      } catch {
        return "";
      }
    }),
  );
  fc.assert(
    fc.property(fc.integer({ min: 400, max: 599 }), body, (status, text) => {
      const { message, kind, hint, callId } = Problem.parse(status, text);
      expect([typeof message, typeof kind]).toEqual(["string", "string"]);
      for (const word of [hint, callId]) expect(["string", "undefined"]).toContain(typeof word);
    }),
    { numRuns: 500 },
  );
});

const KINDS = ["string", "integer", "object", "array", "boolean", "null"];

/** An almost valid schema; `below` stands for a nested one. */
const schemaOf = (below: fc.Arbitrary<unknown>) =>
  fc.record(
    {
      type: fc.oneof(fc.constantFrom(...KINDS), fc.anything({ maxDepth: 1 })),
      properties: fc.dictionary(fc.constantFrom("a", "b", "__proto__", "constructor"), below, { maxKeys: 3 }),
      items: below,
      required: fc.anything({ maxDepth: 1 }),
      enum: fc.anything({ maxDepth: 1 }),
      $ref: fc.constantFrom("#", "#/properties/a", "#/$defs/x", "#/__proto__", "http://x", 5),
      $defs: fc.dictionary(fc.constantFrom("x", "y"), below, { maxKeys: 2 }),
      anyOf: fc.array(below, { maxLength: 2 }),
      default: fc.anything({ maxDepth: 1 }),
    },
    { requiredKeys: [] },
  );

test("any schema becomes a form", () => {
  const leaf = fc.oneof(
    fc.anything({ maxDepth: 1 }),
    schemaOf(fc.constantFrom({ $ref: "#" }, { type: "string" }, true)),
  );
  fc.assert(
    fc.property(schemaOf(schemaOf(leaf)), (schema) => {
      expect(typeof fieldOf(schema).kind).toBe("string");
    }),
    { numRuns: 300 },
  );
});

test("a schema that refers to itself in many places makes a form that somebody can fill in", () => {
  const names = Array.from({ length: 50 }, (_, number) => `field${number}`);
  const properties = Object.fromEntries(names.map((name) => [name, { $ref: "#" }]));
  const text = JSON.stringify(fieldOf({ type: "object", properties }));
  expect(text.split('"kind"').length).toBeLessThan(100_000);
});
