import type { PubSubClient } from "./pubsub.js";

/** Where a session's place in its channel is kept. `localStorage` is one. */
export interface SessionStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

export interface Checkpoint {
  position?: number;
  epoch?: string;
}

/** For programs without a store: sessions last as long as the program. */
const memory = new Map<string, string>();
const inMemory: SessionStore = {
  getItem: (key) => memory.get(key) ?? null,
  setItem: (key, value) => void memory.set(key, value),
};

/** Remembers how far a participant of a workspace has read a channel, so that the next connection goes on there. */
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
      // Somebody else's value. The session begins anew.
      return {};
    }
  }

  /** Keeps the place up to date until the client ends. */
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
    // Node.js has one that warns, and that needs a file.
    return typeof document === "undefined" ? undefined : globalThis.localStorage;
  } catch {
    // A page may be without, for its privacy.
    return undefined;
  }
}
