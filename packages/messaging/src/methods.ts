import { z } from "zod/v4";
import type { Attachment, AttachmentInput } from "./attachments.js";
import { ValidationError } from "./errors.js";
import type { Participant } from "./roster.js";
import { type AnySchema, type Checker, checker, type JsonSchema, type OutputOf } from "./schemas.js";

/** The context of a running method. */
export interface MethodExecutionContext {
  callId: string;
  callerId: string;
  /** Aborted when the caller cancels, or when the result is not needed any more. */
  signal: AbortSignal;
  /** Sends a partial result. */
  stream(content: unknown): Promise<void>;
  streamWithAttachments(
    content: unknown,
    attachments: AttachmentInput[],
    options?: { contentType?: string },
  ): Promise<void>;
  /** A return value with attachments. */
  resultWithAttachments<T>(
    content: T,
    attachments: AttachmentInput[],
    options?: { contentType?: string },
  ): MethodResultWithAttachments<T>;
  /** Reports the progress in percent. */
  progress(percent: number): Promise<void>;
}

/** A final result that has attachments. */
export class MethodResultWithAttachments<T = unknown> {
  readonly content: T;
  readonly attachments: AttachmentInput[];
  readonly contentType?: string;

  constructor(content: T, attachments: AttachmentInput[], options: { contentType?: string } = {}) {
    this.content = content;
    this.attachments = attachments;
    if (options.contentType !== undefined) this.contentType = options.contentType;
  }
}

export interface MethodDefinition<TArgs = AnySchema, TResult = unknown> {
  description?: string;
  /** A Zod schema of version 3 or 4, or a JSON Schema. Default: any arguments. */
  parameters?: TArgs;
  returns?: AnySchema;
  /** The timeout for a caller, in milliseconds. */
  timeout?: number;
  /** Whether it sends partial results. */
  streaming?: boolean;
  execute(args: OutputOf<TArgs>, context: MethodExecutionContext): Promise<TResult> | TResult;
}

/** A table of methods, each with its own arguments. A method without parameters has arguments of an unknown type. */
export type MethodDefinitions<TSchemas extends Record<string, unknown>> = {
  [Name in keyof TSchemas]: MethodDefinition<TSchemas[Name]>;
};

/** A method as advertised in the roster. */
export interface MethodAdvertisement {
  name: string;
  description?: string;
  parameters: JsonSchema;
  returns?: JsonSchema;
  streaming?: boolean;
  timeout?: number;
}

export interface DiscoveredMethod {
  providerId: string;
  providerName: string;
  name: string;
  description?: string;
  parameters: JsonSchema;
  returns?: JsonSchema;
  streaming: boolean;
  timeout?: number;
}

/** The result of a call. */
export interface MethodResultValue {
  content: unknown;
  attachments?: Attachment[];
  contentType?: string;
}

/** A part of the result of a call. */
export interface MethodResultChunk extends MethodResultValue {
  /** Whether it is the last part. */
  complete: boolean;
  isError: boolean;
  /** In percent. */
  progress?: number;
  /**
   * The number of unread parts before this one that were dropped because of the buffer limit. The part has no other
   * content.
   */
  missed?: number;
}

/** A method with parsed schemas. */
export interface Method {
  definition: MethodDefinition;
  parameters: Checker;
  returns?: Checker;
}

/** Parses the schemas of methods. Throws a {@link ValidationError} that names the method of an invalid schema. */
export function readMethods(methods: Record<string, MethodDefinition>): Record<string, Method> {
  const read = Object.entries(methods).map(([name, definition]) => {
    const what = `the method "${name}"`;
    if (typeof definition !== "object" || definition === null || typeof definition.execute !== "function") {
      throw new ValidationError(`${what} must have a function "execute"`, "send", definition);
    }
    const parameters = checker(definition.parameters, "input", `"parameters" of ${what}`);
    const returns =
      definition.returns === undefined ? undefined : checker(definition.returns, "output", `"returns" of ${what}`);
    return [name, { definition, parameters, ...(returns ? { returns } : {}) }] as const;
  });
  return Object.fromEntries(read);
}

/** Returns the methods as advertised to other participants. */
export function advertise(methods: Record<string, Method>): MethodAdvertisement[] {
  return Object.entries(methods).map(([name, { definition, parameters, returns }]) => ({
    name,
    ...(definition.description === undefined ? {} : { description: definition.description }),
    parameters: parameters.json,
    ...(returns ? { returns: returns.json } : {}),
    streaming: definition.streaming ?? false,
    ...(definition.timeout === undefined ? {} : { timeout: definition.timeout }),
  }));
}

const advertisement = z.object({
  name: z.string().min(1),
  description: z.string().optional(),
  parameters: z.record(z.string(), z.unknown()).catch({}),
  returns: z.record(z.string(), z.unknown()).optional().catch(undefined),
  streaming: z.boolean().catch(false),
  timeout: z.number().positive().optional().catch(undefined),
});

/** Returns the methods that a participant advertises, without unreadable ones. */
export function methodsOf({ id, metadata }: Participant): DiscoveredMethod[] {
  const { methods, name } = metadata as { methods?: unknown; name?: unknown };
  const providerName = typeof name === "string" ? name : id;
  if (!Array.isArray(methods)) return [];
  return methods.flatMap((method) => {
    const read = advertisement.safeParse(method);
    if (!read.success) return [];
    const { name, description, parameters, returns, streaming, timeout } = read.data;
    return {
      providerId: id,
      providerName,
      name,
      parameters,
      streaming,
      ...(description === undefined ? {} : { description }),
      ...(returns === undefined ? {} : { returns }),
      ...(timeout === undefined ? {} : { timeout }),
    };
  });
}
