/** A set of handlers for one kind of event. */
export class Listeners<Args extends unknown[]> {
  readonly #handlers = new Set<{ handle: (...args: Args) => void }>();
  readonly #onFailure: (error: unknown) => void;

  /** `onFailure` receives the error of a handler that throws; the other handlers are still called. */
  constructor(onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  /** Adds a handler, and calls it at once with `now` if given. Returns a function that removes it. */
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
      // Otherwise the failure of an async handler would be unhandled.
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
