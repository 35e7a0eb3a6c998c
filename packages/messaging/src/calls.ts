import { type Bounds, weigh } from "./bounds.js";
import { AgenticError, asError, knownCode, quiet } from "./errors.js";
import type { IncomingMethodResult } from "./events.js";
import type { DiscoveredMethod, MethodResultChunk, MethodResultValue } from "./methods.js";
import { Replayable } from "./queue.js";
import { parse, type ZodSchema } from "./schemas.js";
import { uuid } from "./uuid.js";

export interface CallOptions {
  signal?: AbortSignal;
  /** How long to wait for the result. Default: what the method advertises. */
  timeoutMs?: number;
  /** The arguments are checked by this before they are sent. */
  validateArgs?: ZodSchema;
}

/** A call on its way. */
export interface MethodCallHandle {
  readonly callId: string;
  /** The final result; fails with an `AgenticError`. */
  readonly result: Promise<MethodResultValue>;
  /**
   * Every part of the result from the first on, the final one included, which may say that it is an error. It ends when the
   * call is cancelled, and throws what `result` fails with when the call had no answer at all.
   */
  readonly stream: AsyncIterable<MethodResultChunk>;
  /**
   * Ends the call at once, and tells the provider to stop. The result fails with the code `cancelled`; what the provider still
   * has to say comes as an event.
   */
  cancel(): Promise<void>;
  /** Whether it is over. */
  readonly complete: boolean;
  readonly isError: boolean;
}

export interface CallHost {
  send(type: "method-call" | "method-cancel", payload: Record<string, unknown>): Promise<unknown>;
  /** What is known about the method, and what speaks against calling it. */
  look(providerId: string, methodName: string): { method?: DiscoveredMethod; objection?: AgenticError };
  /** How much of a call's parts is kept for who has not read them. */
  bounds: Bounds;
}

/** For a method that says nothing about its time: so long may it be without a sign of life. */
const DEFAULT_TIMEOUT_MS = 60_000;

/** The calls that this participant has made and that are not over. */
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

  /** A provider is gone, on a server that does not see to its calls. */
  left(providerId: string): void {
    for (const call of [...this.#running.values()]) {
      if (call.providerId === providerId) {
        call.fail(new AgenticError(`"${providerId}" left in the middle of the call`, "provider-offline"));
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
  /** Set anew by each sign of life, where the time is a default. */
  #patienceMs: number | undefined;
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

  async run(methodName: string, args: unknown, { signal, timeoutMs, validateArgs }: CallOptions): Promise<void> {
    try {
      if (signal?.aborted)
        throw new AgenticError("the call was cancelled before it was made", "cancelled", signal.reason);
      const abort = () => void this.cancel();
      signal?.addEventListener("abort", abort, { once: true });
      this.#unlisten = () => signal?.removeEventListener("abort", abort);
      const checked = validateArgs && (await parse(validateArgs, args));
      if (checked && "why" in checked) {
        throw new AgenticError(`the arguments do not fit: ${checked.why}`, "validation-error", checked.issues);
      }
      const { method, objection } = this.#host.look(this.providerId, methodName);
      if (objection) throw objection;
      if (this.complete) return;
      const limit = timeoutMs ?? method?.timeout;
      if (limit === undefined) this.#patienceMs = DEFAULT_TIMEOUT_MS;
      this.#wait(limit ?? DEFAULT_TIMEOUT_MS);
      this.#sent = true;
      const { callId, providerId } = this;
      // The arguments as they were given: defaults are the provider's to fill in.
      await this.#host.send("method-call", { callId, methodName, providerId, args: args ?? {} });
    } catch (error) {
      this.fail(
        error instanceof AgenticError ? error : new AgenticError(asError(error).message, "execution-error", error),
      );
    }
  }

  take(event: IncomingMethodResult): void {
    // Only who was asked can answer.
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
    else if (this.#patienceMs !== undefined) this.#wait(this.#patienceMs);
  }

  cancel(): Promise<void> {
    if (this.complete) return Promise.resolve();
    this.fail(new AgenticError("the call was cancelled", "cancelled"));
    return this.#sent ? quiet(this.#tellProvider()) : Promise.resolve();
  }

  /** Ends it badly. Who reads its parts is told, unless the error is among them, or was asked for. */
  fail(error: AgenticError, isAmongParts = error.code === "cancelled"): void {
    if (this.complete) return;
    this.isError = true;
    this.#end(() => this.#reject(error), isAmongParts ? undefined : error);
  }

  #end(settle: () => void, error?: Error): void {
    if (this.complete) return;
    this.complete = true;
    clearTimeout(this.#timer);
    this.#unlisten();
    this.#forget();
    settle();
    this.stream.end(error);
  }

  #wait(ms: number): void {
    clearTimeout(this.#timer);
    // Timers have 31 bits; more than 24 days is for ever.
    if (ms >= 2 ** 31) return;
    this.#timer = setTimeout(() => {
      this.fail(new AgenticError(`"${this.providerId}" did not answer within ${ms} ms`, "timeout"));
      void quiet(this.#tellProvider());
    }, ms);
  }

  async #tellProvider(): Promise<void> {
    await this.#host.send("method-cancel", { callId: this.callId });
  }
}

/** What an error result says. */
function failureOf(content: unknown): AgenticError {
  const said = typeof content === "object" && content !== null ? (content as { error?: unknown; code?: unknown }) : {};
  const message =
    typeof said.error === "string" ? said.error : typeof content === "string" ? content : "the method failed";
  return new AgenticError(message, knownCode(said.code), content);
}
