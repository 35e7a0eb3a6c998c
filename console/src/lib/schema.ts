/**
 * Makes a form from a JSON Schema. Supported types become fields. Other schemas (alternatives, circular references, no
 * type) become a field for JSON, so that every tool can be called.
 */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Schema = { [key: string]: unknown };

interface Common {
  title?: string;
  description?: string;
  required: boolean;
  /** Set if the schema has a default. */
  default?: Json;
}

export type Field = Common &
  (
    | {
        kind: "text";
        multiline: boolean;
        secret: boolean;
        placeholder?: string;
        minLength?: number;
        maxLength?: number;
      }
    | { kind: "number"; integer: boolean; minimum?: number; maximum?: number }
    | { kind: "switch" }
    | { kind: "choice"; options: Json[] }
    | { kind: "object"; fields: { name: string; field: Field }[]; open: boolean }
    | { kind: "list"; item: Field }
    | { kind: "json"; why: string }
  );

/** The user's input. Numbers and JSON stay text until they are sent, so that no input is lost. */
export type Draft = undefined | string | boolean | Draft[] | { [key: string]: Draft };

export interface Mistake {
  /** The names and positions of the field's parents, and its own. */
  path: string[];
  message: string;
}

const MAX_DEPTH = 8;
/**
 * A form with more fields is not usable. A short schema that refers to itself in many places could make billions of
 * them.
 */
const MAX_FIELDS = 1_000;

/** A form under construction: the root for references, and the remaining number of fields. */
interface Form {
  root: unknown;
  left: number;
}

export function fieldOf(schema: unknown): Field {
  return fieldIn({ root: schema, left: MAX_FIELDS }, schema, true, 0);
}

function fieldIn(form: Form, schema: unknown, required: boolean, depth: number): Field {
  const common: Common = { required };
  if (!isObject(schema)) return { ...common, kind: "json", why: "It takes any JSON." };
  if (form.left-- <= 0) return { ...common, kind: "json", why: "Its schema is too large for a form." };
  const resolved = resolve(schema, form.root);
  if (resolved === undefined || depth > MAX_DEPTH)
    return { ...common, kind: "json", why: "Its schema refers to itself." };
  if (typeof resolved.title === "string") common.title = resolved.title;
  if (typeof resolved.description === "string") common.description = resolved.description;
  if (resolved.default !== undefined) common.default = resolved.default as Json;
  if (resolved.const !== undefined) return { ...common, kind: "choice", options: [resolved.const as Json] };
  if (Array.isArray(resolved.enum)) return { ...common, kind: "choice", options: resolved.enum as Json[] };
  switch (typeOf(resolved)) {
    case "string":
      return text(resolved, common);
    case "integer":
    case "number":
      return {
        ...common,
        kind: "number",
        integer: typeOf(resolved) === "integer",
        ...numeric(resolved, "minimum"),
        ...numeric(resolved, "maximum"),
      };
    case "boolean":
      return { ...common, kind: "switch" };
    case "array":
      if (Array.isArray(resolved.prefixItems) || !isObject(resolved.items))
        return { ...common, kind: "json", why: "A list of any JSON." };
      return { ...common, kind: "list", item: fieldIn(form, resolved.items, true, depth + 1) };
    case "object":
      return object(form, resolved, common, depth);
    default:
      return { ...common, kind: "json", why: "It can have several forms." };
  }
}

function object(form: Form, schema: Schema, common: Common, depth: number): Field {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const names = Object.keys(properties);
  const open = schema.additionalProperties !== false;
  if (names.length === 0 && open && depth > 0)
    return { ...common, kind: "json", why: "An object with any properties." };
  const needed = Array.isArray(schema.required) ? schema.required : [];
  const fields = names.map((name) => ({
    name,
    field: fieldIn(form, properties[name], needed.includes(name), depth + 1),
  }));
  // Required fields come first; otherwise the schema's order applies.
  fields.sort((a, b) => Number(b.field.required) - Number(a.field.required));
  return { ...common, kind: "object", fields, open };
}

