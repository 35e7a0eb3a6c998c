import { Door } from "../door.js";
import { createFrame, frameRules } from "../frame.js";
import { isRecord } from "../json.js";
import { DEFAULT_LIMITS, type Limits } from "../limits.js";
import { DEFAULT_WORDS, type Status, StatusPanel, type Words } from "../status-panel.js";
import { type AppActions, AppBridge, type AppTool } from "./app-bridge.js";
import { type AppPermission, appPolicy, PERMISSIONS, readCsp } from "./policy.js";
import { sandboxPage } from "./sandbox-page.js";

/** A `ui://` resource, as `resources/read` returned it. */
export interface AppResource {
  uri: string;
  mimeType?: string;
  text?: string;
  /** Base64 of UTF-8. */
  blob?: string;
  _meta?: Record<string, unknown>;
}

export const APP_MIME_TYPE = "text/html;profile=mcp-app";

export interface AppViewOptions {
  resource: AppResource;
  /** The tool whose result is shown. */
  tool: AppTool;
  /** All tools of the same server; the app may call those that are for apps. */
  tools?: readonly AppTool[];
  actions?: AppActions;
  /** Theme, locale, styles and so on, with the protocol's names. */
  context?: Record<string, unknown>;
  /** Browser features that apps may use if they request them. None by default. */
  permissions?: readonly AppPermission[];
  /** The address of the sandbox page. Required if the host's own policy forbids inline scripts. */
  sandboxUrl?: string;
  hostInfo?: { name: string; version: string };
  height?: number;
  maxHeight?: number;
  readyTimeoutMs?: number;
  limits?: Partial<Limits>;
  words?: Partial<Words>;
  onStatus?(status: Status): void;
  onProblem?(problem: string): void;
  now?(): number;
}

/** An app on the page. */
export interface AppView {
  readonly element: HTMLElement;
  readonly status: Status;
  /** Sends arguments that are still incomplete. */
  setPartialInput(args: Record<string, unknown>): void;
  setInput(args: Record<string, unknown>): void;
  /** Sends the call's result, in MCP's format. */
  setResult(result: object): void;
  setCancelled(reason: string): void;
  /** Sends the changed parts of the context, such as the theme. */
  setContext(changes: Record<string, unknown>): void;
  /** Lets the app save its data, then removes it from the page. */
  teardown(reason?: string): Promise<void>;
  destroy(): void;
}

