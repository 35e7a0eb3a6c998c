import type { PubSubClient } from "./pubsub.js";

/** Stores the read positions of sessions. `localStorage` is one. */
export interface SessionStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

export interface Checkpoint {
  position?: number;
  epoch?: string;
}

/** For programs without a store: sessions last as long as the process. */
const memory = new Map<string, string>();
const inMemory: SessionStore = {
  getItem: (key) => memory.get(key) ?? null,
  setItem: (key, value) => void memory.set(key, value),
};

/**
 * Remembers the read position of a participant of a workspace in a channel, so that the next connection resumes there.
 */
export class Session {
  readonly #key: string;
  readonly #store: SessionStore;

  constructor(workspaceId: string, channel: string, handle: string, store: SessionStore | undefined) {
    this.#key = `switchboard:${JSON.stringify([workspaceId, channel, handle])}`;
    this.#store = store ?? webStorage() ?? inMemory;
  }

  load(): Checkpoint {
    try {
      const { position, epoch } = JSON.parse(this.#store.getItem(this.#key) ?? "{}") as Checkpoint;
      return {
        ...(typeof position === "number" ? { position } : {}),
        ...(typeof epoch === "string" ? { epoch } : {}),
      };
    } catch {
      // The value was written by another program. The session starts from the beginning.
      return {};
    }
  }

  /** Saves the position until the client ends. */
  follow(pubsub: PubSubClient): void {
    const save = () => {
      try {
        this.#store.setItem(this.#key, JSON.stringify(pubsub.checkpoint));
      } catch (error) {
        pubsub.report(error);
      }
    };
    save();
    pubsub.onMessage((message) => message.id !== undefined && save());
  }
}

function webStorage(): SessionStore | undefined {
  try {
    // Node.js has a `localStorage` that prints a warning and needs a file.
    return typeof document === "undefined" ? undefined : globalThis.localStorage;
  } catch {
    // A page may have no storage, for privacy.
    return undefined;
  }
}
