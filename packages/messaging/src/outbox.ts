import type { AttachmentInput } from "./attachments.js";
import { AgenticError, knownCode, quiet } from "./errors.js";
import { type ClientFrame, encodeFrame, type FailureFrame, type WireMessage } from "./wire.js";

/** The server's answer. */
export type Answer = WireMessage | import("./wire.js").HistoryFrame;

interface Pending {
  frame: ClientFrame;
  encoded: string | Uint8Array<ArrayBuffer>;
  /**
   * Whether the frame may be sent a second time: the server may have received the first one, and only the answer was
   * lost.
   */
  again: boolean;
  /** The number of connections that it was sent on. */
  sent: number;
  resolve(answer: Answer | undefined): void;
  reject(error: Error): void;
}

/** Sent frames without an answer, in order. They survive lost connections. */
export class Outbox {
  readonly #pending = new Map<number, Pending>();
  #nextRef = 1;
  #settled: (() => void)[] = [];

  get size(): number {
    return this.#pending.size;
  }

  /** Adds a frame; calls `send` with it if there is a connection. Throws if it cannot be written as JSON. */
  add(
    make: (ref: number) => ClientFrame,
    attachments: readonly AttachmentInput[],
    again: boolean,
    send: ((data: string | Uint8Array<ArrayBuffer>) => void) | undefined,
  ): Promise<Answer | undefined> {
    const ref = this.#nextRef++;
    const frame = make(ref);
    const encoded = encodeFrame(frame, attachments);
    const answered = new Promise<Answer | undefined>((resolve, reject) => {
      this.#pending.set(ref, { frame, encoded, again, sent: send ? 1 : 0, resolve, reject });
    });
    send?.(encoded);
    return quiet(answered);
  }

  /** Handles an answer of the server. Returns whether a frame was waiting for it. */
  answer(ref: number, answer: Answer): boolean {
    return this.#settle(ref, (pending) => pending.resolve(answer));
  }

  /** Handles a refusal of the server. */
  refuse(failure: FailureFrame): boolean {
    if (failure.ref === undefined) return false;
    return this.#settle(failure.ref, (pending) => {
      // A conflict on the second attempt means that the server has the first one.
      if (failure.code === "conflict" && pending.sent > 1) return pending.resolve(undefined);
      pending.reject(new AgenticError(failure.error, knownCode(failure.code), failure));
    });
  }

  /**
   * Handles a missed message that may be one of ours. If the server cannot detect duplicates, this confirms that it has
   * the message.
   */
  recognise(message: WireMessage): void {
    const payload = JSON.stringify(message.payload);
    for (const [ref, { frame, sent }] of this.#pending) {
      if (sent === 0 || frame.action !== "publish" || !frame.persist || frame.type !== message.type) continue;
      if (JSON.stringify(frame.payload) !== payload) continue;
      this.answer(ref, message);
      return;
    }
  }

  /** Called when the connection is lost. Fails the frames that may have been sent and must not be sent twice. */
  disconnected(): void {
    for (const [ref, pending] of [...this.#pending]) {
      if (pending.again || pending.sent === 0) continue;
      const error = new AgenticError("the connection was lost before the message was confirmed", "connection-error");
      this.#settle(ref, () => pending.reject(error));
    }
  }

  /** Sends all frames on a new connection. */
  resend(send: (data: string | Uint8Array<ArrayBuffer>) => void): void {
    for (const pending of [...this.#pending.values()]) {
      pending.sent += 1;
      send(pending.encoded);
    }
  }

  fail(error: Error): void {
    for (const ref of [...this.#pending.keys()]) this.#settle(ref, (pending) => pending.reject(error));
  }

  /** Resolves when no frame is pending, or after the timeout. */
  async empty(withinMs: number): Promise<void> {
    if (this.#pending.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, withinMs);
      this.#settled.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #settle(ref: number, how: (pending: Pending) => void): boolean {
    const pending = this.#pending.get(ref);
    if (!pending) return false;
    this.#pending.delete(ref);
    how(pending);
    if (this.#pending.size === 0) for (const settled of this.#settled.splice(0)) settled();
    return true;
  }
}
