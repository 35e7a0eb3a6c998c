import {
  type AppView,
  memoryStore,
  mountMcpApp,
  mountPlugin,
  type PluginView,
  webStorageStore,
} from "../../src/index.js";

/** The options of a view that a test may set; functions cannot be sent into a page. */
export interface Wanted {
  manifest: Parameters<typeof mountPlugin>[1]["manifest"];
  settings?: Record<string, unknown>;
  grant?: boolean;
  content?: unknown;
  call?: { apiName: string; arguments: string };
}

export interface HostPage {
  calls: [string, unknown][];
  problems: string[];
  view: PluginView | undefined;
  app: AppView | undefined;
  showPlugin(wanted: Wanted): void;
  showApp(html: string, meta: object, sandboxUrl: string | undefined): void;
}

declare global {
  interface Window {
    host: HostPage;
  }
}

const CALL = { apiName: "forecast", arguments: '{"city":"Oslo"}' };
const container = document.querySelector("main") as HTMLElement;
const host: HostPage = {
  calls: [],
  problems: [],
  view: undefined,
  app: undefined,

  showPlugin({ manifest, settings = {}, grant = false, content = '{"title":"From the server"}', call = CALL }) {
    let kept = settings;
    host.view = mountPlugin(container, {
      manifest,
      call: { messageId: "m-1", ...call },
      content,
      store: window.origin === "null" ? memoryStore() : webStorageStore(localStorage),
      settings: {
        read: () => kept,
        write(changes) {
          kept = { ...kept, ...changes };
          host.calls.push(["settings", changes]);
        },
      },
      requestSecrets(request) {
        host.calls.push(["secrets", request]);
        return grant;
      },
      actions: {
        setMessage: (content) => void host.calls.push(["message", content]),
        triggerAi: (id) => void host.calls.push(["trigger", id]),
        createAssistantMessage: (text) => void host.calls.push(["assistant", text]),
      },
      onProblem: (problem) => host.problems.push(problem),
    });
  },

  showApp(html, meta, sandboxUrl) {
    const tool = { name: "forecast", inputSchema: { type: "object" } };
    host.app = mountMcpApp(container, {
      resource: { uri: "ui://weather/view", mimeType: "text/html;profile=mcp-app", text: html, _meta: { ui: meta } },
      tool,
      context: { theme: "dark" },
      ...(sandboxUrl === undefined ? {} : { sandboxUrl }),
      actions: {
        async callTool(name, args) {
          host.calls.push(["tool", { name, args }]);
          return { content: [{ type: "text", text: `called ${name}` }] };
        },
      },
      onProblem: (problem) => host.problems.push(problem),
    });
    host.app.setInput({ city: "Oslo" });
    host.app.setResult({ content: [{ type: "text", text: "7 degrees" }] });
  },
};
window.host = host;
