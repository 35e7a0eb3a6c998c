import { jsonFault } from "./json.js";
import { Bucket, type Limits } from "./limits.js";

/** The reason why a message was refused. Messages from other windows are ignored and not reported. */
export type Refusal = "wrong-origin" | "not-json" | "too-large" | "too-deep" | "too-many" | "malformed";

export interface DoorOptions {
  /** The host's own window. */
  window: Window;
  frame: HTMLIFrameElement;
  /** The only accepted origin; `"null"` for a frame without an origin. */
  origin: string;
  limits: Limits;
  now?: () => number;
  onMessage(data: unknown): void;
  onRefused(reason: Refusal): void;
  /** Called once, when a frame continues to send far above its rate. */
  onFlood(): void;
}

/** The only channel between a frame and its host, in both directions. */
export class Door {
  readonly #bucket: Bucket;
  #refusedForRate = 0;

  constructor(private readonly options: DoorOptions) {
    this.#bucket = new Bucket(options.limits.messageBurst, options.limits.messagesPerSecond, options.now);
    options.window.addEventListener("message", this.#receive);
  }

  /** Sends a message to the frame, only if it still shows a page of its origin. */
  post(message: object): void {
    // A frame without an origin cannot be named as a target; the owner of the channel must prevent its navigation.
    this.options.frame.contentWindow?.postMessage(message, this.options.origin === "null" ? "*" : this.options.origin);
  }

  close(): void {
    this.options.window.removeEventListener("message", this.#receive);
  }

  readonly #receive = (event: MessageEvent): void => {
    const { frame, origin, limits } = this.options;
    if (event.source === null || event.source !== frame.contentWindow) return;
    // The rate is checked before the content, so that a refusal is as cheap as possible.
    if (!this.#bucket.take()) {
      this.#refusedForRate += 1;
      if (this.#refusedForRate === limits.floodAfter) this.options.onFlood();
      // One report for a burst, not one for each of its messages.
      else if (this.#refusedForRate % 100 === 1) this.options.onRefused("too-many");
      return;
    }
    const fault = event.origin === origin ? jsonFault(event.data, limits) : "wrong-origin";
    if (fault) this.options.onRefused(fault);
    else this.options.onMessage(event.data);
  };
}
