export interface ServerEvent {
  /** `message`, where the stream does not say. */
  event: string;
  data: string;
  /** The id that the stream last gave, with this event or one before it. */
  id?: string;
}

/** An event is longer than its reader takes. No more can be read of its stream. */
export class EventTooLong extends Error {}

/** Makes events of text, cut anywhere. It looks at each character once, and keeps no more than one event. */
export class EventReader {
  /** @param most How long an event may be, in characters. */
  constructor(most?: number);
  /** Gives the events that this text completes. Throws {@link EventTooLong} after those before the one that is. */
  push(text: string): Generator<ServerEvent, void, undefined>;
}

/** The events of a response's body. */
export function eventsOf(body: AsyncIterable<Uint8Array>, most?: number): AsyncGenerator<ServerEvent, void, undefined>;