function text(schema: Schema, common: Common): Field {
  const format = typeof schema.format === "string" ? schema.format : undefined;
  const examples = Array.isArray(schema.examples)
    ? schema.examples.filter((example) => typeof example === "string")
    : [];
  const placeholder = (examples[0] as string | undefined) ?? (format && format !== "password" ? format : undefined);
  const long = typeof schema.maxLength === "number" && schema.maxLength > 200;
  return {
    ...common,
    kind: "text",
    multiline: long || format === "textarea" || schema.contentMediaType !== undefined,
    secret: format === "password" || schema.writeOnly === true,
    ...(placeholder === undefined ? {} : { placeholder }),
    ...numeric(schema, "minLength"),
    ...numeric(schema, "maxLength"),
  };
}

function numeric<K extends string>(schema: Schema, key: K): { [key in K]?: number } {
  return typeof schema[key] === "number" ? ({ [key]: schema[key] } as { [key in K]?: number }) : {};
}

/** Returns the single type of a schema, without `null`. */
function typeOf(schema: Schema): string | undefined {
  if (typeof schema.type === "string") return schema.type;
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    return types.length === 1 ? String(types[0]) : undefined;
  }
  if (isObject(schema.properties)) return "object";
  return undefined;
}

/** Follows references inside the document, and unwraps "this or null". */
function resolve(schema: Schema, root: unknown): Schema | undefined {
  let current = schema;
  for (let steps = 0; steps < 16; steps++) {
    if (typeof current.$ref === "string") {
      const target = lookUp(current.$ref, root);
      if (!isObject(target)) return undefined;
      const { $ref: _, ...beside } = current;
      // The title of a shared definition names its type. Several fields can have this type, so it is no field's label.
      const { title: __, ...shared } = target;
      current = { ...shared, ...beside };
      continue;
    }
    const several = (current.anyOf ?? current.oneOf) as unknown;
    if (Array.isArray(several) && current.type === undefined) {
      const real = several.filter((one) => !(isObject(one) && one.type === "null"));
      if (real.length === 1 && isObject(real[0])) {
        const { anyOf: _, oneOf: __, ...beside } = current;
        current = { ...real[0], ...beside };
        continue;
      }
    }
    return current;
  }
  return undefined;
}

function lookUp(reference: string, root: unknown): unknown {
  if (!reference.startsWith("#")) return undefined;
  let found = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    found = isObject(found) ? found[key] : undefined;
  }
  return found;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns the content of a new form: only the defaults. */
export function emptyDraft(field: Field): Draft {
  // Python servers give optional parameters the default null, which means that they are omitted. A required field keeps
  // null only if it can show it.
  const absent = field.default === undefined || (field.default === null && !(field.required && showsNull(field)));
  if (!absent) return draftOf(field, field.default);
  if (field.kind === "object")
    return field.required
      ? Object.fromEntries(field.fields.map(({ name, field: inner }) => [name, emptyDraft(inner)]))
      : undefined;
  if (field.kind === "list") return field.required ? [] : undefined;
  if (field.kind === "choice" && field.options.length === 1 && field.required) return "0";
  return undefined;
}

/** Returns the draft that produces this value. */
export function draftOf(field: Field, value: Json | undefined): Draft {
  if (value === undefined) return undefined;
  if (value === null && !showsNull(field)) return undefined;
  switch (field.kind) {
    case "text":
      return typeof value === "string" ? value : JSON.stringify(value);
    case "number":
      return typeof value === "number" ? String(value) : JSON.stringify(value);
    case "switch":
      return typeof value === "boolean" ? value : undefined;
    case "choice": {
      const found = field.options.findIndex((option) => same(option, value));
      return found < 0 ? undefined : String(found);
    }
    case "object": {
      const given = isObject(value) ? (value as Record<string, Json>) : {};
      return Object.fromEntries(field.fields.map(({ name, field: inner }) => [name, draftOf(inner, given[name])]));
    }
    case "list":
      return Array.isArray(value) ? value.map((item) => draftOf(field.item, item)) : [];
    case "json":
      return JSON.stringify(value, null, 2);
  }
}

/** Only a choice and JSON can show null. A text field would send the word "null" as text. */
const showsNull = (field: Field) => field.kind === "choice" || field.kind === "json";

