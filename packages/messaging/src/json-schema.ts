import { z } from "zod/v4";
import type { JsonSchema } from "./schemas.js";

/**
 * Returns a Zod schema that accepts the values of the JSON Schema. Keywords that Zod cannot express are not checked.
 */
export function jsonSchemaToZod(schema: JsonSchema | boolean): z.ZodType {
  return new Converter(schema).convert(schema);
}

/** Returns the properties of an object's schema, for `z.object()`. */
export function jsonSchemaToZodRawShape(schema: JsonSchema): Record<string, z.ZodType> {
  return new Converter(schema).shape(schema);
}

/** A nested schema may refer to the root, and so contain itself. */
const MAX_DEPTH = 64;
/** A short schema can require too many checks of one value. Schemas beyond this limit are not checked. */
const MAX_SCHEMAS = 10_000;
/** The references that led to a schema for the same value. */
type Trail = ReadonlySet<string>;
const NO_TRAIL: Trail = new Set();

class Converter {
  readonly #root: JsonSchema | boolean;
  readonly #named = new Map<string, z.ZodType>();
  #converted = 0;

  constructor(root: JsonSchema | boolean) {
    this.#root = root;
  }

  convert(schema: unknown, depth = 0, trail = NO_TRAIL): z.ZodType {
    this.#converted += 1;
    if (schema === false) return z.never();
    if (!isSchema(schema) || depth > MAX_DEPTH || this.#converted > MAX_SCHEMAS) return z.unknown();
    const converted = this.#constraints(schema, depth, trail);
    const described = typeof schema.description === "string" ? converted.describe(schema.description) : converted;
    return schema.default === undefined ? described : described.default(schema.default);
  }

  shape(schema: JsonSchema, depth = 0): Record<string, z.ZodType> {
    const target = typeof schema.$ref === "string" ? this.#find(schema.$ref) : schema;
    if (!isSchema(target) || !isSchema(target.properties)) return {};
    const required = new Set(Array.isArray(target.required) ? target.required : []);
    const properties = Object.entries(target.properties).map(([name, property]) => {
      const converted = this.convert(property, depth + 1);
      const filledIn = isSchema(property) && property.default !== undefined;
      return [name, required.has(name) || filledIn ? converted : converted.optional()] as const;
    });
    return Object.fromEntries(properties);
  }

  /** Converts every constraint keyword; all of them apply together. */
  #constraints(schema: JsonSchema, depth: number, trail: Trail): z.ZodType {
    const all: z.ZodType[] = [];
    const inPlace = (one: unknown) => this.convert(one, depth + 1, trail);
    if (typeof schema.$ref === "string") all.push(this.#reference(schema.$ref, trail));
    if (Array.isArray(schema.enum)) all.push(oneOfValues(schema.enum));
    if ("const" in schema) all.push(oneOfValues([schema.const]));
    const union = schema.anyOf ?? schema.oneOf;
    if (Array.isArray(union) && union.length > 0) all.push(z.union(union.map(inPlace)));
    if (Array.isArray(schema.allOf)) all.push(...schema.allOf.map(inPlace));
    const typed = this.#typed(schema, depth);
    if (typed) all.push(typed);
    const [first, ...rest] = all;
    const met = rest.reduce((both, next) => z.intersection(both, next), first ?? z.unknown());
    return schema.nullable === true ? met.nullable() : met;
  }

  #typed(schema: JsonSchema, depth: number): z.ZodType | undefined {
    const types = Array.isArray(schema.type) ? schema.type : [schema.type ?? impliedType(schema)];
    const known = types.map((type) => this.#ofType(type, schema, depth));
    if (known.some((one) => one === undefined)) return undefined;
    const [only, ...more] = known as z.ZodType[];
    return more.length === 0 ? only : z.union([only as z.ZodType, ...more]);
  }

  #ofType(type: unknown, schema: JsonSchema, depth: number): z.ZodType | undefined {
    switch (type) {
      case "string":
        return text(schema);
      case "number":
        return number(z.number(), schema);
      case "integer":
        return number(z.number().refine(Number.isInteger, "expected an integer"), schema);
      case "boolean":
        return z.boolean();
      case "null":
        return z.null();
      case "array":
        return this.#array(schema, depth);
      case "object":
        return this.#object(schema, depth);
      default:
        return undefined;
    }
  }

