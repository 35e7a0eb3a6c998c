/** The distance from the end, in pixels, at which a reader is still at the end. */
const NEAR = 60;

/**
 * Decides whether a box follows its end as its content grows.
 *
 * A scroll event also reports our own scrolling, and may arrive after the content has grown again. The position is
 * then far from the end, but the reader has not moved. Only a position that decreases shows that the reader did.
 */
export class Follow {
  #top = 0;
  #follows = true;

  get follows(): boolean {
    return this.#follows;
  }

  /** The reader wants to see the end, for example after sending a message. */
  restart(): void {
    this.#follows = true;
  }

  /** Takes the new position after a scroll event. */
  scrolled({ scrollTop, scrollHeight, clientHeight }: Pick<Element, "scrollTop" | "scrollHeight" | "clientHeight">) {
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR;
    if (isNear) this.#follows = true;
    else if (scrollTop < this.#top) this.#follows = false;
    this.#top = scrollTop;
  }
}
