import type { ReadyFrame, WireMessage } from "./wire.js";

/** The read position in the channel, so that no message is missed or delivered twice. */
export class Cursor {
  /** Everything up to this id has been delivered. */
  position: number | undefined;
  /** The id of the history that the position belongs to. */
  epoch: string | undefined;
  /**
   * Presence up to this id has been delivered. It has a separate position during catch-up: a server may send all
   * presence first, ahead of messages with lower ids, and the connection may break between the two.
   */
  #presence = 0;

  constructor(position?: number, epoch?: string) {
    this.position = position;
    this.epoch = epoch;
  }

  /** Whether a message is new; records it. `caughtUp` is false before the server's `ready`. */
  isNew({ id, type }: WireMessage, caughtUp: boolean): boolean {
    if (id === undefined) return true;
    const isPresence = type === "presence";
    const seen = isPresence ? Math.max(this.#presence, caughtUp ? (this.position ?? 0) : 0) : (this.position ?? 0);
    if (id <= seen) return false;
    if (isPresence) this.#presence = id;
    if (!isPresence || caughtUp) this.position = id;
    return true;
  }

  /**
   * Called when the server has sent all stored messages. Returns whether messages may be missing, and whether the
   * history is a different one.
   */
  ready({ epoch, lastId, recovered }: ReadyFrame): { lost: boolean; other: boolean } {
    const other = epoch !== undefined && this.epoch !== undefined && epoch !== this.epoch;
    const lost = recovered === false || (other && this.position !== undefined);
    if (epoch !== undefined) this.epoch = epoch;
    const seen = other ? 0 : Math.max(this.position ?? 0, this.#presence);
    if (other) this.#presence = 0;
    if (lastId !== undefined || seen > 0 || this.position !== undefined) this.position = Math.max(seen, lastId ?? 0);
    return { lost, other };
  }
}