/** Shows an MCP App in `container`. Throws if the resource is not an app. */
export function mountMcpApp(container: HTMLElement, options: AppViewOptions): AppView {
  const html = appHtml(options.resource);
  const document = container.ownerDocument;
  const window = document.defaultView;
  if (!window) throw new Error("The container must be in a document with a window.");
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const maxHeight = options.maxHeight ?? 1_200;
  const problem = (text: string): void => options.onProblem?.(`${options.resource.uri}: ${text}`);
  const meta = isRecord(options.resource._meta?.ui) ? options.resource._meta.ui : {};
  const csp = readCsp(meta.csp);
  const granted = grantedPermissions(meta.permissions, options.permissions ?? []);

  let door: Door | undefined;
  let bridge: AppBridge | undefined;
  let frame: HTMLIFrameElement | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  // The last notifications about the call, to send them again after a restart.
  const notified = new Map<string, object>();

  const size = { width: "100%", height: `${options.height ?? 320}px` };
  const words = { ...DEFAULT_WORDS, ...options.words };
  const panel = new StatusPanel(document, size, words, start, options.onStatus);
  container.append(panel.element);
  start();

  function stop(): void {
    clearTimeout(timer);
    door?.close();
    bridge?.close();
    frame?.remove();
  }

  function start(): void {
    stop();
    panel.status = { state: "loading" };
    // Served by the host itself, the sandbox page has no origin; served by another origin, it has that one, as the
    // protocol requires.
    const served =
      options.sandboxUrl === undefined ? undefined : frameRules(options.sandboxUrl, document.location.href);
    const outer =
      served && served.origin !== "null" ? "allow-scripts allow-forms allow-same-origin" : "allow-scripts allow-forms";
    const page = createFrame(document, outer, toolTitle(options.tool));
    const allow = granted.map((permission) => PERMISSIONS[permission]).join("; ");
    page.setAttribute("allow", allow);
    const newDoor = new Door({
      window: window as Window,
      frame: page,
      origin: served?.origin ?? "null",
      limits,
      ...(options.now ? { now: options.now } : {}),
      onMessage: receive,
      onRefused: (reason) => problem(`a message was rejected: ${reason}`),
      onFlood: () => fail("flood", "The app was stopped because it sent too many messages."),
    });
    const newBridge = new AppBridge({
      tools: options.tools ?? [options.tool],
      actions: options.actions ?? {},
      hostInfo: options.hostInfo ?? { name: "switchboard", version: "0.1.0" },
      hostContext: {
        displayMode: "inline",
        availableDisplayModes: ["inline"],
        platform: "web",
        containerDimensions: { maxHeight },
        ...options.context,
        toolInfo: { tool: options.tool },
      },
      sandbox: { csp, permissions: Object.fromEntries(granted.map((permission) => [permission, {}])) },
      limits,
      ...(options.now ? { now: options.now } : {}),
      send: (message) => newDoor.post(message),
      onInitialized: () => {
        clearTimeout(timer);
        panel.status = { state: "ready" };
      },
      onSize: ({ height }) => {
        if (height !== undefined) panel.height = Math.min(maxHeight, Math.max(40, Math.ceil(height)));
      },
      onProblem: problem,
    });
    let delivered = false;
    function receive(data: unknown): void {
      const method = isRecord(data) ? data.method : undefined;
      if (method !== "ui/notifications/sandbox-proxy-ready") {
        newBridge.receive(data);
        return;
      }
      if (delivered) return;
      delivered = true;
      const params = {
        html,
        sandbox: "allow-scripts allow-forms",
        csp,
        permissions: meta.permissions ?? {},
        policy: appPolicy(csp),
        allow,
      };
      newDoor.post({ jsonrpc: "2.0", method: "ui/notifications/sandbox-resource-ready", params });
    }
    [door, bridge, frame] = [newDoor, newBridge, page];
    for (const [method, params] of notified) newBridge.notify(method, params);
    if (served) page.src = served.url;
    else page.srcdoc = sandboxPage;
    panel.element.prepend(page);
    const timeoutMs = options.readyTimeoutMs ?? 15_000;
    timer = setTimeout(
      () => fail("timeout", `The app was not initialized within ${timeoutMs / 1000} s.`, false),
      timeoutMs,
    );
  }

  function fail(kind: "flood" | "timeout", message: string, takeDown = true): void {
    if (takeDown) stop();
    panel.status = { state: "error", problem: { kind, message } };
  }

  function notify(method: string, params: object, keep = true): void {
    if (keep) notified.set(method, params);
    bridge?.notify(method, params);
  }

  const destroy = (): void => {
    stop();
    panel.element.remove();
  };

  return {
    element: panel.element,
    get status() {
      return panel.status;
    },
    setPartialInput: (args) => notify("ui/notifications/tool-input-partial", { arguments: args }, false),
    setInput: (args) => notify("ui/notifications/tool-input", { arguments: args }),
    setResult: (result) => notify("ui/notifications/tool-result", result),
    setCancelled: (reason) => notify("ui/notifications/tool-cancelled", { reason }),
    setContext: (changes) => bridge?.setContext(changes),
    async teardown(reason = "the host closes the app") {
      await bridge?.teardown(reason, 1_000);
      destroy();
    },
    destroy,
  };
}

function appHtml(resource: AppResource): string {
  const type = resource.mimeType?.replaceAll(" ", "").toLowerCase();
  if (!resource.uri.startsWith("ui://"))
    throw new Error(`"${resource.uri}" is not an app: its address does not start with ui://.`);
  if (type !== APP_MIME_TYPE)
    throw new Error(`"${resource.uri}" is not an app: its type is "${resource.mimeType}", not "${APP_MIME_TYPE}".`);
  if (resource.text !== undefined) return resource.text;
  if (resource.blob === undefined) throw new Error(`"${resource.uri}" is empty: it has neither text nor blob.`);
  const bytes = Uint8Array.from(atob(resource.blob), (character) => character.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

function grantedPermissions(wanted: unknown, allowed: readonly AppPermission[]): AppPermission[] {
  return isRecord(wanted) ? allowed.filter((permission) => Object.hasOwn(wanted, permission)) : [];
}

function toolTitle(tool: AppTool): string {
  return typeof tool.title === "string" ? tool.title : tool.name;
}
