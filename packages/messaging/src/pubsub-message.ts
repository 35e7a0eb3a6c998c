import type { Place } from "./address.js";
import type { Attachment, AttachmentInput } from "./attachments.js";
import type { ReconnectOptions } from "./reconnect.js";
import type { WireMessage } from "./wire.js";

export interface PubSubOptions extends Place {
  /** The participant's metadata for the roster. */
  metadata: Record<string, unknown>;
  /** Stored messages after this id are replayed; without it, none. */
  sinceId?: number | undefined;
  epoch?: string | undefined;
  reconnect?: boolean | ReconnectOptions | undefined;
}

/** A message of the channel, of any type. */
export interface PubSubMessage {
  kind: "replay" | "persisted" | "ephemeral";
  /** Absent if the message is not stored. */
  id?: number;
  type: string;
  payload: unknown;
  senderId: string;
  ts: number;
  senderMetadata?: Record<string, unknown>;
  attachments?: Attachment[];
  /** Whether it was sent while this client was disconnected. */
  missed?: boolean;
}

export interface PublishOptions {
  /** Whether it is stored. Default true. */
  persist?: boolean;
  attachments?: readonly AttachmentInput[];
}

export interface HistoryPage {
  /** Oldest first, without attachments. */
  messages: PubSubMessage[];
  hasMore: boolean;
}

/** Converts a message of the wire format. */
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
