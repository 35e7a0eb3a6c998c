/** The limits of a frame's requests to its host. */
export interface Limits {
  /** The maximum size of one message, approximately its length as JSON. */
  maxBytes: number;
  maxDepth: number;
  /** The rate of messages per second, and the maximum burst. */
  messagesPerSecond: number;
  messageBurst: number;
  /** The rate of actions that cost money or fill the conversation: triggering the model, new messages. */
  actionsPerMinute: number;
  /** The maximum number of messages that wait for an answer. */
  maxWaiting: number;
  /** A frame is removed after this number of messages above its rate. */
  floodAfter: number;
  /** The maximum state of one message's plugin. */
  maxStateKeys: number;
  maxStateBytes: number;
}

export const DEFAULT_LIMITS: Limits = {
  maxBytes: 1_048_576,
  maxDepth: 64,
  messagesPerSecond: 50,
  messageBurst: 200,
  actionsPerMinute: 20,
  maxWaiting: 64,
  floodAfter: 2_000,
  maxStateKeys: 256,
  maxStateBytes: 1_048_576,
};

/** A token bucket: `burst` at once, `perSecond` on average. */
export class Bucket {
  #tokens: number;
  #filledAt: number;

  constructor(
    private readonly burst: number,
    private readonly perSecond: number,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.#tokens = burst;
    this.#filledAt = now();
  }

  take(): boolean {
    const now = this.now();
    this.#tokens = Math.min(this.burst, this.#tokens + ((now - this.#filledAt) / 1000) * this.perSecond);
    this.#filledAt = now;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}
