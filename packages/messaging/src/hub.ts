import { type Bounds, weightOf } from "./bounds.js";
import { AgenticError } from "./errors.js";
import type { IncomingEvent } from "./events.js";
import { AsyncQueue } from "./queue.js";
import { collect } from "./replay.js";
import { isNamed } from "./targeting.js";

export type ReplayMode = "collect" | "stream" | "skip";

export interface EventFilterOptions {
  /** Only messages that name this participant in `at`, by its id or handle. */
  targetedOnly?: boolean;
  /** Also events that were replayed on connect, before all others. */
  includeReplay?: boolean;
  /** Also events that are not stored. */
  includeEphemeral?: boolean;
}

export interface HubOptions {
  replayMode: ReplayMode;
  handle: string;
  /** The participant's id, once it is known. */
  selfId: () => string | undefined;
  /** Whether events of this sender are omitted, except presence. */
  isSkipped: (senderId: string) => boolean;
  /** The buffer limits for one reader, and for the replayed history. */
  bounds: Bounds;
  /** Receives the errors of slow readers, and of history that exceeds the buffer. */
  report: (error: Error) => void;
}

/** Distributes all events to any number of readers. */
export class EventHub {
  readonly #options: HubOptions;
  readonly #readers = new Set<(event: IncomingEvent) => void>();
  readonly #queues = new Set<AsyncQueue<IncomingEvent>>();
  readonly #replayed: { event: IncomingEvent; bytes: number }[] = [];
  #replayedBytes = 0;
  /** Whether older history was dropped because of the buffer limit. */
  #cut = false;
  #collected: IncomingEvent[] | undefined;
  #ended = false;

  constructor(options: HubOptions) {
    this.#options = options;
  }

  /** Starts a reader. It gets all events after this call, even if the first value is requested late. */
  events(filter: EventFilterOptions = {}): AsyncIterableIterator<IncomingEvent> {
    const replay = filter.includeReplay ? this.#replay().filter((event) => this.#isFor(filter, event)) : [];
    const { bounds } = this.#options;
    // The last id that the reader got; it can resume after it.
    let last: number | undefined;
    const queue: AsyncQueue<IncomingEvent> = new AsyncQueue({
      onReturn: () => {
        this.#readers.delete(take);
        this.#queues.delete(queue);
      },
      // Replayed events do not count: they are in memory anyway.
      bounds: { events: bounds.events + replay.length, bytes: bounds.bytes + this.#replayedBytes },
      weigh: weightOf,
      overrun: () => this.#overrun(last),
    });
    const take = (event: IncomingEvent) => {
      if (this.#isFor(filter, event) && queue.push(event)) last = event.pubsubId ?? last;
    };
    this.#readers.add(take);
    this.#queues.add(queue);
    for (const event of replay) take(event);
    if (this.#ended) queue.end();
    return queue;
  }

  push(event: IncomingEvent): void {
    if (event.kind === "replay") {
      if (this.#options.replayMode !== "skip") this.#keep(event);
      return;
    }
    for (const take of this.#readers) take(event);
  }

  end(): void {
    this.#ended = true;
    for (const queue of [...this.#queues]) queue.end();
  }

  #replay(): readonly IncomingEvent[] {
    const replayed = this.#replayed.map(({ event }) => event);
    if (this.#options.replayMode !== "collect") return replayed;
    this.#collected ??= collect(replayed);
    return this.#collected;
  }

  #keep(event: IncomingEvent): void {
    const bytes = weightOf(event);
    this.#replayed.push({ event, bytes });
    this.#replayedBytes += bytes;
    while (this.#replayed.length > 1 && this.#replayedBytes > this.#options.bounds.bytes) {
      this.#replayedBytes -= this.#replayed.shift()?.bytes ?? 0;
      if (this.#cut) continue;
      this.#cut = true;
      const why = "the history does not fit into the eventBuffer, so its oldest part was dropped";
      this.#options.report(new AgenticError(`${why}; read it in pages with pubsub.getMessagesBefore`, "lagged"));
    }
  }

  #overrun(last: number | undefined): AgenticError {
    const where = last === undefined ? "" : `, which is after pubsubId ${last}`;
    const error = new AgenticError(
      `a reader of events() was too slow, so its events end here${where}; read faster, or increase eventBuffer`,
      "lagged",
      { ...(last === undefined ? {} : { replaySinceId: last }) },
    );
    this.#options.report(error);
    return error;
  }

  #isFor(filter: EventFilterOptions, event: IncomingEvent): boolean {
    if (event.kind === "ephemeral" && !filter.includeEphemeral) return false;
    if (event.type !== "presence" && this.#options.isSkipped(event.senderId)) return false;
    const { selfId, handle } = this.#options;
    return !filter.targetedOnly || (event.type === "message" && isNamed(event, selfId(), handle));
  }
}
