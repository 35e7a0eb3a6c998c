import { isRecord } from "../json.js";
import { Bucket, type Limits } from "../limits.js";

export const PROTOCOL_VERSION = "2026-01-26";

/** A tool of the app's own server. Apps may call the tools with `app` in their visibility, which is the default. */
export interface AppTool {
  name: string;
  [member: string]: unknown;
}

/** The actions that the host supports for an app. Missing ones are refused, and not offered. */
export interface AppActions {
  /** Calls a tool of the app's server. The signal fires when the app cancels or is removed. */
  callTool?(name: string, args: Record<string, unknown>, signal: AbortSignal): Promise<unknown>;
  readResource?(uri: string): Promise<unknown>;
  /**
   * Gets only web addresses. Hosts ask the user, and return whether it was opened. The signal fires as for `callTool`.
   */
  openLink?(url: string, signal: AbortSignal): Promise<boolean> | boolean;
  /** A message in the user's name, written by the app. Hosts ask the user, and return whether it was sent. */
  sendMessage?(content: unknown[], signal: AbortSignal): Promise<boolean> | boolean;
  /** Context for the model in future turns; each one replaces the one before. */
  updateModelContext?(context: {
    content?: unknown[];
    structuredContent?: Record<string, unknown>;
  }): Promise<void> | void;
  log?(level: string, data: unknown): void;
  /** The app asks to be removed. */
  close?(): void;
}

export interface BridgeOptions {
  /** The tools of the app's server. */
  tools: readonly AppTool[];
  actions: AppActions;
  hostInfo: { name: string; version: string };
  /** Theme, locale, styles and so on, with the protocol's names. */
  hostContext: Record<string, unknown>;
  sandbox: Record<string, unknown>;
  limits: Limits;
  now?: () => number;
  send(message: object): void;
  onInitialized(): void;
  onSize(size: { width: number | undefined; height: number | undefined }): void;
  onProblem(problem: string): void;
}

type Id = string | number;

class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

/** A refusal by the user, which is not reported as a problem. */
class Denied extends RpcError {
  constructor(message: string) {
    super(-32000, message);
  }
}

const refused = (message: string): RpcError => new RpcError(-32000, message);
const invalid = (message: string): RpcError => new RpcError(-32602, message);

/** Implements MCP Apps for one app. It does not handle frames: the caller must pass only messages of the right app. */
export class AppBridge {
  readonly #actions: Bucket;
  readonly #running = new Map<Id, AbortController>();
  readonly #asked = new Map<Id, () => void>();
  #nextId = 1;
  #initialized = false;
  /** Messages for the app, held until the app is initialized. */
  #held: { method: string; params: object }[] = [];
  #context: Record<string, unknown>;

  constructor(private readonly options: BridgeOptions) {
    const { actionsPerMinute } = options.limits;
    this.#actions = new Bucket(actionsPerMinute, actionsPerMinute / 60, options.now);
    this.#context = options.hostContext;
  }

