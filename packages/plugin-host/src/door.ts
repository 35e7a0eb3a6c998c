import { jsonFault } from "./json.js";
import { Bucket, type Limits } from "./limits.js";

/** Why a message was not listened to. Messages from other windows are nobody's business and are not reported. */
export type Refusal = "wrong-origin" | "not-json" | "too-large" | "too-deep" | "too-many" | "malformed";

export interface DoorOptions {
  /** The host's own window. */
  window: Window;
  frame: HTMLIFrameElement;
  /** The one origin that is listened to and answered; `"null"` for a frame without an origin of its own. */
  origin: string;
  limits: Limits;
  now?: () => number;
  onMessage(data: unknown): void;
  onRefused(reason: Refusal): void;
  /** Called once, when a frame goes on sending far above its rate. */
  onFlood(): void;
}

/** The only way between a frame and its host: everything in either direction passes here. */
export class Door {
  readonly #bucket: Bucket;
  #refusedForRate = 0;

  constructor(private readonly options: DoorOptions) {
    this.#bucket = new Bucket(options.limits.messageBurst, options.limits.messagesPerSecond, options.now);
    options.window.addEventListener("message", this.#receive);
  }

  /** Sends to the frame, and only if a page of its origin is still in it. */
  post(message: object): void {
    // A frame without an origin cannot be named as a target; whoever opens its door sees to it that it stays where it is.
    this.options.frame.contentWindow?.postMessage(message, this.options.origin === "null" ? "*" : this.options.origin);
  }

  close(): void {
    this.options.window.removeEventListener("message", this.#receive);
  }

  readonly #receive = (event: MessageEvent): void => {
    const { frame, origin, limits } = this.options;
    if (event.source === null || event.source !== frame.contentWindow) return;
    // Counted before anything is looked at, so that refusing is as cheap as can be.
    if (!this.#bucket.take()) {
      this.#refusedForRate += 1;
      if (this.#refusedForRate === limits.floodAfter) this.options.onFlood();
      // One report for a burst, not one for each message of it.
      else if (this.#refusedForRate % 100 === 1) this.options.onRefused("too-many");
      return;
    }
    const fault = event.origin === origin ? jsonFault(event.data, limits) : "wrong-origin";
    if (fault) this.options.onRefused(fault);
    else this.options.onMessage(event.data);
  };
}
