import type { Attachment } from "./attachments.js";
import type { IncomingEvent } from "./events.js";

/** The buffer limits for a slow reader. */
export interface EventBuffer {
  /** Default 16,384. */
  events?: number;
  /** Default 64 MiB. */
  bytes?: number;
}

export type Bounds = Required<EventBuffer>;

export function bounds({ events = 16_384, bytes = 64 * 1024 * 1024 }: EventBuffer = {}): Bounds {
  return { events, bytes };
}

/** Returns the approximate memory size of an event in bytes. */
export function weightOf(event: IncomingEvent): number {
  switch (event.type) {
    case "message":
    case "update-message":
      return weigh(event.content, event.attachments);
    case "method-call":
      return weigh(event.args, event.attachments);
    case "method-result":
      return weigh(event.content, event.attachments);
    case "presence":
      return weigh(event.metadata);
    default:
      return weigh(undefined);
  }
}

/** Returns the approximate memory size in bytes of a JSON value with its attachments. */
export function weigh(content: unknown, attachments: readonly Attachment[] = []): number {
  const text = typeof content === "string" ? content : (JSON.stringify(content) ?? "");
  return 512 + text.length + attachments.reduce((bytes, { data }) => bytes + data.byteLength, 0);
}
