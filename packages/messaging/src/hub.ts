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
  /** Also what was replayed when the client connected, before everything else. */
  includeReplay?: boolean;
  /** Also what is not stored. */
  includeEphemeral?: boolean;
}

export interface HubOptions {
  replayMode: ReplayMode;
  handle: string;
  /** The participant's id, once it is known. */
  selfId: () => string | undefined;
  /** Ids whose events are left out, but for presence. */
  isSkipped: (senderId: string) => boolean;
  /** How much may wait for one reader, and how much of what was said before is kept. */
  bounds: Bounds;
  /** Hears of a reader that is too slow, and of history that there is no room for. */
  report: (error: Error) => void;
}

/** Everything that comes, for any number of readers. */
export class EventHub {
  readonly #options: HubOptions;
  readonly #readers = new Set<(event: IncomingEvent) => void>();
  readonly #queues = new Set<AsyncQueue<IncomingEvent>>();
  readonly #replayed: { event: IncomingEvent; bytes: number }[] = [];
  #replayedBytes = 0;
  /** Whether older history has made room for newer. */
  #cut = false;
  #collected: IncomingEvent[] | undefined;
  #ended = false;

  constructor(options: HubOptions) {
    this.#options = options;
  }

  /** Reads from now on: what comes after this call is not missed, however late the first value is asked for. */
  events(filter: EventFilterOptions = {}): AsyncIterableIterator<IncomingEvent> {
    const replay = filter.includeReplay ? this.#replay().filter((event) => this.#isFor(filter, event)) : [];
    const { bounds } = this.#options;
    // Where the reader is, and so where it can go on.
    let last: number | undefined;
    const queue: AsyncQueue<IncomingEvent> = new AsyncQueue({
      onReturn: () => {
        this.#readers.delete(take);
        this.#queues.delete(queue);
      },
      // What was there before does not count: it is in memory anyway.
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
      const why = "there is more history than the eventBuffer has room for, and the oldest is left out";
      this.#options.report(new AgenticError(`${why}; read it in pages, with pubsub.getMessagesBefore`, "lagged"));
    }
  }

  #overrun(last: number | undefined): AgenticError {
    const where = last === undefined ? "" : `, which is after pubsubId ${last}`;
    const error = new AgenticError(
      `a reader of events() has left too much unread, and its events end here${where}; read faster, or allow a larger eventBuffer`,
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
