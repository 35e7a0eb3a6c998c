import { asError } from "./errors.js";
import { openSocket, type Socket } from "./socket.js";
import { decodeFrame, type ServerFrame } from "./wire.js";

export interface ConnectionHandlers {
  frame(frame: ServerFrame): void;
  /** Called for an unreadable message. The message is dropped, and the connection continues. */
  unreadable(error: Error): void;
  /** Called once, unless this side closed the connection. */
  closed(code: number, reason: string): void;
  /** Sends a request that the server answers at once. Returns whether the server supports such a request. */
  probe(): boolean;
}

/** The idle time after which the client probes the server. */
const SILENCE_MS = 25_000;
/** The timeout of the probe's answer. */
const PATIENCE_MS = 15_000;

/** One socket to the server, from open to close. */
export class Connection {
  readonly #handlers: ConnectionHandlers;
  #socket: Socket | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #heard = false;

  static async open(url: string, handlers: ConnectionHandlers): Promise<Connection> {
    const connection = new Connection(handlers);
    connection.#socket = await openSocket(url, {
      message: (data) => connection.#message(data),
      closed: (code, reason) => connection.#closed(code, reason),
    });
    connection.#watch(false);
    return connection;
  }

  private constructor(handlers: ConnectionHandlers) {
    this.#handlers = handlers;
  }

  send(data: string | Uint8Array<ArrayBuffer>): void {
    this.#socket?.send(data);
  }

  /** Closes the socket; the handlers are not called any more. */
  close(code?: number, reason?: string): void {
    const socket = this.#socket;
    this.#forget();
    socket?.close(code, reason);
  }

  #message(data: string | Uint8Array): void {
    this.#heard = true;
    let frame: ServerFrame | undefined;
    try {
      frame = decodeFrame(data);
    } catch (error) {
      this.#handlers.unreadable(asError(error));
      return;
    }
    if (frame) this.#handlers.frame(frame);
  }

  #closed(code: number, reason: string): void {
    if (!this.#socket) return;
    this.#forget();
    this.#handlers.closed(code, reason);
  }

  #forget(): void {
    this.#socket = undefined;
    clearTimeout(this.#timer);
  }

  /** Detects a lost server. Without a probe, a lost connection looks like an idle one. */
  #watch(asked: boolean): void {
    this.#heard = false;
    this.#timer = setTimeout(
      () => {
        if (this.#heard) return this.#watch(false);
        if (!asked && this.#handlers.probe()) return this.#watch(true);
        if (!asked) return this.#watch(false);
        const socket = this.#socket;
        this.#closed(1006, "the server does not answer");
        socket?.close();
      },
      asked ? PATIENCE_MS : SILENCE_MS,
    );
    // The timer must not keep a program alive that waits for nothing else.
    (this.#timer as { unref?: () => void }).unref?.();
  }
}
