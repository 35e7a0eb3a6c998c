import type { AttachmentInput } from "./attachments.js";
import { AgenticError, asError, quiet, ValidationError } from "./errors.js";
import type { IncomingMethodCall, IncomingMethodResult } from "./events.js";
import { type Method, type MethodExecutionContext, MethodResultWithAttachments } from "./methods.js";
import type { Payload } from "./protocol.js";

/** The number of ended calls that are remembered, so that no call runs twice. */
const REMEMBERED = 1000;
/** The maximum number of methods that run at once. */
const MAX_RUNNING = 1000;
/** The time that a method has to end after a cancel. After it, the call is answered without the method. */
const CANCEL_GRACE_MS = 5000;

/** Publishes a result with its `attachments`. */
export type SendResult = (
  payload: Payload<"method-result">,
  attachments?: readonly AttachmentInput[],
) => Promise<unknown>;

interface Running {
  callerId: string;
  abort: AbortController;
  /** Whether its last result was sent, or is being sent. */
  ended: boolean;
  /** Ends the call if it was cancelled and the method does not end by itself. */
  timer?: ReturnType<typeof setTimeout>;
}

/** Runs the methods of this participant for other participants. */
export class Provider {
  readonly #methods: Record<string, Method>;
  readonly #send: SendResult;
  readonly #report: (error: Error) => void;
  readonly #running = new Map<string, Running>();
  readonly #known = new Set<string>();
  /** Calls that arrived while the client was disconnected, until it is known whether they are still open. */
  readonly #missed = new Map<string, IncomingMethodCall>();

  constructor(methods: Record<string, Method>, send: SendResult, report: (error: Error) => void) {
    this.#methods = methods;
    this.#send = send;
    this.#report = report;
  }

