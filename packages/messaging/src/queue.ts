import type { Bounds } from "./bounds.js";

export interface QueueOptions<T> {
  /** Called once, when the reader leaves or the values end. */
  onReturn?: () => void;
  bounds: Bounds;
  weigh: (value: T) => number;
  /** What the reader is told, after all values that it was given, when one came for which there is no room. */
  overrun: () => Error;
}

/**
 * Values for one reader, in the order in which they came. They end with an error when so many are unread that there is no
 * room for more: nothing is left out in between.
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

  /** Adds a value; says whether it was taken. */
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
    // One always fits, for a reader that is there for it.
    if (isFull && this.#values.length > 0) {
      this.#error = overrun();
      this.end();
      return false;
    }
    this.#bytes += bytes;
    this.#values.push({ value, bytes });
    return true;
  }

  /** No more values will come. Those that are there can still be read. */
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
  /** What a reader gets in place of so many values that there was no room for. */
  lagged: (missed: number) => T;
}

/** Values that every reader gets from the first one on, however late it comes. The oldest make room when there are many. */
export class Replayable<T> implements AsyncIterable<T> {
  readonly #options: ReplayableOptions<T>;
  readonly #values: { value: T; bytes: number }[] = [];
  readonly #waiting: (() => void)[] = [];
  /** How many values have made room. */
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

  /** No more values will come; with an error, readers get that after the last value. */
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
        // More may have made room while that was looked at.
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
