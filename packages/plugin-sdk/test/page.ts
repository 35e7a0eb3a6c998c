import { vi } from "vitest";

/** A plugin's window with a host around it that answers as the test specifies. */
export class Page extends EventTarget {
  readonly parent = { postMessage: vi.fn<(message: Record<string, unknown>, origin: string) => void>() };
  listeners = 0;

  override addEventListener(...args: Parameters<EventTarget["addEventListener"]>): void {
    this.listeners += 1;
    super.addEventListener(...args);
  }

  override removeEventListener(...args: Parameters<EventTarget["removeEventListener"]>): void {
    this.listeners -= 1;
    super.removeEventListener(...args);
  }

  get window(): Window {
    return this as unknown as Window;
  }

  get sent(): Record<string, unknown>[] {
    return this.parent.postMessage.mock.calls.map(([message]) => message);
  }

  /** Returns the last message on a channel. */
  last(channel: string): Record<string, unknown> {
    const found = this.sent.findLast(({ type }) => type === channel);
    if (!found) throw new Error(`nothing was sent on ${channel}`);
    return found;
  }

  hear(data: unknown, from: unknown = this.parent, origin = "https://host.example"): void {
    const event = new MessageEvent("message", { data, origin });
    Object.defineProperty(event, "source", { value: from });
    this.dispatchEvent(event);
  }
}