  /** Whether the method exists. */
  has(method: string): boolean {
    return Object.hasOwn(this.#methods, method);
  }

  /** Runs a call, unless it ran before. */
  call(event: IncomingMethodCall): void {
    if (this.#known.has(event.callId)) return;
    this.#remember(event.callId);
    void this.#run(event);
  }

  /** Records a call that arrived while the client was disconnected. */
  missed(event: IncomingMethodCall): void {
    // A call from outside the channel has already failed, together with its connection.
    if (event.senderMetadata?.type !== "gateway") this.#missed.set(event.callId, event);
  }

  /** Runs the missed calls that are still open, after all missed messages. */
  runMissed(): void {
    const calls = [...this.#missed.values()];
    this.#missed.clear();
    for (const call of calls) this.call(call);
  }

  cancel(callId: string, senderId: string): void {
    this.#missed.delete(callId);
    const running = this.#running.get(callId);
    if (running?.callerId !== senderId) return;
    running.abort.abort(new AgenticError("the caller cancelled the call", "cancelled"));
    running.timer ??= setTimeout(() => this.#giveUp(callId, running), CANCEL_GRACE_MS);
    // A method that never ends must not keep a program alive with this timer.
    (running.timer as { unref?: () => void }).unref?.();
  }

  /** Handles an answer of another sender: the server answers for a provider that it considers disconnected. */
  answered({ callId, complete }: IncomingMethodResult): void {
    if (!complete) return;
    this.#missed.delete(callId);
    const running = this.#running.get(callId);
    if (running && !running.ended) {
      running.ended = true;
      running.abort.abort(new AgenticError("the result is no longer needed", "cancelled"));
    }
  }

  /** Aborts all calls. */
  close(): void {
    this.#missed.clear();
    for (const running of this.#running.values()) {
      running.ended = true;
      clearTimeout(running.timer);
      running.abort.abort(new AgenticError("the client is closed", "cancelled"));
    }
  }

  async #run({ callId, methodName, senderId, args }: IncomingMethodCall): Promise<void> {
    const running: Running = { callerId: senderId, abort: new AbortController(), ended: false };
    if (this.#running.size >= MAX_RUNNING) {
      const busy = `this participant is already running ${MAX_RUNNING} calls; try again when some have ended`;
      return await this.#fail(callId, new AgenticError(busy, "execution-error"));
    }
    this.#running.set(callId, running);
    let outcome: MethodResultWithAttachments;
    let isError = false;
    try {
      outcome = await this.#execute(callId, methodName, args, running);
    } catch (error) {
      isError = true;
      outcome = new MethodResultWithAttachments(failure(error, running.abort.signal.aborted), []);
    }
    this.#running.delete(callId);
    clearTimeout(running.timer);
    if (running.ended) return;
    running.ended = true;
    await this.#finish(callId, outcome, isError);
  }

  async #execute(
    callId: string,
    methodName: string,
    args: unknown,
    running: Running,
  ): Promise<MethodResultWithAttachments> {
    const method = this.has(methodName) ? this.#methods[methodName] : undefined;
    if (!method) throw new AgenticError(`this participant has no method "${methodName}"`, "method-not-found");
    const read = await method.parameters.check(args ?? {});
    if ("why" in read) throw new AgenticError(`the arguments are invalid: ${read.why}`, "validation-error");
    // A call that was aborted before its method starts does not start it.
    running.abort.signal.throwIfAborted();
    const returned = await method.definition.execute(read.value, this.#context(callId, running));
    const outcome =
      returned instanceof MethodResultWithAttachments ? returned : new MethodResultWithAttachments(returned, []);
    const fits = await method.returns?.check(outcome.content);
    if (fits && "why" in fits) {
      throw new AgenticError(`the result does not match its schema: ${fits.why}`, "validation-error");
    }
    return outcome;
  }

  async #finish(callId: string, outcome: MethodResultWithAttachments, isError: boolean): Promise<void> {
    const { content, attachments, contentType } = outcome;
    const payload = {
      callId,
      ...(content === undefined ? {} : { content }),
      ...(contentType === undefined ? {} : { contentType }),
      complete: true,
      isError,
    };
    try {
      await this.#send(payload, attachments);
    } catch (error) {
      // The call has ended without this result, or the connection is closed. No caller needs the result.
      if (!(error instanceof AgenticError) || error.code !== "validation-error") return;
      this.#report(error);
      if (isError) return;
      await this.#fail(callId, new AgenticError(`the result could not be sent: ${error.message}`, "execution-error"));
    }
  }

  async #fail(callId: string, reason: AgenticError): Promise<void> {
    await this.#finish(callId, new MethodResultWithAttachments(failure(reason, false), []), true);
  }

  /** Ends a call with a cancelled method that continues. Its later result is ignored. */
  #giveUp(callId: string, running: Running): void {
    this.#running.delete(callId);
    if (running.ended) return;
    running.ended = true;
    const reason = "the call was cancelled, and the method did not end in time";
    void this.#fail(callId, new AgenticError(reason, "cancelled"));
  }

  #context(callId: string, running: Running): MethodExecutionContext {
    const part = async (
      payload: Omit<Payload<"method-result">, "callId">,
      attachments?: readonly AttachmentInput[],
    ) => {
      if (running.ended) throw new AgenticError("the call has ended", "execution-error");
      await this.#send({ callId, ...payload, complete: false, isError: false }, attachments);
    };
    const progress = async (percent: number) => {
      if (typeof percent !== "number" || Number.isNaN(percent)) {
        throw new ValidationError("progress must be a number from 0 to 100", "send", percent);
      }
      await part({ progress: Math.min(100, Math.max(0, percent)) });
    };
    // A method that does not await its parts must not fail because of an unsent one.
    return {
      callId,
      callerId: running.callerId,
      signal: running.abort.signal,
      stream: (content) => quiet(part({ content })),
      streamWithAttachments: (content, attachments, { contentType } = {}) =>
        quiet(part({ content, ...(contentType === undefined ? {} : { contentType }) }, attachments)),
      resultWithAttachments: (content, attachments, options) =>
        new MethodResultWithAttachments(content, attachments, options),
      progress: (percent) => quiet(progress(percent)),
    };
  }

  #remember(callId: string): void {
    this.#known.add(callId);
    if (this.#known.size <= REMEMBERED) return;
    const [oldest] = this.#known;
    if (oldest !== undefined) this.#known.delete(oldest);
  }
}

function failure(thrown: unknown, aborted: boolean): { error: string; code: string } {
  const error = asError(thrown);
  if (error instanceof AgenticError) return { error: error.message, code: error.code };
  const cancelled = aborted || error.name === "AbortError";
  return { error: error.message, code: cancelled ? "cancelled" : "execution-error" };
}
