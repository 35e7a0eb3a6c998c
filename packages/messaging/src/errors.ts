/** Error codes for programs. */
export type AgenticErrorCode =
  | "method-not-found"
  | "provider-not-found"
  | "provider-offline"
  | "execution-error"
  | "timeout"
  | "cancelled"
  | "validation-error"
  | "connection-error"
  /** Another participant in the channel has the handle of this `connect`. */
  | "handle-conflict"
  /** Unread values exceeded the buffer limit. */
  | "lagged";

const CODES: ReadonlySet<string> = new Set<AgenticErrorCode>([
  "method-not-found",
  "provider-not-found",
  "provider-offline",
  "execution-error",
  "timeout",
  "cancelled",
  "validation-error",
  "connection-error",
  "handle-conflict",
  "lagged",
]);

export class AgenticError extends Error {
  readonly code: AgenticErrorCode;

  constructor(message: string, code: AgenticErrorCode, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "AgenticError";
    this.code = code;
  }
}

/** A message that violates the protocol: an outgoing one that was not sent, or an incoming one that was dropped. */
export class ValidationError extends AgenticError {
  readonly direction: "send" | "receive";
  readonly details: unknown;

  constructor(message: string, direction: "send" | "receive", details?: unknown) {
    super(message, "validation-error");
    this.name = "ValidationError";
    this.direction = direction;
    this.details = details;
  }
}

/** Returns a received error code if it is known, and `execution-error` otherwise. */
export function knownCode(code: unknown): AgenticErrorCode {
  return typeof code === "string" && CODES.has(code) ? (code as AgenticErrorCode) : "execution-error";
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** Prevents a crash by an unhandled rejection, because the caller may ignore the promise. */
export function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
