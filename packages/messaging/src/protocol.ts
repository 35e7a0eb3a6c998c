import { z } from "zod/v4";
import { ValidationError } from "./errors.js";

/** The id of a message or a call: a UUID from this package, any short text from other clients. */
const id = z.string().min(1).max(128);

const schemas = {
  message: z.object({
    id,
    content: z.string(),
    contentType: z.string().optional(),
    replyTo: id.optional(),
    at: z.array(z.string()).optional(),
    metadata: z.record(z.string(), z.unknown()).optional(),
  }),
  "update-message": z.object({
    id,
    content: z.string().optional(),
    complete: z.boolean().optional(),
    contentType: z.string().optional(),
  }),
  error: z.object({ id, error: z.string(), code: z.string().optional() }),
  "method-call": z.object({
    callId: id,
    methodName: z.string().min(1),
    providerId: z.string().min(1),
    args: z.unknown().optional(),
  }),
  "method-result": z.object({
    callId: id,
    content: z.unknown().optional(),
    contentType: z.string().optional(),
    complete: z.boolean().optional(),
    isError: z.boolean().optional(),
    progress: z.number().optional(),
  }),
  "method-cancel": z.object({ callId: id }),
  "execution-pause": z.object({
    messageId: id,
    status: z.enum(["paused", "resumed", "cancelled"]),
    reason: z.string().optional(),
  }),
};

export type ProtocolType = keyof typeof schemas;
export type Payload<T extends ProtocolType> = z.infer<(typeof schemas)[T]>;

export function isProtocolType(type: string): type is ProtocolType {
  return Object.hasOwn(schemas, type);
}

/** Validates a payload. Throws a {@link ValidationError} with the reason. */
export function check<T extends ProtocolType>(type: T, payload: unknown, direction: "send" | "receive"): Payload<T> {
  const read = schemas[type].safeParse(payload);
  if (read.success) return read.data as Payload<T>;
  throw new ValidationError(`invalid ${type}: ${z.prettifyError(read.error)}`, direction, read.error.issues);
}
