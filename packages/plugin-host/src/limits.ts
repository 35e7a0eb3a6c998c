/** How much a frame may ask of its host. */
export interface Limits {
  /** Size of one message, roughly its length as JSON. */
  maxBytes: number;
  maxDepth: number;
  /** Messages a second, and how many of them may come at once. */
  messagesPerSecond: number;
  messageBurst: number;
  /** What costs the user money or fills the conversation: triggering the model, new messages. */
  actionsPerMinute: number;
  /** Messages that wait for an answer at the same time. */
  maxWaiting: number;
  /** A frame that had this many messages refused for their rate is taken down. */
  floodAfter: number;
  /** State that one message's plugin may keep. */
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

/** A token bucket: `burst` at once, `perSecond` in the long run. */
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
