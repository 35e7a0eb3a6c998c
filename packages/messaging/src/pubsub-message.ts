import type { Place } from "./address.js";
import type { Attachment, AttachmentInput } from "./attachments.js";
import type { ReconnectOptions } from "./reconnect.js";
import type { WireMessage } from "./wire.js";

export interface PubSubOptions extends Place {
  /** What the roster is to say about this participant. */
  metadata: Record<string, unknown>;
  /** Stored messages after this one are replayed; without it, none. */
  sinceId?: number | undefined;
  epoch?: string | undefined;
  reconnect?: boolean | ReconnectOptions | undefined;
}

/** A message of the channel's, of any type. */
export interface PubSubMessage {
  kind: "replay" | "persisted" | "ephemeral";
  /** Absent for one that is not stored. */
  id?: number;
  type: string;
  payload: unknown;
  senderId: string;
  ts: number;
  senderMetadata?: Record<string, unknown>;
  attachments?: Attachment[];
  /** It was sent while this client was away. */
  missed?: boolean;
}

export interface PublishOptions {
  /** Whether it is stored. Default true. */
  persist?: boolean;
  attachments?: readonly AttachmentInput[];
}

export interface HistoryPage {
  /** Oldest first. Attachments are not among them. */
  messages: PubSubMessage[];
  hasMore: boolean;
}

/** A message of the wire's, as it is handed on. */
export function messageOf(
  message: WireMessage,
  kind: PubSubMessage["kind"],
  attachments?: Attachment[],
  missed = false,
): PubSubMessage {
  const { id, type, payload, senderId, ts, senderMetadata } = message;
  return {
    kind,
    type,
    payload,
    senderId,
    ts,
    ...(id === undefined ? {} : { id }),
    ...(senderMetadata ? { senderMetadata } : {}),
    ...(attachments ? { attachments } : {}),
    ...(missed ? { missed } : {}),
  };
}
