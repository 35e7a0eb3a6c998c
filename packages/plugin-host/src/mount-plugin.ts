import { Door, type Refusal } from "./door.js";
import { createFrame, FrameAddressError, type FrameRules, frameRules, frameSize } from "./frame.js";
import { parsedContent } from "./json.js";
import { DEFAULT_LIMITS, type Limits } from "./limits.js";
import { renderMarkdown } from "./markdown.js";
import { readPluginMessage } from "./plugin-protocol.js";
import { PluginSession, type SessionOptions } from "./plugin-session.js";
import { DEFAULT_WORDS, type Problem, type Status, StatusPanel, type Words } from "./status-panel.js";

export interface PluginViewOptions extends SessionOptions {
  /** The timeout for a page's first message. */
  readyTimeoutMs?: number;
  limits?: Partial<Limits>;
  words?: Partial<Words>;
  /** Renders a Markdown plugin's text. The default renderer shows no images and no HTML. */
  renderMarkdown?(text: string, document: Document): Node;
  onStatus?(status: Status): void;
  /** A request of a page was refused or failed. For logs, and for plugin authors. */
  onProblem?(problem: string): void;
  now?(): number;
}

/** A plugin's result on the page. */
export interface PluginView {
  readonly element: HTMLElement;
  readonly status: Status;
  /** Shows new content of the message. */
  setContent(content: unknown): void;
  /** Loads the page again. State and settings are kept. */
  reload(): void;
  /** Removes the view from the page. */
  destroy(): void;
}

/** Shows a plugin's result in `container`: its page in a sandboxed frame, its Markdown, or its plain content. */
export function mountPlugin(container: HTMLElement, options: PluginViewOptions): PluginView {
  const { manifest } = options;
  if (manifest.type === "markdown") {
    const render = options.renderMarkdown ?? renderMarkdown;
    return mountText(container, options, (text, document) => render(text, document));
  }
  if (!manifest.ui) return mountText(container, options, plainText);
  return new FramedPlugin(container, options, manifest.ui);
}

class FramedPlugin implements PluginView {
  readonly #panel: StatusPanel;
  readonly #rules: FrameRules | undefined;
  readonly #limits: Limits;
  #frame: HTMLIFrameElement | undefined;
  #door: Door | undefined;
  #session: PluginSession | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #content: unknown;

