import { CHANNELS, type ChannelName, type ChannelPrefix } from "./channels.js";

export interface ClientOptions {
  /** The timeout of a getter; `Infinity` for no timeout. */
  timeoutMs?: number;
  prefix?: ChannelPrefix;
  /** The only accepted origin. Default: any origin, because a plugin rarely knows its host. */
  hostOrigin?: string;
  /** The plugin's own window. */
  window?: Window;
}

export const DEFAULT_TIMEOUT_MS = 10_000;
const LONGEST_MS = 2_147_483_647;

/** The host did not answer, or there is none. */
export class PluginHostError extends Error {
  override readonly name = "PluginHostError";

  constructor(
    readonly code: "timeout" | "no-window" | "not-sent" | "bad-answer",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A message of the host, without its prefix. */
export interface HostMessage {
  channel: string;
  data: Record<string, unknown>;
}

interface Waiter {
  requestId: string;
  isAnswer(message: HostMessage): boolean;
  answer(message: HostMessage): void;
}

/**
 * Sends messages to the host, and distributes the received ones.
 *
 * If a host repeats the request's id, the answer goes to that request. Other answers have no id, but come in the order
 * of the requests. They go to the oldest waiting request of their kind. There is a listener only while there is a
 * request or a watcher.
 */
export class Mailbox {
  readonly #waiters = new Set<Waiter>();
  readonly #watchers = new Set<(message: HostMessage, answered: boolean) => void>();
  #listening: Window | undefined;
  #nextId = 1;

  constructor(public options: ClientOptions) {}

  send(channel: ChannelName, body: object = {}): void {
    const window = this.#window();
    const type = `${this.#prefix()}:${CHANNELS[channel]}`;
    try {
      window.parent.postMessage({ ...body, type }, this.options.hostOrigin ?? "*");
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new PluginHostError(
        "not-sent",
        `"${type}" could not be sent to the host: ${reason}. Send plain data only.`,
        { cause: error },
      );
    }
  }

  /** Sends a request and waits for the message that satisfies `isAnswer`. */
  ask(channel: ChannelName, body: object, isAnswer: (message: HostMessage) => boolean): Promise<HostMessage> {
    return new Promise((resolve, reject) => {
      const timeoutMs = this.options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
      // Differs from any id of another copy of this library on the same page.
      const requestId = `${this.#nextId++}-${Math.random().toString(36).slice(2)}`;
      const leave = (): void => {
        clearTimeout(timer);
        this.#waiters.delete(waiter);
        this.#rest();
      };
      const waiter: Waiter = {
        requestId,
        isAnswer,
        answer(message) {
          leave();
          resolve(message);
        },
      };
      const giveUp = (): void => {
        leave();
        reject(new PluginHostError("timeout", this.#silence(channel, timeoutMs)));
      };
      // Timers treat a longer time, including infinity, as zero. In this case there is no timeout.
      const timer = timeoutMs <= LONGEST_MS ? setTimeout(giveUp, timeoutMs) : undefined;
      try {
        this.#listen();
        this.#waiters.add(waiter);
        this.send(channel, { ...body, requestId });
      } catch (error) {
        leave();
        reject(error);
      }
    });
  }

  /** Calls back for every message of the host. Returns a function that stops it. */
  watch(callback: (message: HostMessage, answered: boolean) => void): () => void {
    const watcher = (message: HostMessage, answered: boolean): void => callback(message, answered);
    this.#listen();
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
      this.#rest();
    };
  }

  readonly #receive = (event: MessageEvent): void => {
    if (!this.#listening || event.source === null || event.source !== this.#listening.parent) return;
    if (this.options.hostOrigin !== undefined && event.origin !== this.options.hostOrigin) return;
    const data: unknown = event.data;
    if (typeof data !== "object" || data === null || !("type" in data) || typeof data.type !== "string") return;
    const prefix = `${this.#prefix()}:`;
    if (!data.type.startsWith(prefix)) return;
    const message = { channel: data.type.slice(prefix.length), data: data as Record<string, unknown> };
    const { requestId } = message.data;
    const waiter = [...this.#waiters].find(
      (candidate) => (requestId === undefined || candidate.requestId === requestId) && candidate.isAnswer(message),
    );
    waiter?.answer(message);
    for (const watcher of [...this.#watchers]) watcher(message, waiter !== undefined || requestId !== undefined);
  };

  #listen(): void {
    if (this.#listening) return;
    const window = this.#window();
    window.addEventListener("message", this.#receive);
    this.#listening = window;
  }

  #rest(): void {
    if (this.#waiters.size + this.#watchers.size > 0) return;
    this.#listening?.removeEventListener("message", this.#receive);
    this.#listening = undefined;
  }

  #window(): Window {
    const window = this.options.window ?? (typeof globalThis.window === "object" ? globalThis.window : undefined);
    if (window) return window;
    throw new PluginHostError(
      "no-window",
      "There is no browser window. Call this function in the plugin's page, not on its server.",
    );
  }

  #prefix(): ChannelPrefix {
    return this.options.prefix ?? "speraxos";
  }

  #silence(channel: ChannelName, timeoutMs: number): string {
    const alone = this.#window().parent === this.#window();
    const why = alone
      ? "this page is not embedded in a host; open it from a chat"
      : "the host may not support this channel, or not trust this page";
    return `The host did not answer "${this.#prefix()}:${CHANNELS[channel]}" within ${timeoutMs} ms; ${why}.`;
  }
}
