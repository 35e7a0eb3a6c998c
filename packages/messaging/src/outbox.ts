import type { AttachmentInput } from "./attachments.js";
import { AgenticError, knownCode, quiet } from "./errors.js";
import { type ClientFrame, encodeFrame, type FailureFrame, type WireMessage } from "./wire.js";

/** What the server answered. */
export type Answer = WireMessage | import("./wire.js").HistoryFrame;

interface Pending {
  frame: ClientFrame;
  encoded: string | Uint8Array<ArrayBuffer>;
  /** Whether it may go out a second time: the answer to the first may have been lost, and not the message. */
  again: boolean;
  /** On how many connections it went out. */
  sent: number;
  resolve(answer: Answer | undefined): void;
  reject(error: Error): void;
}

/** What was sent and not answered yet, in its order. It outlives connections. */
export class Outbox {
  readonly #pending = new Map<number, Pending>();
  #nextRef = 1;
  #settled: (() => void)[] = [];

  get size(): number {
    return this.#pending.size;
  }

  /** Enters a frame; `send` is called with it if there is a connection. Throws if it cannot be written as JSON. */
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

  /** The server has answered. Says whether this was waited for. */
  answer(ref: number, answer: Answer): boolean {
    return this.#settle(ref, (pending) => pending.resolve(answer));
  }

  /** The server refuses. */
  refuse(failure: FailureFrame): boolean {
    if (failure.ref === undefined) return false;
    return this.#settle(failure.ref, (pending) => {
      // The first one had arrived: that is why the second one is in its way.
      if (failure.code === "conflict" && pending.sent > 1) return pending.resolve(undefined);
      pending.reject(new AgenticError(failure.error, knownCode(failure.code), failure));
    });
  }

  /**
   * A message of ours came back among what was missed. For a server that cannot tell a message that is sent again, this
   * is the sign that it has it.
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

  /** The connection is gone. What must not go out twice, and may have gone out, fails. */
  disconnected(): void {
    for (const [ref, pending] of [...this.#pending]) {
      if (pending.again || pending.sent === 0) continue;
      const error = new AgenticError("the connection was lost before the message was confirmed", "connection-error");
      this.#settle(ref, () => pending.reject(error));
    }
  }

  /** Sends everything on a new connection. */
  resend(send: (data: string | Uint8Array<ArrayBuffer>) => void): void {
    for (const pending of [...this.#pending.values()]) {
      pending.sent += 1;
      send(pending.encoded);
    }
  }

  fail(error: Error): void {
    for (const ref of [...this.#pending.keys()]) this.#settle(ref, (pending) => pending.reject(error));
  }

  /** Resolves when nothing is waited for, or after this time. */
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