  #array(schema: JsonSchema, depth: number): z.ZodType {
    const { prefixItems, items, minItems, maxItems } = schema;
    let array: z.ZodType<unknown[]>;
    const first = Array.isArray(prefixItems) ? prefixItems : Array.isArray(items) ? items : [];
    if (first.length > 0) {
      const places = first.map((one) => this.convert(one, depth + 1));
      const rest = this.convert(Array.isArray(items) ? schema.additionalItems : items, depth + 1);
      array = z.array(z.unknown()).superRefine((values, context) => {
        for (const [at, value] of values.entries()) {
          const read = (places[at] ?? rest).safeParse(value);
          for (const issue of read.error?.issues ?? []) {
            context.addIssue({ code: "custom", message: issue.message, path: [at, ...issue.path] });
          }
        }
      });
    } else {
      array = z.array(this.convert(items, depth + 1));
    }
    if (typeof minItems === "number")
      array = array.refine((values) => values.length >= minItems, `at least ${minItems} items`);
    if (typeof maxItems === "number")
      array = array.refine((values) => values.length <= maxItems, `at most ${maxItems} items`);
    if (schema.uniqueItems === true) array = array.refine(isUnique, "two items are equal");
    return array;
  }

  #object(schema: JsonSchema, depth: number): z.ZodType {
    const shape = this.shape(schema, depth);
    const { additionalProperties, required } = schema;
    const object = z.object(shape);
    let whole: z.ZodType<Record<string, unknown>>;
    if (additionalProperties === false) whole = isSchema(schema.patternProperties) ? object.loose() : object.strict();
    else if (isSchema(additionalProperties)) whole = object.catchall(this.convert(additionalProperties, depth + 1));
    else whole = object.loose();
    const unnamed = (Array.isArray(required) ? required : []).filter((name) => !Object.hasOwn(shape, String(name)));
    if (unnamed.length === 0) return whole;
    return whole.refine(
      (value) => unnamed.every((name) => Object.hasOwn(value, String(name))),
      `needs ${unnamed.join(", ")}`,
    );
  }

  /**
   * Created on first use, because a schema may contain itself. A reference that leads back to itself for the same value
   * accepts any value.
   */
  #reference(reference: string, trail: Trail): z.ZodType {
    if (trail.has(reference)) return z.unknown();
    return z.lazy(() => {
      const known = trail.size === 0 ? this.#named.get(reference) : undefined;
      if (known) return known;
      const converted = this.convert(this.#find(reference), 0, new Set([...trail, reference]));
      if (trail.size === 0) this.#named.set(reference, converted);
      return converted;
    });
  }

  /** Resolves a reference within the document; returns `undefined` for other references. */
  #find(reference: string): unknown {
    if (reference !== "#" && !reference.startsWith("#/")) return undefined;
    let path: string;
    try {
      path = decodeURIComponent(reference);
    } catch {
      return undefined;
    }
    const steps = path
      .split("/")
      .slice(1)
      .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
    return steps.reduce<unknown>(
      (at, step) =>
        (isSchema(at) || Array.isArray(at)) && Object.hasOwn(at, step) ? (at as JsonSchema)[step] : undefined,
      this.#root,
    );
  }
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function impliedType(schema: JsonSchema): string | undefined {
  if ("properties" in schema || "required" in schema) return "object";
  if ("items" in schema || "prefixItems" in schema) return "array";
  return undefined;
}

function text(schema: JsonSchema): z.ZodType {
  const { minLength, maxLength, pattern, format } = schema;
  let string: z.ZodType<string> = z.string();
  if (format === "email") string = z.email();
  else if (format === "uuid") string = z.guid();
  else if (format === "uri" || format === "url") string = z.url();
  else if (format === "date-time") string = z.iso.datetime({ offset: true });
  else if (format === "date") string = z.iso.date();
  if (typeof minLength === "number")
    string = string.refine((value) => length(value) >= minLength, `at least ${minLength} characters`);
  if (typeof maxLength === "number")
    string = string.refine((value) => length(value) <= maxLength, `at most ${maxLength} characters`);
  const expression = typeof pattern === "string" ? regularExpression(pattern) : undefined;
  return expression ? string.refine((value) => expression.test(value), `must match ${pattern}`) : string;
}

/** Counts characters as JSON Schema does. */
function length(value: string): number {
  return [...value].length;
}

function regularExpression(pattern: string): RegExp | undefined {
  try {
    return new RegExp(pattern, "u");
  } catch {
    return undefined;
  }
}

function number(base: z.ZodType<number>, schema: JsonSchema): z.ZodType<number> {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  let value = base;
  if (typeof minimum === "number") value = value.refine((n) => n >= minimum, `at least ${minimum}`);
  if (typeof maximum === "number") value = value.refine((n) => n <= maximum, `at most ${maximum}`);
  if (typeof exclusiveMinimum === "number")
    value = value.refine((n) => n > exclusiveMinimum, `more than ${exclusiveMinimum}`);
  if (typeof exclusiveMaximum === "number")
    value = value.refine((n) => n < exclusiveMaximum, `less than ${exclusiveMaximum}`);
  if (typeof multipleOf === "number" && multipleOf > 0) {
    value = value.refine(
      (n) => Math.abs(n / multipleOf - Math.round(n / multipleOf)) < 1e-9,
      `a multiple of ${multipleOf}`,
    );
  }
  return value;
}

/** Objects in JSON have no order, so values are compared in a sorted form. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    isSchema(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner,
  );
}

function oneOfValues(values: readonly unknown[]): z.ZodType {
  if (values.length > 0 && values.every((value) => typeof value === "string"))
    return z.enum(values as [string, ...string[]]);
  const allowed = new Set(values.map(canonical));
  return z
    .unknown()
    .refine((value) => value !== undefined && allowed.has(canonical(value)), "not one of the allowed values");
}

function isUnique(values: unknown[]): boolean {
  return new Set(values.map(canonical)).size === values.length;
}
