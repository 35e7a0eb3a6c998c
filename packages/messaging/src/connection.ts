import { asError } from "./errors.js";
import { openSocket, type Socket } from "./socket.js";
import { decodeFrame, type ServerFrame } from "./wire.js";

export interface ConnectionHandlers {
  frame(frame: ServerFrame): void;
  /** Something came that cannot be read. It is left out, and the connection goes on. */
  unreadable(error: Error): void;
  /** Called once, unless this side closed it. */
  closed(code: number, reason: string): void;
  /** Asks for something that the server answers at once; says whether there is such a thing. */
  probe(): boolean;
}

/** Nothing has come for so long: time to ask whether the other end is still there. */
const SILENCE_MS = 25_000;
/** It was asked, and this long has it not answered. */
const PATIENCE_MS = 15_000;

/** One socket to the server, from its opening to its end. */
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

  /** Ends it; the handlers hear nothing any more. */
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

  /** A connection whose other end is gone without a word looks like one on which nothing happens. */
  #watch(asked: boolean): void {
    this.#heard = false;
    this.#timer = setTimeout(
      () => {
        if (this.#heard) return this.#watch(false);
        if (!asked && this.#handlers.probe()) return this.#watch(true);
        if (!asked) return this.#watch(false);
        const socket = this.#socket;
        this.#closed(1006, "the server does not answer any more");
        socket?.close();
      },
      asked ? PATIENCE_MS : SILENCE_MS,
    );
    // A client that is waiting for nothing else does not keep a program alive by its watch.
    (this.#timer as { unref?: () => void }).unref?.();
  }
}
