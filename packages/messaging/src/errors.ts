/** What went wrong, for programs. */
export type AgenticErrorCode =
  | "method-not-found"
  | "provider-not-found"
  | "provider-offline"
  | "execution-error"
  | "timeout"
  | "cancelled"
  | "validation-error"
  | "connection-error"
  /** Somebody else in the channel has the handle that `connect` asked for. */
  | "handle-conflict"
  /** So much came and was not read that there was no room for more. */
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

/** A message that does not fit the protocol: one of ours that was not sent, or one that came and was left out. */
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

/** The code that somebody else wrote, where it is one of ours. */
export function knownCode(code: unknown): AgenticErrorCode {
  return typeof code === "string" && CODES.has(code) ? (code as AgenticErrorCode) : "execution-error";
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** For a promise whose failure may be nobody's concern: a rejection that is not looked at is no crash. */
export function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
