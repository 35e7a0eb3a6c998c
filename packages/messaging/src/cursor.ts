import type { ReadyFrame, WireMessage } from "./wire.js";

/** How far the channel has been read, so that nothing is missed and nothing comes twice. */
export class Cursor {
  /** Everything up to here has been handed on. */
  position: number | undefined;
  /** Names the history that the position belongs to. */
  epoch: string | undefined;
  /**
   * Presence up to here has been handed on. It is counted by itself while catching up: a server may send all of it
   * first, ahead of messages with lower ids, and the connection may break between the two.
   */
  #presence = 0;

  constructor(position?: number, epoch?: string) {
    this.position = position;
    this.epoch = epoch;
  }

  /** Whether a message is new, which it is not for a second time. `caughtUp` is false before the server's `ready`. */
  isNew({ id, type }: WireMessage, caughtUp: boolean): boolean {
    if (id === undefined) return true;
    const isPresence = type === "presence";
    const seen = isPresence ? Math.max(this.#presence, caughtUp ? (this.position ?? 0) : 0) : (this.position ?? 0);
    if (id <= seen) return false;
    if (isPresence) this.#presence = id;
    if (!isPresence || caughtUp) this.position = id;
    return true;
  }

  /** The server has sent all that there was. Says whether something may be missing, and whether the history is another. */
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
