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
}

/** Everything that comes, for any number of readers. */
export class EventHub {
  readonly #options: HubOptions;
  readonly #readers = new Map<AsyncQueue<IncomingEvent>, EventFilterOptions>();
  readonly #replayed: IncomingEvent[] = [];
  #collected: IncomingEvent[] | undefined;
  #ended = false;

  constructor(options: HubOptions) {
    this.#options = options;
  }

  /** Reads from now on: what comes after this call is not missed, however late the first value is asked for. */
  events(filter: EventFilterOptions = {}): AsyncIterableIterator<IncomingEvent> {
    const reader: AsyncQueue<IncomingEvent> = new AsyncQueue(() => this.#readers.delete(reader));
    this.#readers.set(reader, filter);
    if (filter.includeReplay) for (const event of this.#replay()) this.#offer(reader, filter, event);
    if (this.#ended) reader.end();
    return reader;
  }

  push(event: IncomingEvent): void {
    if (event.kind === "replay") {
      if (this.#options.replayMode !== "skip") this.#replayed.push(event);
      return;
    }
    for (const [reader, filter] of this.#readers) this.#offer(reader, filter, event);
  }

  end(): void {
    this.#ended = true;
    for (const reader of [...this.#readers.keys()]) reader.end();
  }

  #replay(): readonly IncomingEvent[] {
    if (this.#options.replayMode !== "collect") return this.#replayed;
    this.#collected ??= collect(this.#replayed);
    return this.#collected;
  }

  #offer(reader: AsyncQueue<IncomingEvent>, filter: EventFilterOptions, event: IncomingEvent): void {
    if (event.kind === "ephemeral" && !filter.includeEphemeral) return;
    if (event.type !== "presence" && this.#options.isSkipped(event.senderId)) return;
    const { selfId, handle } = this.#options;
    if (filter.targetedOnly && (event.type !== "message" || !isNamed(event, selfId(), handle))) return;
    reader.push(event);
  }
}
