export interface ServerEvent {
  /** `message` if the stream sends no type. */
  event: string;
  data: string;
  /** The last id of the stream, of this event or an earlier one. */
  id?: string;
}

/** An event is longer than the reader accepts. The rest of its stream cannot be read. */
export class EventTooLong extends Error {}

/** Parses events from text that is cut anywhere. It reads each character once, and keeps at most one event. */
export class EventReader {
  /** @param most The maximum length of an event, in characters. */
  constructor(most?: number);
  /** Returns the events that this text completes. Throws {@link EventTooLong} after the events before the long one. */
  push(text: string): Generator<ServerEvent, void, undefined>;
}

/** Yields the events of a response's body. */
export function eventsOf(body: AsyncIterable<Uint8Array>, most?: number): AsyncGenerator<ServerEvent, void, undefined>;
