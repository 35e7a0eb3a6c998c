import type { IncomingEvent, IncomingMethodResult, IncomingNewMessage } from "./events.js";

/** Puts replayed events together: a message with its updates is one event, and so is a call's result. */
export function collect(events: readonly IncomingEvent[]): IncomingEvent[] {
  const collected: IncomingEvent[] = [];
  const messages = new Map<string, IncomingNewMessage>();
  const results = new Map<string, IncomingMethodResult>();

  /** The message that an update is for; it begins with the update if its own beginning was not stored. */
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
          // Attachments of the parts are kept: the last one seldom repeats them.
          const attachments = [...(before.attachments ?? []), ...(event.attachments ?? [])];
          Object.assign(before, event, attachments.length > 0 ? { attachments } : {});
        }
        break;
      }
      case "presence":
        // Who came and went is history; who is here is in the roster.
        break;
      default:
        collected.push(event);
    }
  }
  return collected;
}
