import type { Attachment } from "./attachments.js";
import type { IncomingEvent } from "./events.js";

/** How much may wait for somebody who does not read it. */
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

/** About how many bytes of memory an event keeps. */
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

/** About how many bytes of memory something keeps that came as JSON, with its attachments. */
export function weigh(content: unknown, attachments: readonly Attachment[] = []): number {
  const text = typeof content === "string" ? content : (JSON.stringify(content) ?? "");
  return 512 + text.length + attachments.reduce((bytes, { data }) => bytes + data.byteLength, 0);
}
