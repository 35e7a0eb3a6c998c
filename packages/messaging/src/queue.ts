import type { Bounds } from "./bounds.js";

export interface QueueOptions<T> {
  /** Called once, when the reader leaves or the values end. */
  onReturn?: () => void;
  bounds: Bounds;
  weigh: (value: T) => number;
  /** Creates the error that the reader gets, after all buffered values, when a value exceeds the buffer. */
  overrun: () => Error;
}

/**
 * A queue of values for one reader, in order. If unread values exceed the buffer, the queue ends with an error; no
 * value is missing in between.
 */
export class AsyncQueue<T> implements AsyncIterableIterator<T> {
  readonly #values: { value: T; bytes: number }[] = [];
  readonly #waiting: ((result: IteratorResult<T, undefined>) => void)[] = [];
  readonly #options: QueueOptions<T>;
  #bytes = 0;
  #ended = false;
  #error: Error | undefined;

  constructor(options: QueueOptions<T>) {
    this.#options = options;
  }

  /** Adds a value; returns whether it was accepted. */
  push(value: T): boolean {
    if (this.#ended) return false;
    const reader = this.#waiting.shift();
    if (reader) {
      reader({ done: false, value });
      return true;
    }
    const { bounds, weigh, overrun } = this.#options;
    const bytes = weigh(value);
    const isFull = this.#values.length >= bounds.events || this.#bytes + bytes > bounds.bytes;
    // One value is always accepted, so that an active reader can get it.
    if (isFull && this.#values.length > 0) {
      this.#error = overrun();
      this.end();
      return false;
    }
    this.#bytes += bytes;
    this.#values.push({ value, bytes });
    return true;
  }

  /** Ends the queue. Buffered values can still be read. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const reader of this.#waiting.splice(0)) reader({ done: true, value: undefined });
    this.#options.onReturn?.();
  }

  next(): Promise<IteratorResult<T, undefined>> {
    const next = this.#values.shift();
    if (next) {
      this.#bytes -= next.bytes;
      return Promise.resolve({ done: false, value: next.value });
    }
    const error = this.#error;
    this.#error = undefined;
    if (error) return Promise.reject(error);
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.#values.length = 0;
    this.#error = undefined;
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

export interface ReplayableOptions<T> {
  bounds: Bounds;
  weigh: (value: T) => number;
  /** Creates the value that a reader gets in place of this number of dropped values. */
  lagged: (missed: number) => T;
}

/**
 * Values that every reader gets from the first one on, even if it starts late. The oldest are dropped beyond the limit.
 */
export class Replayable<T> implements AsyncIterable<T> {
  readonly #options: ReplayableOptions<T>;
  readonly #values: { value: T; bytes: number }[] = [];
  readonly #waiting: (() => void)[] = [];
  /** The number of dropped values. */
  #dropped = 0;
  #bytes = 0;
  #end: { error?: Error } | undefined;

  constructor(options: ReplayableOptions<T>) {
    this.#options = options;
  }

  push(value: T): void {
    if (this.#end) return;
    const { bounds, weigh } = this.#options;
    const bytes = weigh(value);
    this.#values.push({ value, bytes });
    this.#bytes += bytes;
    while (this.#values.length > 1 && (this.#values.length > bounds.events || this.#bytes > bounds.bytes)) {
      this.#bytes -= this.#values.shift()?.bytes ?? 0;
      this.#dropped += 1;
    }
    this.#wake();
  }

  /** Ends the values; readers get the error, if any, after the last value. */
  end(error?: Error): void {
    if (this.#end) return;
    this.#end = error ? { error } : {};
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (let at = 0; ; at += 1) {
      while (at >= this.#dropped + this.#values.length) {
        if (this.#end?.error) throw this.#end.error;
        if (this.#end) return;
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
      const missed = this.#dropped - at;
      if (missed > 0) {
        at = this.#dropped;
        yield this.#options.lagged(missed);
        // More values may have been dropped while the reader handled this one.
        at -= 1;
        continue;
      }
      yield (this.#values[at - this.#dropped] as { value: T }).value;
    }
  }

  #wake(): void {
    for (const reader of this.#waiting.splice(0)) reader();
  }
}
