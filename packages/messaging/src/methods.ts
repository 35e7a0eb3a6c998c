import { z } from "zod";
import type { Attachment, AttachmentInput } from "./attachments.js";
import type { Participant } from "./roster.js";

export type JsonSchema = Record<string, unknown>;

/** What a method can do while it runs. */
export interface MethodExecutionContext {
  callId: string;
  callerId: string;
  /** Aborted when the caller cancels, or when nobody waits for the result any more. */
  signal: AbortSignal;
  /** Sends a partial result. */
  stream(content: unknown): Promise<void>;
  streamWithAttachments(
    content: unknown,
    attachments: AttachmentInput[],
    options?: { contentType?: string },
  ): Promise<void>;
  /** To be returned by the method. */
  resultWithAttachments<T>(
    content: T,
    attachments: AttachmentInput[],
    options?: { contentType?: string },
  ): MethodResultWithAttachments<T>;
  /** How much is done, in percent. */
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

/** Any schema; where it is not known which, its values are not either. */
// biome-ignore lint/suspicious/noExplicitAny: the arguments of a method in a table of methods are whatever its schema says.
export type AnySchema = z.ZodType<any>;

export interface MethodDefinition<TArgs extends z.ZodType = AnySchema, TResult = unknown> {
  description?: string;
  parameters: TArgs;
  returns?: z.ZodType;
  /** How long a caller should wait, in milliseconds. */
  timeout?: number;
  /** Whether it sends partial results. */
  streaming?: boolean;
  execute(args: z.output<TArgs>, context: MethodExecutionContext): Promise<TResult> | TResult;
}

/** A table of methods, each with arguments of its own. */
export type MethodDefinitions<TSchemas extends Record<string, z.ZodType>> = {
  [Name in keyof TSchemas]: MethodDefinition<TSchemas[Name]>;
};

/** A method as the roster has it. */
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
  /** Whether it is the last. */
  complete: boolean;
  isError: boolean;
  /** Percent. */
  progress?: number;
  /** So many parts came before this one while nobody read them that there was no room for them. It says nothing else. */
  missed?: number;
}

/** How methods are told to the others. */
export function advertise(methods: Record<string, MethodDefinition>): MethodAdvertisement[] {
  return Object.entries(methods).map(([name, method]) => ({
    name,
    ...(method.description === undefined ? {} : { description: method.description }),
    parameters: toJsonSchema(method.parameters, "input"),
    ...(method.returns ? { returns: toJsonSchema(method.returns, "output") } : {}),
    streaming: method.streaming ?? false,
    ...(method.timeout === undefined ? {} : { timeout: method.timeout }),
  }));
}

function toJsonSchema(schema: z.ZodType, io: "input" | "output"): JsonSchema {
  // What JSON Schema has no words for may be anything: the method checks its arguments by the schema itself.
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: "any" });
  return rest as JsonSchema;
}

const advertisement = z.object({
  name: z.string().min(1),
  description: z.string().optional(),
  parameters: z.record(z.string(), z.unknown()).catch({}),
  returns: z.record(z.string(), z.unknown()).optional().catch(undefined),
  streaming: z.boolean().catch(false),
  timeout: z.number().positive().optional().catch(undefined),
});

/** The methods that a participant advertises, without those that cannot be read. */
export function methodsOf({ id, metadata }: Participant): DiscoveredMethod[] {
  const { methods, name: said } = metadata as { methods?: unknown; name?: unknown };
  const providerName = typeof said === "string" ? said : id;
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
