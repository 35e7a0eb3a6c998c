// A form made from a JSON Schema: every schema becomes fields, and the input becomes the matching arguments.
import { describe, expect, test } from "vitest";
import { type Draft, draftOf, emptyDraft, fieldOf, type Json, misfit, typedValue } from "../src/lib/schema";

const form = (properties: object, required: string[] = [], more: object = {}) =>
  fieldOf({ type: "object", properties, required, ...more });

function check(properties: object, required: string[], draft: Draft, value: Json | undefined, ...mistakes: string[]) {
  const result = typedValue(form(properties, required), draft);
  expect(result.mistakes.map(({ path, message }) => `${path.join(".")} ${message}`)).toEqual(mistakes);
  if (mistakes.length === 0) expect(result.value).toEqual(value);
}

function kindOf(schema: unknown): string {
  const field = fieldOf({ type: "object", properties: { x: schema } });
  return field.kind === "object" ? (field.fields[0]?.field.kind ?? "none") : field.kind;
}

describe("which field", () => {
  test.each([
    [{ type: "string" }, "text"],
    [{ type: "integer" }, "number"],
    [{ type: "number" }, "number"],
    [{ type: "boolean" }, "switch"],
    [{ enum: ["a", 1, null] }, "choice"],
    [{ const: "a" }, "choice"],
    [{ type: "array", items: { type: "string" } }, "list"],
    [{ type: "object", properties: { a: {} } }, "object"],
    [{ type: ["string", "null"] }, "text"],
    [{ anyOf: [{ type: "integer" }, { type: "null" }] }, "number"],
    [{ type: ["string", "integer"] }, "json"],
    [{ oneOf: [{ type: "string" }, { type: "integer" }] }, "json"],
    [{ type: "array" }, "json"],
    [{ type: "array", prefixItems: [{}], items: {} }, "json"],
    [{ type: "object" }, "json"],
    [{}, "json"],
    [true, "json"],
    [{ $ref: "https://example.com/x" }, "json"],
    [{ $ref: "#/nowhere" }, "json"],
  ])("%j", (schema, kind) => expect(kindOf(schema)).toBe(kind));

  test("references inside the document are followed, those in a circle end", () => {
    const schema = {
      type: "object",
      properties: { a: { $ref: "#/$defs/a~1b" }, b: { $ref: "#/$defs/loop" } },
      $defs: { "a/b": { type: "integer" }, loop: { $ref: "#/$defs/loop" } },
    };
    const field = fieldOf(schema);
    expect(field.kind === "object" && field.fields.map(({ field: { kind } }) => kind)).toEqual(["number", "json"]);
    const tree = {
      $ref: "#/$defs/tree",
      $defs: { tree: { type: "object", properties: { child: { $ref: "#/$defs/tree" } } } },
    };
    expect(fieldOf(tree).kind).toBe("object");
  });

  test("a password is one", () => {
    const field = form({ key: { type: "string", format: "password" } });
    expect(field.kind === "object" && field.fields[0]?.field).toMatchObject({ kind: "text", secret: true });
  });

  test("the title of a shared definition is no field's label", () => {
    const field = fieldOf({
      type: "object",
      properties: { home: { $ref: "#/$defs/place" }, work: { $ref: "#/$defs/place", title: "Work" } },
      $defs: { place: { title: "Place", type: "object", properties: { street: { type: "string" } } } },
    });
    expect(field.kind === "object" && field.fields.map(({ field: { title } }) => title)).toEqual([undefined, "Work"]);
  });

  test("what is required comes first", () => {
    const field = form({ a: {}, b: {}, c: {} }, ["c"]);
    expect(field.kind === "object" && field.fields.map(({ name }) => name)).toEqual(["c", "a", "b"]);
  });
});

describe("what was typed", () => {
  test("text", () => {
    check({ a: { type: "string" } }, ["a"], { a: "x" }, { a: "x" });
    check({ a: { type: "string" } }, ["a"], { a: "" }, { a: "" });
    check({ a: { type: "string" } }, ["a"], {}, undefined, "a is required");
    check({ a: { type: "string" } }, [], { a: "" }, {});
    check({ a: { type: "string", minLength: 2 } }, ["a"], { a: "x" }, undefined, "a needs at least 2 characters");
    check({ a: { type: "string", maxLength: 2 } }, ["a"], { a: "😀😀" }, { a: "😀😀" });
  });
  test("numbers", () => {
    check({ a: { type: "integer", minimum: 1, maximum: 5 } }, ["a"], { a: " 3 " }, { a: 3 });
    check({ a: { type: "integer" } }, ["a"], { a: "1.5" }, undefined, "a is not a whole number");
    check({ a: { type: "integer", minimum: 1 } }, ["a"], { a: "0" }, undefined, "a is less than 1");
    check({ a: { type: "number", maximum: 5 } }, ["a"], { a: "5.1" }, undefined, "a is more than 5");
    check({ a: { type: "number" } }, ["a"], { a: "1e999" }, undefined, "a is not a number");
    check({ a: { type: "number" } }, ["a"], { a: "x" }, undefined, "a is not a number");
    check({ a: { type: "number" } }, [], { a: "" }, {});
    check({ a: { type: "number" } }, ["a"], { a: "0" }, { a: 0 });
  });
  test("yes and no, and neither", () => {
    check({ a: { type: "boolean" } }, [], { a: false }, { a: false });
    check({ a: { type: "boolean" } }, [], {}, {});
    check({ a: { type: "boolean" } }, ["a"], {}, { a: false });
  });
  test("choices keep their type", () => {
    check({ a: { enum: ["x", 2, null] } }, ["a"], { a: "1" }, { a: 2 });
    check({ a: { enum: ["x", 2, null] } }, ["a"], { a: "2" }, { a: null });
    check({ a: { enum: ["x"] } }, [], {}, {});
    check({ a: { enum: ["x", "y"] } }, ["a"], {}, undefined, "a is required");
  });
  test("objects and lists inside", () => {
    const inner = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    check({ a: inner }, [], {}, {});
    check({ a: inner }, ["a"], {}, undefined, "a.n is required");
    check(
      { a: { type: "array", items: inner } },
      ["a"],
      { a: [{ n: "1" }, { n: "x" }] },
      undefined,
      "a.1.n is not a number",
    );
    check({ a: { type: "array", items: inner } }, ["a"], { a: [{ n: "1" }] }, { a: [{ n: 1 }] });
    check({ a: { type: "array", items: { type: "string" } } }, [], {}, {});
    check({ a: { type: "array", items: { type: "string" } } }, ["a"], {}, { a: [] });
  });
  test("JSON", () => {
    check({ a: {} }, ["a"], { a: '{"b":[1]}' }, { a: { b: [1] } });
    expect(typedValue(form({ a: {} }), { a: "{" }).mistakes[0]?.message).toMatch(/^is not JSON/);
  });
});

