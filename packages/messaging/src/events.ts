import type { Attachment } from "./attachments.js";
import { check, isProtocolType } from "./protocol.js";
import type { PubSubMessage } from "./pubsub-message.js";
import { type ParticipantMetadata, presencePayload } from "./roster.js";

/** The common fields of all events. */
export interface IncomingBase {
  /** Replayed history, stored, or not stored. */
  kind: "replay" | "persisted" | "ephemeral";
  senderId: string;
  /** The time of sending, in milliseconds. */
  ts: number;
  /** The server's id; absent if the message is not stored. */
  pubsubId?: number;
  /** The sender's metadata in the roster at that time. */
  senderMetadata?: { name?: string; type?: string; handle?: string; [key: string]: unknown };
  attachments?: Attachment[];
}

export interface IncomingNewMessage extends IncomingBase {
  type: "message";
  id: string;
  content: string;
  contentType?: string;
  replyTo?: string;
  /** Ids or handles of the recipients; absent if the message is for all participants. */
  at?: string[];
  metadata?: Record<string, unknown>;
  /** In collected replay: whether the message was completed. Its updates are part of `content`. */
  complete?: boolean;
  /** In collected replay: the error that ended the message. */
  error?: string;
  code?: string;
}

export interface IncomingUpdateMessage extends IncomingBase {
  type: "update-message";
  id: string;
  /** The text to append. */
  content?: string;
  complete?: boolean;
  contentType?: string;
}

export interface IncomingErrorMessage extends IncomingBase {
  type: "error";
  id: string;
  error: string;
  code?: string;
}

export interface IncomingMethodCall extends IncomingBase {
  type: "method-call";
  callId: string;
  methodName: string;
  providerId: string;
  args: unknown;
}

export interface IncomingMethodResult extends IncomingBase {
  type: "method-result";
  callId: string;
  content?: unknown;
  contentType?: string;
  complete: boolean;
  isError: boolean;
  /** Percent. */
  progress?: number;
}

export interface IncomingPresenceEvent extends IncomingBase {
  type: "presence";
  action: "join" | "update" | "leave";
  metadata: ParticipantMetadata;
  leaveReason?: "graceful" | "disconnect";
}

export type PauseStatus = "paused" | "resumed" | "cancelled";

export interface IncomingExecutionPause extends IncomingBase {
  type: "execution-pause";
  messageId: string;
  status: PauseStatus;
  reason?: string;
}

/** Messages and their updates. */
export type IncomingMessage = IncomingNewMessage | IncomingUpdateMessage | IncomingErrorMessage;

export type IncomingEvent =
  | IncomingMessage
  | IncomingMethodCall
  | IncomingMethodResult
  | IncomingPresenceEvent
  | IncomingExecutionPause;

export interface IncomingMethodCancel extends IncomingBase {
  type: "method-cancel";
  callId: string;
}

/**
 * Reads a message of one of the protocol's types; returns `undefined` for other types. Throws if it does not fit its
 * type.
 */
export function readEvent(message: PubSubMessage): IncomingEvent | IncomingMethodCancel | undefined {
  const { kind, type, senderId, ts, id, senderMetadata, attachments, payload } = message;
  const base: IncomingBase = {
    kind,
    senderId,
    ts,
    ...(id === undefined ? {} : { pubsubId: id }),
    ...(senderMetadata ? { senderMetadata: senderMetadata as NonNullable<IncomingBase["senderMetadata"]> } : {}),
    ...(attachments ? { attachments } : {}),
  };
  if (type === "presence") {
    const read = presencePayload.safeParse(payload);
    if (!read.success) return undefined;
    const { action, metadata, leaveReason } = read.data;
    return { ...base, type, action, metadata: metadata ?? {}, ...(leaveReason ? { leaveReason } : {}) };
  }
  if (!isProtocolType(type)) return undefined;
  const body = check(type, payload, "receive");
  if (type === "method-call") return { args: undefined, ...base, type, ...body } as IncomingMethodCall;
  if (type === "method-result")
    return { complete: false, isError: false, ...base, type, ...body } as IncomingMethodResult;
  return { ...base, type, ...body } as IncomingEvent | IncomingMethodCancel;
}