const same = (a: Json, b: Json) => JSON.stringify(a) === JSON.stringify(b);

/** Returns the typed value, with its mistakes. An empty optional field is omitted. */
export function typedValue(
  field: Field,
  draft: Draft,
  path: string[] = [],
): { value: Json | undefined; mistakes: Mistake[] } {
  const wrong = (message: string) => ({ value: undefined, mistakes: [{ path, message }] });
  const right = (value: Json | undefined) => ({ value, mistakes: [] });
  const missing = draft === undefined || (draft === "" && field.kind !== "text");
  if (missing || (draft === "" && !field.required)) {
    if (!field.required) return right(undefined);
    if (field.kind === "text" && field.minLength === undefined && draft === "") return right("");
    if (field.kind === "switch") return right(false);
    if (field.kind !== "object" && field.kind !== "list") return wrong("is required");
  }
  switch (field.kind) {
    case "text": {
      const text = String(draft);
      if (field.minLength !== undefined && [...text].length < field.minLength)
        return wrong(`needs at least ${field.minLength} characters`);
      if (field.maxLength !== undefined && [...text].length > field.maxLength)
        return wrong(`takes at most ${field.maxLength} characters`);
      return right(text);
    }
    case "number": {
      const text = String(draft).trim();
      const value = Number(text);
      if (text === "" || !Number.isFinite(value)) return wrong("is not a number");
      if (field.integer && !Number.isInteger(value)) return wrong("is not a whole number");
      if (field.minimum !== undefined && value < field.minimum) return wrong(`is less than ${field.minimum}`);
      if (field.maximum !== undefined && value > field.maximum) return wrong(`is more than ${field.maximum}`);
      return right(value);
    }
    case "switch":
      return right(draft === true);
    case "choice": {
      const option = field.options[Number(draft)];
      return option === undefined ? wrong("is not one of the choices") : right(option);
    }
    case "object": {
      const given = isObject(draft) ? (draft as Record<string, Draft>) : {};
      const value: Record<string, Json> = {};
      const mistakes: Mistake[] = [];
      for (const { name, field: inner } of field.fields) {
        const result = typedValue(inner, given[name], [...path, name]);
        mistakes.push(...result.mistakes);
        if (result.value !== undefined) value[name] = result.value;
      }
      return { value, mistakes };
    }
    case "list": {
      const items = (Array.isArray(draft) ? draft : []).map((item, at) =>
        typedValue(field.item, item, [...path, String(at)]),
      );
      return { value: items.map((item) => item.value ?? null), mistakes: items.flatMap((item) => item.mistakes) };
    }
    case "json":
      return parsed(String(draft), path);
  }
}

function parsed(text: string, path: string[]): { value: Json | undefined; mistakes: Mistake[] } {
  try {
    return { value: JSON.parse(text) as Json, mistakes: [] };
  } catch (error) {
    return { value: undefined, mistakes: [{ path, message: `is not JSON: ${(error as Error).message}` }] };
  }
}

/** Returns the reason why the form cannot show a value; `undefined` if it can. */
export function misfit(field: Field, value: Json, path = "the arguments"): string | undefined {
  if (field.kind === "object") {
    if (!isObject(value)) return `${path} are not an object`;
    const known = new Map(field.fields.map(({ name, field: inner }) => [name, inner]));
    for (const [name, inner] of Object.entries(value)) {
      const found = known.get(name);
      if (!found) return `the form has no field "${name}"`;
      const deeper = misfit(found, inner as Json, `"${name}"`);
      if (deeper) return deeper;
    }
    return undefined;
  }
  if (field.kind === "list") {
    if (!Array.isArray(value)) return `${path} is not a list`;
    return value.map((item) => misfit(field.item, item, `an entry of ${path}`)).find((found) => found !== undefined);
  }
  const fits = {
    text: typeof value === "string",
    number: typeof value === "number",
    switch: typeof value === "boolean",
    choice: field.kind === "choice" && field.options.some((option) => same(option, value)),
    json: true,
  }[field.kind];
  return fits ? undefined : `${path} does not fit its field`;
}
