/** Those who want to hear of something. */
export class Listeners<Args extends unknown[]> {
  readonly #handlers = new Set<{ handle: (...args: Args) => void }>();
  readonly #onFailure: (error: unknown) => void;

  /** `onFailure` hears of a handler that throws: the others are called all the same. */
  constructor(onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  /** Adds a handler, and calls it at once if there is something to say; what comes back removes it. */
  add(handle: (...args: Args) => void, now?: Args): () => void {
    const entry = { handle };
    this.#handlers.add(entry);
    if (now) this.#call(handle, now);
    return () => {
      this.#handlers.delete(entry);
    };
  }

  call(...args: Args): void {
    for (const { handle } of [...this.#handlers]) this.#call(handle, args);
  }

  #call(handle: (...args: Args) => void, args: Args): void {
    try {
      const returned: unknown = handle(...args);
      // An async handler's failure would be nobody's.
      if (returned instanceof Promise) returned.catch(this.#onFailure);
    } catch (error) {
      this.#onFailure(error);
    }
  }

  get size(): number {
    return this.#handlers.size;
  }

  clear(): void {
    this.#handlers.clear();
  }
}
