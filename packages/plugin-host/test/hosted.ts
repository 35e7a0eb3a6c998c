import { expect, vi } from "vitest";
import { memoryStore, mountPlugin, type PluginView, type PluginViewOptions } from "../src/index.js";

export const PAGE = "https://plugin.example/page";

const POLL = { interval: 1 };

/** A mounted plugin; the test acts as its page. */
export class Hosted {
  /** Outside of the document, where frames stay empty: the browser tests use real pages. */
  readonly container = document.createElement("div");
  readonly problems: string[] = [];
  readonly states: string[] = [];
  readonly actions = {
    setMessage: vi.fn<(content: unknown) => void>(),
    triggerAi: vi.fn<(id: string) => void>(),
    createAssistantMessage: vi.fn<(text: string) => void>(),
  };
  readonly answers: { message: Record<string, unknown>; origin: string }[] = [];
  readonly view: PluginView;
  now = 0;

  constructor(options: Partial<PluginViewOptions> = {}) {
    this.view = mountPlugin(this.container, {
      manifest: { identifier: "weather", type: "standalone", ui: { url: PAGE } },
      call: { messageId: "m-1", apiName: "forecast", arguments: '{"city":"Oslo"}' },
      content: '{"temperature":7}',
      store: memoryStore(),
      actions: this.actions,
      now: () => this.now,
      onProblem: (problem) => this.problems.push(problem),
      onStatus: ({ state }) => this.states.push(state),
      ...options,
    });
  }

  get frame(): HTMLIFrameElement {
    const frame = this.container.querySelector("iframe");
    if (!frame) throw new Error("there is no frame");
    return frame;
  }

  /** The window of the page in the frame: a mock that records its messages. */
  get page(): object {
    const frame = this.frame;
    if (!frame.contentWindow) {
      const postMessage = (message: unknown, origin: string) => {
        this.answers.push({ message: structuredClone(message) as Record<string, unknown>, origin });
      };
      Object.defineProperty(frame, "contentWindow", { value: { postMessage } });
    }
    return frame.contentWindow as object;
  }

  /** Sends a message as the page, or as the given source. */
  say(data: unknown, source: unknown = this.page, origin = "https://plugin.example"): void {
    const event = new MessageEvent("message", { data, origin });
    Object.defineProperty(event, "source", { value: source });
    window.dispatchEvent(event);
  }

  /** Sends a message and waits for an answer on the channel. */
  async ask(data: Record<string, unknown>, channel: string): Promise<Record<string, unknown>> {
    const before = this.answers.length;
    this.say(data);
    return vi.waitFor(() => {
      const found = this.answers.slice(before).find(({ message }) => message.type === channel);
      expect(found, `an answer on ${channel}`).toBeDefined();
      return found?.message as Record<string, unknown>;
    }, POLL);
  }

  /** Waits until all earlier messages have been processed. */
  async settle(): Promise<void> {
    const id = Math.random().toString();
    const before = this.answers.length;
    this.say({ type: "speraxos:fetch-plugin-state", key: "settle", requestId: id });
    await vi.waitFor(
      () => expect(this.answers.slice(before).some(({ message }) => message.requestId === id)).toBe(true),
      POLL,
    );
    this.answers.splice(
      this.answers.findIndex(({ message }) => message.requestId === id),
      1,
    );
  }
}
