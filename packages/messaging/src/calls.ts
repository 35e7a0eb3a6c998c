import { type Bounds, weigh } from "./bounds.js";
import { AgenticError, asError, knownCode, quiet } from "./errors.js";
import type { IncomingMethodResult } from "./events.js";
import type { DiscoveredMethod, MethodResultChunk, MethodResultValue } from "./methods.js";
import { Replayable } from "./queue.js";
import { parse, type ZodSchema } from "./schemas.js";
import { uuid } from "./uuid.js";

export interface CallOptions {
  signal?: AbortSignal;
  /** The maximum duration of the call. Progress does not extend it. */
  timeoutMs?: number;
  /**
   * The maximum time without a sign of activity: each part and each progress report restarts it. Default, without
   * `timeoutMs`: the timeout that the method advertises, or else 60 s.
   */
  idleTimeoutMs?: number;
  /** Validates the arguments before they are sent. */
  validateArgs?: ZodSchema;
}

/** A running call. */
export interface MethodCallHandle {
  readonly callId: string;
  /** The final result; rejects with an `AgenticError`. */
  readonly result: Promise<MethodResultValue>;
  /**
   * Yields every part of the result from the first to the final one, which may be an error. It ends when the call is
   * cancelled. If the call had no answer, it throws the error of `result`.
   */
  readonly stream: AsyncIterable<MethodResultChunk>;
  /**
   * Ends the call at once, and notifies the provider. The result rejects with the code `cancelled`; later output of the
   * provider arrives as an event.
   */
  cancel(): Promise<void>;
  /** Whether the call has ended. */
  readonly complete: boolean;
  readonly isError: boolean;
}

export interface CallHost {
  send(type: "method-call" | "method-cancel", payload: Record<string, unknown>): Promise<unknown>;
  /** The advertised method, or an error that prevents the call. */
  look(providerId: string, methodName: string): { method?: DiscoveredMethod; objection?: AgenticError };
  /** The buffer limits for unread parts of a call. */
  bounds: Bounds;
}

/** The idle timeout of a method that advertises no timeout. */
const DEFAULT_IDLE_TIMEOUT_MS = 60_000;

/** The running calls of this participant. */
export class Calls {
  readonly #host: CallHost;
  readonly #running = new Map<string, Call>();

  constructor(host: CallHost) {
    this.#host = host;
  }

  get size(): number {
    return this.#running.size;
  }

