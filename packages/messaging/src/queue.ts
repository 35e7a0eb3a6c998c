/** Values for one reader, in the order in which they came. */
export class AsyncQueue<T> implements AsyncIterableIterator<T> {
  readonly #values: T[] = [];
  readonly #waiting: ((result: IteratorResult<T, undefined>) => void)[] = [];
  #ended = false;
  readonly #onReturn: () => void;

  /** `onReturn` is called once, when the reader leaves or the values end. */
  constructor(onReturn: () => void = () => {}) {
    this.#onReturn = onReturn;
  }

  push(value: T): void {
    if (this.#ended) return;
    const reader = this.#waiting.shift();
    if (reader) reader({ done: false, value });
    else this.#values.push(value);
  }

  /** No more values will come. Those that are there can still be read. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const reader of this.#waiting.splice(0)) reader({ done: true, value: undefined });
    this.#onReturn();
  }

  next(): Promise<IteratorResult<T, undefined>> {
    if (this.#values.length > 0) return Promise.resolve({ done: false, value: this.#values.shift() as T });
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.#values.length = 0;
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/** Values that every reader gets from the first one on, however late it comes. */
export class Replayable<T> implements AsyncIterable<T> {
  readonly #values: T[] = [];
  readonly #waiting: (() => void)[] = [];
  #end: { error?: Error } | undefined;

  push(value: T): void {
    if (this.#end) return;
    this.#values.push(value);
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
      while (at >= this.#values.length) {
        if (this.#end?.error) throw this.#end.error;
        if (this.#end) return;
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
      yield this.#values[at] as T;
    }
  }

  #wake(): void {
    for (const reader of this.#waiting.splice(0)) reader();
  }
}
