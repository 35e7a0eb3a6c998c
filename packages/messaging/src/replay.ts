import type { IncomingEvent, IncomingMethodResult, IncomingNewMessage } from "./events.js";

/** Combines replayed events: a message with its updates is one event, and so is a call's result. */
export function collect(events: readonly IncomingEvent[]): IncomingEvent[] {
  const collected: IncomingEvent[] = [];
  const messages = new Map<string, IncomingNewMessage>();
  const results = new Map<string, IncomingMethodResult>();

  /** Returns the message of an update; it starts with the update if its beginning was not stored. */
  const messageOf = (event: Extract<IncomingEvent, { type: "update-message" | "error" }>): IncomingNewMessage => {
    const known = messages.get(event.id);
    if (known) return known;
    const { kind, senderId, ts, pubsubId, senderMetadata, id } = event;
    const begun: IncomingNewMessage = {
      ...{ type: "message", kind, senderId, ts, id, content: "", complete: false },
      ...(pubsubId === undefined ? {} : { pubsubId }),
      ...(senderMetadata ? { senderMetadata } : {}),
    };
    messages.set(id, begun);
    collected.push(begun);
    return begun;
  };

  for (const event of events) {
    switch (event.type) {
      case "message": {
        const begun = { ...event, complete: false };
        messages.set(event.id, begun);
        collected.push(begun);
        break;
      }
      case "update-message": {
        const message = messageOf(event);
        message.content += event.content ?? "";
        if (event.complete) message.complete = true;
        if (event.contentType !== undefined) message.contentType = event.contentType;
        if (event.attachments) message.attachments = [...(message.attachments ?? []), ...event.attachments];
        break;
      }
      case "error": {
        const message = messageOf(event);
        message.error = event.error;
        if (event.code !== undefined) message.code = event.code;
        break;
      }
      case "method-result": {
        const before = results.get(event.callId);
        if (!before) {
          const begun = { ...event };
          results.set(event.callId, begun);
          collected.push(begun);
        } else if (!before.complete) {
          // Keeps the attachments of the parts, because the last part rarely repeats them.
          const attachments = [...(before.attachments ?? []), ...(event.attachments ?? [])];
          Object.assign(before, event, attachments.length > 0 ? { attachments } : {});
        }
        break;
      }
      case "presence":
        // Presence changes are history; the roster has the current participants.
        break;
      default:
        collected.push(event);
    }
  }
  return collected;
}