  /** Sends a notification to the app, at once or when it is initialized. */
  notify(method: string, params: object): void {
    if (this.#initialized) this.options.send({ jsonrpc: "2.0", method, params });
    else this.#held.push({ method, params });
  }

  setContext(changes: Record<string, unknown>): void {
    this.#context = { ...this.#context, ...changes };
    if (this.#initialized) this.notify("ui/notifications/host-context-changed", changes);
  }

  /** Asks the app to save its data. Resolves when it has answered, or after `timeoutMs`. */
  teardown(reason: string, timeoutMs: number): Promise<void> {
    if (!this.#initialized) return Promise.resolve();
    const id = `host-${this.#nextId++}`;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#asked.set(id, () => {
        clearTimeout(timer);
        resolve();
      });
      this.options.send({ jsonrpc: "2.0", id, method: "ui/resource-teardown", params: { reason } });
    });
  }

  /** Cancels all running requests of the app. */
  close(): void {
    for (const controller of this.#running.values()) controller.abort();
    this.#running.clear();
  }

  receive(data: unknown): void {
    if (!isRecord(data) || data.jsonrpc !== "2.0") {
      this.options.onProblem("a message is not JSON-RPC 2.0");
      return;
    }
    const id = typeof data.id === "string" || typeof data.id === "number" ? data.id : undefined;
    if (typeof data.method !== "string") {
      // An answer to the only request that a host sends.
      if (id !== undefined) this.#asked.get(id)?.();
      return;
    }
    const params = isRecord(data.params) ? data.params : {};
    if (id === undefined) this.#onNotification(data.method, params);
    else void this.#answer(id, data.method, params);
  }

  #onNotification(method: string, params: Record<string, unknown>): void {
    const size = (value: unknown) =>
      typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
    switch (method) {
      case "ui/notifications/initialized": {
        if (this.#initialized) return;
        this.#initialized = true;
        this.options.onInitialized();
        const held = this.#held;
        this.#held = [];
        for (const { method: first, params: content } of held) this.notify(first, content);
        return;
      }
      case "ui/notifications/size-changed":
        this.options.onSize({ width: size(params.width), height: size(params.height) });
        return;
      case "ui/notifications/request-teardown":
        this.options.actions.close?.();
        return;
      case "notifications/message":
        this.options.actions.log?.(typeof params.level === "string" ? params.level : "info", params.data);
        return;
      case "notifications/cancelled":
        this.#running.get(params.requestId as Id)?.abort();
        return;
    }
  }

  async #answer(id: Id, method: string, params: Record<string, unknown>): Promise<void> {
    if (this.#running.has(id)) return this.#send(id, { error: { code: -32600, message: `the id ${id} is in use` } });
    if (this.#running.size >= this.options.limits.maxWaiting) {
      return this.#send(id, { error: { code: -32000, message: "too many requests at once; wait for some to end" } });
    }
    const controller = new AbortController();
    this.#running.set(id, controller);
    try {
      const result = await this.#perform(method, params, controller.signal);
      // A cancelled request gets no answer.
      if (!controller.signal.aborted) this.#send(id, { result });
    } catch (error) {
      const code = error instanceof RpcError ? error.code : -32603;
      const message = error instanceof Error ? error.message : String(error);
      if (!(error instanceof Denied)) this.options.onProblem(`"${method}" failed: ${message}`);
      if (!controller.signal.aborted) this.#send(id, { error: { code, message } });
    } finally {
      this.#running.delete(id);
    }
  }

  async #perform(method: string, params: Record<string, unknown>, signal: AbortSignal): Promise<unknown> {
    const { actions } = this.options;
    switch (method) {
      case "ui/initialize":
        return this.#initialize();
      case "ping":
        return {};
      case "tools/call":
        return this.#callTool(params, signal);
      case "resources/read":
        if (!actions.readResource) break;
        if (typeof params.uri !== "string") throw invalid('"uri" must be a string');
        return actions.readResource(params.uri);
      case "ui/open-link":
        if (!actions.openLink) break;
        this.#countAction();
        if ((await actions.openLink(webAddress(params.url), signal)) !== true)
          throw new Denied("Link opening denied by user");
        return {};
      case "ui/message": {
        if (!actions.sendMessage) break;
        if (params.role !== "user") throw invalid('"role" must be "user"');
        this.#countAction();
        if ((await actions.sendMessage(blocks(params.content), signal)) !== true)
          throw new Denied("Message sending denied");
        return {};
      }
      case "ui/update-model-context": {
        if (!actions.updateModelContext) break;
        const { content, structuredContent } = params;
        await actions.updateModelContext({
          ...(content === undefined ? {} : { content: blocks(content) }),
          ...(isRecord(structuredContent) ? { structuredContent } : {}),
        });
        return {};
      }
      case "ui/request-display-mode":
        return { mode: this.#context.displayMode ?? "inline" };
    }
    throw new RpcError(-32601, `this host does not support "${method}"`);
  }

  #initialize(): object {
    const { actions, hostInfo, sandbox } = this.options;
    return {
      protocolVersion: PROTOCOL_VERSION,
      hostInfo,
      hostCapabilities: {
        sandbox,
        ...(actions.callTool ? { serverTools: {} } : {}),
        ...(actions.readResource ? { serverResources: {} } : {}),
        ...(actions.openLink ? { openLinks: {} } : {}),
        ...(actions.log ? { logging: {} } : {}),
        ...(actions.sendMessage ? { message: { text: {} } } : {}),
        ...(actions.updateModelContext ? { updateModelContext: { text: {}, structuredContent: {} } } : {}),
      },
      hostContext: this.#context,
    };
  }

  async #callTool(params: Record<string, unknown>, signal: AbortSignal): Promise<unknown> {
    const { actions, tools } = this.options;
    if (!actions.callTool) throw refused("this host does not allow apps to call tools");
    const tool = tools.find(({ name }) => name === params.name);
    if (!tool || !isForApps(tool))
      throw refused(`"${String(params.name)}" is not a tool of this app's server, or not available to apps`);
    if (params.arguments !== undefined && !isRecord(params.arguments)) throw invalid('"arguments" must be an object');
    return actions.callTool(tool.name, params.arguments ?? {}, signal);
  }

  #countAction(): void {
    if (!this.#actions.take())
      throw refused(`at most ${this.options.limits.actionsPerMinute} of these requests per minute are allowed`);
  }

  #send(id: Id, answer: object): void {
    this.options.send({ jsonrpc: "2.0", id, ...answer });
  }
}

function isForApps(tool: AppTool): boolean {
  const ui = isRecord(tool._meta) ? tool._meta.ui : undefined;
  const visibility = isRecord(ui) ? ui.visibility : undefined;
  return !Array.isArray(visibility) || visibility.includes("app");
}

function webAddress(value: unknown): string {
  let url: URL;
  try {
    url = new URL(String(value));
  } catch {
    throw invalid(`"${String(value)}" is not a URL`);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:")
    throw refused("only https: and http: addresses are allowed");
  return url.href;
}

/** The published form is a list; the specification's examples have a single block. */
function blocks(content: unknown): unknown[] {
  const list = Array.isArray(content) ? content : [content];
  if (!list.every((block) => isRecord(block) && typeof block.type === "string"))
    throw invalid('"content" must be content blocks');
  return list;
}
