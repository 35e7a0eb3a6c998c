import { z } from "zod/v4";
import { zodToJsonSchema } from "zod-to-json-schema";
import { ValidationError } from "./errors.js";
import { jsonSchemaToZod } from "./json-schema.js";

export type JsonSchema = Record<string, unknown>;

/** A Zod schema of version 3 or 4. */
export interface ZodSchema {
  // biome-ignore lint/suspicious/noExplicitAny: where it is not known which schema it is, its values are not either.
  readonly _output: any;
  safeParseAsync(value: unknown): Promise<
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    { success: true; data: any } | { success: false; error: { issues: readonly object[] } }
  >;
}

/** A schema of arguments or results: a Zod schema of version 3 or 4, or a JSON Schema. */
export type AnySchema = ZodSchema | JsonSchema;

/** The values of a schema. The values of a JSON Schema are known only at run time. */
// biome-ignore lint/suspicious/noExplicitAny: as above.
export type OutputOf<TSchema> = TSchema extends { readonly _output: infer Output } ? Output : any;

/** A schema that validates values and can be advertised as JSON Schema. */
export interface Checker {
  json: JsonSchema;
  /** Returns the value with its defaults filled in, or the reason why it does not fit. */
  check(value: unknown): Promise<{ value: unknown } | { why: string; issues: readonly object[] }>;
}

const ANYTHING: JsonSchema = { type: "object", properties: {} };

/** Throws a {@link ValidationError} that names `what` if this is not a schema. */
export function checker(schema: unknown, io: "input" | "output", what: string): Checker {
  if (schema === undefined) return { json: ANYTHING, check: async (value) => ({ value }) };
  try {
    const json = describe(schema, io);
    if (json) return { json, check: (value) => parse(isZod(schema) ? schema : jsonSchemaToZod(json), value) };
  } catch (error) {
    throw new ValidationError(`${what} cannot be converted to JSON Schema: ${String(error)}`, "send", error);
  }
  throw new ValidationError(`${what} must be a Zod schema or a JSON Schema`, "send", schema);
}

/** Validates a value with a Zod schema of either version. */
export async function parse(schema: ZodSchema, value: unknown): ReturnType<Checker["check"]> {
  const read = await schema.safeParseAsync(value);
  if (read.success) return { value: read.data };
  return { why: z.prettifyError(read.error as z.ZodError), issues: read.error.issues };
}

function describe(schema: unknown, io: "input" | "output"): JsonSchema | undefined {
  if (!isZod(schema)) return isJsonSchema(schema) ? schema : undefined;
  const { $schema: _, ...json } =
    "_zod" in schema
      ? // Constraints that JSON Schema cannot express become "any": the Zod schema itself validates the values.
        z.toJSONSchema(schema as unknown as z.ZodType, { io, unrepresentable: "any" })
      : zodToJsonSchema(schema as never);
  return json as JsonSchema;
}

function isZod(schema: unknown): schema is ZodSchema {
  if (typeof schema !== "object" || schema === null || !("_zod" in schema || "_def" in schema)) return false;
  return typeof (schema as Partial<ZodSchema>).safeParseAsync === "function";
}

/** Whether this is data that can be a JSON Schema. A table of Zod schemas, for example, cannot. */
function isJsonSchema(schema: unknown): schema is JsonSchema {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema) || !isData(schema)) return false;
  const { type } = schema as { type?: unknown };
  return type === undefined || typeof type === "string" || Array.isArray(type);
}

function isData(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return typeof value !== "function" && typeof value !== "symbol";
  const prototype: unknown = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && prototype !== Object.prototype && prototype !== null) return false;
  return Object.values(value).every(isData);
}