  constructor(
    private readonly container: HTMLElement,
    private readonly options: PluginViewOptions,
    ui: NonNullable<PluginViewOptions["manifest"]["ui"]>,
  ) {
    const document = container.ownerDocument;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#content = options.content;
    const words = { ...DEFAULT_WORDS, ...options.words };
    this.#panel = new StatusPanel(document, frameSize(ui), words, () => this.reload(), options.onStatus);
    container.append(this.#panel.element);
    try {
      if (ui.mode === "module") throw new UnsupportedError();
      this.#rules = frameRules(ui.url, document.location.href);
      this.#load(this.#rules);
    } catch (error) {
      this.#fail(error instanceof UnsupportedError ? "unsupported" : "bad-address", error);
    }
  }

  get element(): HTMLElement {
    return this.#panel.element;
  }

  get status(): Status {
    return this.#panel.status;
  }

  setContent(content: unknown): void {
    this.#content = content;
    this.#session?.setContent(content);
  }

  reload(): void {
    if (!this.#rules) return;
    this.#unload();
    this.#panel.status = { state: "loading" };
    this.#load(this.#rules);
  }

  destroy(): void {
    this.#unload();
    this.#panel.element.remove();
  }

  #load(rules: FrameRules): void {
    const { manifest, onProblem, now } = this.options;
    const window = this.container.ownerDocument.defaultView;
    if (!window) throw new FrameAddressError("The container must be in a document with a window.");
    const frame = createFrame(this.container.ownerDocument, rules.sandbox, manifest.meta?.title ?? manifest.identifier);
    const problem = (text: string): void => onProblem?.(`${manifest.identifier}: ${text}`);
    const door = new Door({
      window,
      frame,
      origin: rules.origin,
      limits: this.#limits,
      ...(now ? { now } : {}),
      onMessage: (data) => this.#receive(data),
      onRefused: (reason) => problem(REFUSALS[reason]),
      onFlood: () =>
        this.#fail(
          "flood",
          "The plugin's page was stopped because it sent too many messages. Try again, or report it to the plugin's author.",
        ),
    });
    this.#frame = frame;
    this.#door = door;
    this.#session = new PluginSession(
      { ...this.options, content: this.#content, actions: this.#actions() },
      {
        origin: rules.origin === "null" ? rules.url : rules.origin,
        limits: this.#limits,
        ...(now ? { now } : {}),
        send: (message) => door.post(message),
        onProblem: problem,
      },
    );
    if (rules.origin === "null") this.#watchNavigation(frame);
    frame.src = rules.url;
    this.#panel.element.prepend(frame);
    const timeoutMs = this.options.readyTimeoutMs ?? 15_000;
    this.#timer = setTimeout(() => {
      const message = `The plugin's page at ${new URL(rules.url).host} did not answer within ${timeoutMs / 1000} s. It may be unavailable, or not allow other pages to embed it.`;
      this.#panel.status = { state: "error", problem: { kind: "timeout", message } };
    }, timeoutMs);
  }

  /**
   * A page with an origin may navigate: the next page has another origin, and its messages are refused. Without an
   * origin the next page cannot be distinguished, so the frame is removed as soon as it has loaded one. Until then the
   * previous page could have forwarded the same messages.
   */
  #watchNavigation(frame: HTMLIFrameElement): void {
    let loaded = false;
    frame.addEventListener("load", () => {
      if (loaded)
        this.#fail(
          "navigated",
          "The plugin's page was closed because it navigated to another address. Try again to reload it.",
        );
      loaded = true;
    });
  }

  #receive(data: unknown): void {
    const incoming = readPluginMessage(data);
    if (incoming === "foreign") return;
    const problem = (reason: Refusal): void =>
      this.options.onProblem?.(`${this.options.manifest.identifier}: ${REFUSALS[reason]}`);
    if (incoming === "malformed") {
      problem("malformed");
      return;
    }
    // Any message shows that the page runs, and some pages never report that they are ready. A late message clears a
    // timeout error.
    clearTimeout(this.#timer);
    this.#panel.status = { state: "ready" };
    if (!this.#session?.receive(incoming)) problem("too-many");
  }

  /** The host's actions. They also record a page's change to its message, so that it survives `reload`. */
  #actions(): NonNullable<SessionOptions["actions"]> {
    const { actions } = this.options;
    const setMessage = actions?.setMessage;
    if (!setMessage) return actions ?? {};
    return {
      triggerAi: actions.triggerAi?.bind(actions),
      createAssistantMessage: actions.createAssistantMessage?.bind(actions),
      setMessage: async (content) => {
        await setMessage.call(actions, content);
        this.#content = content;
      },
    } as NonNullable<SessionOptions["actions"]>;
  }

  #fail(kind: Problem["kind"], reason: unknown): void {
    this.#unload();
    const message = reason instanceof Error ? reason.message : String(reason);
    this.#panel.status = { state: "error", problem: { kind, message } };
  }

  #unload(): void {
    clearTimeout(this.#timer);
    this.#door?.close();
    this.#frame?.remove();
    this.#frame = undefined;
    this.#door = undefined;
    this.#session = undefined;
  }
}

class UnsupportedError extends Error {
  override readonly message =
    'The plugin\'s page is a module (ui.mode), which would run inside this page. Only pages in frames are supported; ask its author for "iframe".';
}

const REFUSALS: Record<Refusal, string> = {
  "wrong-origin":
    "a message came from a different origin than the page; the page may have navigated away or been redirected",
  "not-json": "a message contains something that is not JSON",
  "too-large": "a message is too large",
  "too-deep": "a message is nested too deeply",
  "too-many": "too many messages per second; some are dropped",
  malformed: "a message does not have the format of its channel",
};

function mountText(
  container: HTMLElement,
  options: PluginViewOptions,
  render: (text: string, document: Document) => Node,
): PluginView {
  const document = container.ownerDocument;
  const element = document.createElement("div");
  element.className = "switchboard-plugin switchboard-plugin--text";
  element.dataset.status = "ready";
  const show = (content: unknown): void => {
    const text = typeof content === "string" ? content : JSON.stringify(content ?? "", null, 2);
    element.replaceChildren(render(text, document));
  };
  show(options.content);
  container.append(element);
  return {
    element,
    status: { state: "ready" },
    setContent: show,
    reload: () => show(options.content),
    destroy: () => element.remove(),
  };
}

/** Shows the result of a plugin without a page as readable text. */
function plainText(text: string, document: Document): Node {
  const parsed = parsedContent(text);
  const block = document.createElement("pre");
  block.textContent = typeof parsed === "string" ? parsed : JSON.stringify(parsed, null, 2);
  return block;
}