describe("a value back into the form", () => {
  const field = form(
    {
      s: { type: "string" },
      n: { type: "number" },
      b: { type: "boolean" },
      e: { enum: ["x", 2] },
      o: { type: "object", properties: { l: { type: "array", items: { type: "integer" } } } },
      j: {},
    },
    ["s"],
  );
  test.each<Json>([
    { s: "", n: 0, b: false },
    { s: "x", e: 2, o: { l: [1, 2] }, j: { any: ["thing", null] } },
  ])("%j", (value) => {
    expect(misfit(field, value)).toBeUndefined();
    expect(typedValue(field, draftOf(field, value)).value).toEqual(value);
  });
  test("what it has no field for is said", () => {
    expect(misfit(field, { s: "x", more: 1 })).toBe('the form has no field "more"');
    expect(misfit(field, { s: 1 })).toBe('"s" does not fit its field');
    expect(misfit(field, [1])).toBeDefined();
  });
  test("optional parameters of Python servers are left out unless they are filled in", () => {
    const optional = (...types: object[]) => ({ anyOf: [...types, { type: "null" }], default: null, title: "X" });
    const nested = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    const python = form(
      {
        q: { type: "string" },
        text: optional({ type: "string" }),
        count: optional({ type: "integer" }),
        flag: optional({ type: "boolean" }),
        list: optional({ type: "array", items: { type: "string" } }),
        object: optional(nested),
        choice: optional({ enum: ["a", "b"] }),
        either: optional({ type: "integer" }, { type: "string" }),
        old: { type: ["string", "null"], default: null },
      },
      ["q"],
    );
    const draft = { ...(emptyDraft(python) as object), q: "x" };
    expect(typedValue(python, draft)).toEqual({ value: { q: "x" }, mistakes: [] });
    const filled = { ...draft, text: "null", count: "3", list: ["a"], either: '"y"' };
    expect(typedValue(python, filled)).toEqual({
      value: { q: "x", text: "null", count: 3, list: ["a"], either: "y" },
      mistakes: [],
    });
    expect(emptyDraft(form({ a: { default: null } }, ["a"]))).toEqual({ a: "null" });
    expect(misfit(python, { q: "x", text: null })).toBe('"text" does not fit its field');
  });
  test("an optional group with the default null is absent, and has its fields once it is set", () => {
    const optional = (schema: object) => ({ anyOf: [schema, { type: "null" }], default: null });
    const tags = { type: "array", items: { type: "string" } };
    const place = {
      type: "object",
      properties: { street: { type: "string" }, floor: { type: "integer", default: 0 }, tags: optional(tags) },
      required: ["street"],
    };
    const python = form({ tags: optional(tags), place: optional({ $ref: "#/$defs/place" }) }, [], { $defs: { place } });
    expect(emptyDraft(python)).toEqual({ tags: undefined, place: undefined });
    const fields = python.kind === "object" ? python.fields : [];
    // As the button "Set" does.
    const set = Object.fromEntries(fields.map(({ name, field }) => [name, emptyDraft({ ...field, required: true })]));
    expect(set).toEqual({ tags: [], place: { street: undefined, floor: "0", tags: undefined } });
  });
  test.each([
    [{ type: "array", items: { type: "string" } }, []],
    [{ type: "object", properties: { n: { type: "integer" } } }, { n: undefined }],
    [{ type: "string" }, undefined],
    [{ type: "integer" }, undefined],
    [{ type: "boolean" }, undefined],
    [{ enum: ["a", null] }, "1"],
    [{}, "null"],
  ])("the default null of a required field: %j", (schema, draft) => {
    expect(emptyDraft(form({ a: { ...schema, default: null } }, ["a"]))).toEqual({ a: draft });
  });
  test("defaults are filled in, and nothing else", () => {
    const empty = emptyDraft(
      form({ a: { type: "integer", default: 3 }, b: { type: "string" }, c: { const: "only" } }, ["a", "b", "c"]),
    );
    expect(empty).toEqual({ a: "3", b: undefined, c: "0" });
  });
});
