import { CHANNELS, type ChannelName, type ChannelPrefix } from "./channels.js";

export interface ClientOptions {
  /** How long a getter waits for the host; `Infinity` for as long as it takes. */
  timeoutMs?: number;
  prefix?: ChannelPrefix;
  /** The only origin that is spoken to. Any, if it is not given: a plugin seldom knows who shows it. */
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

/** What came from the host, with its prefix taken off. */
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
 * Sends to the host, and hands out what comes back.
 *
 * Answers of hosts that repeat the question's id go to whoever asked it. Others carry no id, but come in the order of the questions, so
 * they go to whoever has waited longest for their kind. There is a listener only while somebody waits or watches.
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

  /** Sends a question and waits for the message that `isAnswer` recognises. */
  ask(channel: ChannelName, body: object, isAnswer: (message: HostMessage) => boolean): Promise<HostMessage> {
    return new Promise((resolve, reject) => {
      const timeoutMs = this.options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
      // Unlike any id of another copy of this library on the same page.
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
      // Timers take a longer time, infinity among them, for none at all. Who asks for one waits for as long as it takes.
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

  /** Calls back for everything that the host says. Returns how to stop. */
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
      "There is no browser window here. Call this from the plugin's page, not from its server.",
    );
  }

  #prefix(): ChannelPrefix {
    return this.options.prefix ?? "speraxos";
  }

  #silence(channel: ChannelName, timeoutMs: number): string {
    const alone = this.#window().parent === this.#window();
    const why = alone
      ? "this page is not inside a host: open it from a chat"
      : "the host may not know this channel, or not trust this page";
    return `The host did not answer "${this.#prefix()}:${CHANNELS[channel]}" within ${timeoutMs} ms; ${why}.`;
  }
}
