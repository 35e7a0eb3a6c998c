/** The reason why a page is not shown. */
export interface Problem {
  kind: "timeout" | "bad-address" | "flood" | "navigated" | "unsupported";
  /** The error, its cause and a suggested action. */
  message: string;
}

export type Status = { state: "loading" } | { state: "ready" } | { state: "error"; problem: Problem };

/** The texts for the user. A host in another language sets its own. */
export interface Words {
  loading: string;
  retry: string;
}

export const DEFAULT_WORDS: Words = { loading: "Loading the plugin…", retry: "Try again" };

/** The box around a frame: it keeps its size from the start, so that the layout does not jump, and shows the status. */
export class StatusPanel {
  readonly element: HTMLElement;
  readonly #notice: HTMLElement;
  #status: Status = { state: "loading" };

  constructor(
    private readonly document: Document,
    size: { width: string; height: string },
    private readonly words: Words,
    private readonly onRetry: () => void,
    private readonly onStatus: ((status: Status) => void) | undefined,
  ) {
    this.element = document.createElement("div");
    this.element.className = "switchboard-plugin";
    // Set through the object model, which a strict content security policy allows, unlike a style attribute.
    Object.assign(this.element.style, {
      position: "relative",
      width: size.width,
      height: size.height,
      maxWidth: "100%",
    });
    this.#notice = document.createElement("div");
    this.#notice.className = "switchboard-plugin__status";
    Object.assign(this.#notice.style, { position: "absolute", inset: "0" });
    this.element.append(this.#notice);
    this.#render();
  }

  get status(): Status {
    return this.#status;
  }

  set status(status: Status) {
    if (status.state === this.#status.state && status.state !== "error") return;
    this.#status = status;
    this.#render();
    this.onStatus?.(status);
  }

  set height(pixels: number) {
    this.element.style.height = `${pixels}px`;
  }

  #render(): void {
    const status = this.#status;
    this.element.dataset.status = status.state;
    this.element.setAttribute("aria-busy", String(status.state === "loading"));
    this.#notice.hidden = status.state === "ready";
    this.#notice.style.display = status.state === "ready" ? "none" : "";
    this.#notice.setAttribute("role", status.state === "error" ? "alert" : "status");
    this.#notice.replaceChildren();
    if (status.state === "ready") return;
    const text = this.document.createElement("p");
    text.textContent = status.state === "loading" ? this.words.loading : status.problem.message;
    this.#notice.append(text);
    if (status.state !== "error" || status.problem.kind === "bad-address" || status.problem.kind === "unsupported")
      return;
    const retry = this.document.createElement("button");
    retry.type = "button";
    retry.textContent = this.words.retry;
    retry.addEventListener("click", () => this.onRetry());
    this.#notice.append(retry);
  }
}
