import { z } from "zod/v4";
import { type Attachment, type AttachmentInput, cut, decodeBinary, describe, encodeBinary } from "./attachments.js";
import { ValidationError } from "./errors.js";

/** A frame that a participant sends. */
export type ClientFrame =
  | {
      action: "publish";
      type: string;
      payload: unknown;
      persist: boolean;
      ref: number;
      clientMessageId?: string;
    }
  | { action: "update-metadata"; payload: Record<string, unknown>; ref: number }
  | { action: "get-messages-before"; before: number; limit: number; ref: number }
  | { action: "close"; ref: number };

const metadata = z.record(z.string(), z.unknown());

const attachmentMeta = z.array(
  z.object({
    id: z.string().optional(),
    mimeType: z.string(),
    name: z.string().optional(),
    size: z.number().int().nonnegative(),
  }),
);

const message = z.object({
  kind: z.enum(["persisted", "ephemeral", "replay"]),
  id: z.number().optional(),
  type: z.string(),
  payload: z.unknown(),
  senderId: z.string(),
  ts: z.number(),
  senderMetadata: metadata.nullish(),
  ref: z.number().optional(),
  duplicate: z.boolean().optional(),
  attachmentMeta: attachmentMeta.optional(),
});

const ready = z.object({
  kind: z.literal("ready"),
  extensions: z.array(z.string()).optional(),
  participantId: z.string().optional(),
  epoch: z.string().optional(),
  lastId: z.number().optional(),
  recovered: z.boolean().optional(),
  contextId: z.string().optional(),
  channelConfig: metadata.optional(),
  // Entries are read one by one, so that no id is lost and one unreadable entry does not remove the others.
  roster: z.custom<Record<string, unknown>>((value) => typeof value === "object" && value !== null).optional(),
});

const failure = z.object({
  kind: z.literal("error"),
  error: z.string(),
  code: z.string().optional(),
  ref: z.number().optional(),
});

const history = z.object({
  kind: z.literal("history"),
  messages: z.array(message),
  hasMore: z.boolean(),
  ref: z.number().optional(),
});

const frame = z.discriminatedUnion("kind", [message, ready, failure, history]);

export type WireMessage = z.infer<typeof message>;
export type ReadyFrame = z.infer<typeof ready>;
export type FailureFrame = z.infer<typeof failure>;
export type HistoryFrame = z.infer<typeof history>;
export type ServerFrame =
  | { kind: "message"; message: WireMessage; attachments?: Attachment[] }
  | ReadyFrame
  | FailureFrame
  | HistoryFrame;

/** Servers pass on no frame that is nested as deeply. */
const MAX_DEPTH = 256;

/** Whether a JSON text is nested deeper than {@link MAX_DEPTH}. */
function isTooDeep(json: string): boolean {
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < json.length; at++) {
    const char = json[at];
    if (char === '"') quoted = !quoted;
    else if (quoted) at += char === "\\" ? 1 : 0;
    else if (char === "[" || char === "{") depth += 1;
    else if (char === "]" || char === "}") depth -= 1;
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

const KINDS: ReadonlySet<unknown> = new Set(["persisted", "ephemeral", "replay", "ready", "error", "history"]);

/** Reads a frame of the server; returns `undefined` for an unknown kind. Throws if it cannot be read. */
export function decodeFrame(data: string | Uint8Array): ServerFrame | undefined {
  const { json, rest } = typeof data === "string" ? { json: data, rest: undefined } : decodeBinary(data);
  // Such JSON can be parsed but not written again: that would overflow the stack.
  if (isTooDeep(json)) {
    throw new ValidationError(`a frame of the server is nested deeper than ${MAX_DEPTH} levels`, "receive");
  }
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new ValidationError("a frame of the server is not valid JSON", "receive", error);
  }
  const kind = typeof value === "object" && value !== null && "kind" in value ? value.kind : undefined;
  if (typeof kind === "string" && !KINDS.has(kind)) return undefined;
  // The acknowledgement of a close, without any other content.
  if (kind === "persisted" && !("type" in (value as object)) && "ref" in (value as object)) return undefined;
  const read = frame.safeParse(value);
  if (!read.success) {
    throw new ValidationError("a frame of the server is invalid", "receive", read.error.issues);
  }
  if (read.data.kind === "ready" || read.data.kind === "error" || read.data.kind === "history") return read.data;
  const described = read.data.attachmentMeta;
  if (!described || !rest) return { kind: "message", message: read.data };
  return { kind: "message", message: read.data, attachments: cut(described, rest) };
}

export function encodeFrame(frame: ClientFrame, attachments: readonly AttachmentInput[] = []) {
  if (attachments.length === 0) return JSON.stringify(frame);
  const { meta, bytes } = describe(attachments);
  return encodeBinary(JSON.stringify({ ...frame, attachmentMeta: meta }), bytes);
}