  start(providerId: string, methodName: string, args: unknown, options: CallOptions = {}): MethodCallHandle {
    const call = new Call(providerId, this.#host, () => this.#running.delete(call.callId));
    this.#running.set(call.callId, call);
    void call.run(methodName, args, options);
    return call;
  }

  result(event: IncomingMethodResult): void {
    this.#running.get(event.callId)?.take(event);
  }

  /** Fails the calls to a provider that has left. Only for a server that does not fail them itself. */
  left(providerId: string): void {
    for (const call of [...this.#running.values()]) {
      if (call.providerId === providerId) {
        call.fail(new AgenticError(`"${providerId}" left during the call`, "provider-offline"));
      }
    }
  }

  fail(error: AgenticError): void {
    for (const call of [...this.#running.values()]) call.fail(error);
  }
}

class Call implements MethodCallHandle {
  readonly callId = uuid();
  readonly providerId: string;
  readonly stream: Replayable<MethodResultChunk>;
  readonly result: Promise<MethodResultValue>;
  complete = false;
  isError = false;
  readonly #host: CallHost;
  readonly #forget: () => void;
  #resolve!: (value: MethodResultValue) => void;
  #reject!: (error: Error) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;
  #idleTimeoutMs: number | undefined;
  #unlisten: () => void = () => {};
  #sent = false;

  constructor(providerId: string, host: CallHost, forget: () => void) {
    this.providerId = providerId;
    this.#host = host;
    this.#forget = forget;
    this.stream = new Replayable({
      bounds: host.bounds,
      weigh: ({ content, attachments }) => weigh(content, attachments),
      lagged: (missed) => ({ content: undefined, complete: false, isError: false, missed }),
    });
    this.result = quiet(
      new Promise((resolve, reject) => {
        this.#resolve = resolve;
        this.#reject = reject;
      }),
    );
  }

  async run(methodName: string, args: unknown, options: CallOptions): Promise<void> {
    const { signal, timeoutMs, validateArgs } = options;
    try {
      if (signal?.aborted)
        throw new AgenticError("the call was cancelled before it was sent", "cancelled", signal.reason);
      const abort = () => void this.cancel();
      signal?.addEventListener("abort", abort, { once: true });
      this.#unlisten = () => signal?.removeEventListener("abort", abort);
      const checked = validateArgs && (await parse(validateArgs, args));
      if (checked && "why" in checked) {
        throw new AgenticError(`the arguments are invalid: ${checked.why}`, "validation-error", checked.issues);
      }
      const { method, objection } = this.#host.look(this.providerId, methodName);
      if (objection) throw objection;
      if (this.complete) return;
      const byDefault = timeoutMs === undefined ? (method?.timeout ?? DEFAULT_IDLE_TIMEOUT_MS) : undefined;
      this.#idleTimeoutMs = options.idleTimeoutMs ?? byDefault;
      this.#timer = this.#failAfter(timeoutMs);
      this.#idleTimer = this.#failAfter(this.#idleTimeoutMs);
      this.#sent = true;
      const { callId, providerId } = this;
      // Sends the original arguments: the provider fills in defaults.
      await this.#host.send("method-call", { callId, methodName, providerId, args: args ?? {} });
    } catch (error) {
      this.fail(
        error instanceof AgenticError ? error : new AgenticError(asError(error).message, "execution-error", error),
      );
    }
  }

  take(event: IncomingMethodResult): void {
    // Only the called provider can answer.
    if (this.complete || event.senderId !== this.providerId) return;
    const { content, contentType, attachments, complete, isError, progress } = event;
    const value: MethodResultValue = {
      content,
      ...(contentType === undefined ? {} : { contentType }),
      ...(attachments ? { attachments } : {}),
    };
    const over = complete || isError;
    this.stream.push({ ...value, complete: over, isError, ...(progress === undefined ? {} : { progress }) });
    if (isError) this.fail(failureOf(content), true);
    else if (over) this.#end(() => this.#resolve(value));
    else {
      clearTimeout(this.#idleTimer);
      this.#idleTimer = this.#failAfter(this.#idleTimeoutMs);
    }
  }

  cancel(): Promise<void> {
    if (this.complete) return Promise.resolve();
    this.fail(new AgenticError("the call was cancelled", "cancelled"));
    return this.#sent ? quiet(this.#cancelProvider()) : Promise.resolve();
  }

  /** Ends the call with an error. Readers of the parts get it too, unless it is a part itself or a cancellation. */
  fail(error: AgenticError, isAmongParts = error.code === "cancelled"): void {
    if (this.complete) return;
    this.isError = true;
    this.#end(() => this.#reject(error), isAmongParts ? undefined : error);
  }

  #end(settle: () => void, error?: Error): void {
    if (this.complete) return;
    this.complete = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#idleTimer);
    this.#unlisten();
    this.#forget();
    settle();
    this.stream.end(error);
  }

  #failAfter(ms: number | undefined): ReturnType<typeof setTimeout> | undefined {
    // Timers have 31 bits; more than 24 days means no timeout.
    if (ms === undefined || ms >= 2 ** 31) return undefined;
    return setTimeout(() => {
      this.fail(new AgenticError(`"${this.providerId}" did not answer within ${ms} ms`, "timeout"));
      void quiet(this.#cancelProvider());
    }, ms);
  }

  async #cancelProvider(): Promise<void> {
    await this.#host.send("method-cancel", { callId: this.callId });
  }
}

/** Converts an error result into an error. */
function failureOf(content: unknown): AgenticError {
  const failure =
    typeof content === "object" && content !== null ? (content as { error?: unknown; code?: unknown }) : {};
  const message =
    typeof failure.error === "string" ? failure.error : typeof content === "string" ? content : "the method failed";
  return new AgenticError(message, knownCode(failure.code), content);
}
