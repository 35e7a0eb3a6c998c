export interface ReconnectOptions {
  /** Before the first attempt; doubled for each one after it. Default 1000. */
  delayMs?: number;
  /** Default 30000. */
  maxDelayMs?: number;
  /** Without one it is tried for as long as the client is not closed. */
  maxAttempts?: number;
}

/** How long to wait before this attempt (from 1); `undefined` when there is to be no more. */
export function delayBefore(attempt: number, reconnect: boolean | ReconnectOptions | undefined): number | undefined {
  if (!reconnect) return undefined;
  const {
    delayMs = 1000,
    maxDelayMs = 30_000,
    maxAttempts = Number.POSITIVE_INFINITY,
  } = reconnect === true ? {} : reconnect;
  if (attempt > maxAttempts) return undefined;
  const delay = Math.min(maxDelayMs, delayMs * 2 ** Math.min(attempt - 1, 30));
  // Not all at once after a restart of the server's.
  return delay * (0.5 + Math.random() / 2);
}
