export interface ReconnectOptions {
  /** The delay before the first attempt; doubled for each later one. Default 1000. */
  delayMs?: number;
  /** Default 30000. */
  maxDelayMs?: number;
  /** Without a limit, the client reconnects until it is closed. */
  maxAttempts?: number;
}

/** Returns the delay before this attempt (from 1); `undefined` if there are no more attempts. */
export function delayBefore(attempt: number, reconnect: boolean | ReconnectOptions | undefined): number | undefined {
  if (!reconnect) return undefined;
  const {
    delayMs = 1000,
    maxDelayMs = 30_000,
    maxAttempts = Number.POSITIVE_INFINITY,
  } = reconnect === true ? {} : reconnect;
  if (attempt > maxAttempts) return undefined;
  const delay = Math.min(maxDelayMs, delayMs * 2 ** Math.min(attempt - 1, 30));
  // A random part, so that clients do not all reconnect at once after a restart of the server.
  return delay * (0.5 + Math.random() / 2);
}
