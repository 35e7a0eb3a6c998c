import type { Anything } from "./anything.js";
import { CHANNELS } from "./channels.js";
import { type ClientOptions, type HostMessage, Mailbox, PluginHostError } from "./mailbox.js";

/** The start parameters of a plugin's page. */
export interface PluginPayload<T = Anything> {
  /** The arguments of the function call. */
  arguments?: T;
  /** The name of the called function. */
  name: string;
  settings?: Record<string, Anything>;
  state?: Record<string, Anything>;
}

/** The messages between a page and its host, as methods. They also work when detached from the object. */
export interface SperaxOS {
  getPluginPayload<T = Anything>(): Promise<PluginPayload<T>>;
  getPluginMessage<T = Anything>(): Promise<T>;
  /** Replaces the message's content. With `triggerAiMessage` the model answers it at once. */
  setPluginMessage(content: unknown, triggerAiMessage?: boolean): Promise<void>;
  /** Resolves to `undefined` for a key that was never set. Zero, false, null and empty strings are values. */
  getPluginState<T = Anything>(key: string): Promise<T>;
  /** `undefined` removes the key. */
  setPluginState(key: string, value: unknown): Promise<void>;
  /** Returns the settings that this page may see. Secret ones are included only if the user has granted it. */
  getPluginSettings<T = Anything>(): Promise<T>;
  /** Changes the given settings, and leaves the others. */
  setPluginSettings(changes: object): Promise<void>;
  triggerAIMessage(id?: string): Promise<void>;
  createAssistantMessage(content: string): Promise<void>;
}

/** The nine methods, and the functions that the hooks use. */
export interface PluginClient extends SperaxOS {
  /** Changes the timeout, the prefix or the host's origin for later requests. */
  configure(options: ClientOptions): void;
  /** Reports that the page is ready, and calls back with the message's content, at the start and at every change. */
  watchMessage(callback: (content: unknown) => void): () => void;
  /** Calls back when another part of this page sets the key. */
  watchState(key: string, callback: (value: unknown) => void): () => void;
  /** Calls back when another part of this page, or the host, changes the settings. */
  watchSettings(callback: (settings: Record<string, unknown>) => void): () => void;
}

export function createPluginClient(options: ClientOptions = {}): PluginClient {
  const mailbox = new Mailbox(options);
  const messageWatchers = new Set<(content: unknown) => void>();
  const stateWatchers = new Set<{ key: string; callback: (value: unknown) => void }>();
  const settingsWatchers = new Set<(settings: Record<string, unknown>) => void>();
  const is = (channel: keyof typeof CHANNELS) => (message: HostMessage) => message.channel === CHANNELS[channel];

  return {
    configure(changes) {
      mailbox.options = { ...mailbox.options, ...changes };
    },

    getPluginPayload: async <T>() =>
      readPayload<T>(await mailbox.ask("pluginReadyForRender", {}, is("initStandalonePlugin"))),

    getPluginMessage: async <T>() => readContent(await mailbox.ask("fetchPluginMessage", {}, is("renderPlugin"))) as T,

    async setPluginMessage(content, triggerAiMessage) {
      mailbox.send("fillStandalonePluginContent", {
        content,
        ...(triggerAiMessage === undefined ? {} : { triggerAiMessage }),
      });
      // The host does not send a page's own write back to it.
      for (const watcher of [...messageWatchers]) watcher(parsed(content));
    },

    getPluginState: async <T>(key: string) => {
      const isState = (message: HostMessage) => is("renderPluginState")(message) && message.data.key === key;
      return (await mailbox.ask("fetchPluginState", { key }, isState)).data.value as T;
    },

    async setPluginState(key, value) {
      mailbox.send("updatePluginState", { key, value });
      for (const watcher of [...stateWatchers]) if (watcher.key === key) watcher.callback(value);
    },

    getPluginSettings: async <T>() =>
      (await mailbox.ask("fetchPluginSettings", {}, is("renderPluginSettings"))).data.value as T,

    async setPluginSettings(changes) {
      mailbox.send("updatePluginSettings", { value: changes });
      for (const watcher of [...settingsWatchers]) watcher(changes as Record<string, unknown>);
    },

    triggerAIMessage: async (id) => mailbox.send("triggerAIMessage", id === undefined ? {} : { id }),

    createAssistantMessage: async (content) => mailbox.send("createAssistantMessage", { content }),

    watchMessage(callback) {
      const watcher = (content: unknown) => callback(content);
      messageWatchers.add(watcher);
      const stop = mailbox.watch((message) => {
        if (is("renderPlugin")(message)) watcher(readContent(message));
      });
      mailbox.send("pluginReadyForRender");
      return () => {
        messageWatchers.delete(watcher);
        stop();
      };
    },

    watchState(key, callback) {
      const watcher = { key, callback };
      stateWatchers.add(watcher);
      return () => void stateWatchers.delete(watcher);
    },

    watchSettings(callback) {
      const watcher = (settings: Record<string, unknown>) => callback(settings);
      settingsWatchers.add(watcher);
      // An answer belongs to its request; an unrequested message is a change.
      const stop = mailbox.watch((message, answered) => {
        if (is("renderPluginSettings")(message) && !answered) watcher(record(message.data.value));
      });
      return () => {
        settingsWatchers.delete(watcher);
        stop();
      };
    },
  };
}

/** The default client for pages. It accesses the window only when it is used, so a server may import it. */
export const speraxOS: PluginClient = createPluginClient();

/** Hosts put the same content into `props`, `payload` or both. */
function readContent({ data }: HostMessage): unknown {
  return record(data.props ?? data.payload).content;
}

/** Returns content as the host would send it: JSON in a text is parsed. */
function parsed(content: unknown): unknown {
  if (typeof content !== "string") return content;
  try {
    return JSON.parse(content);
  } catch {
    return content;
  }
}

function readPayload<T>({ data }: HostMessage): PluginPayload<T> {
  const payload = record(data.payload ?? data.props);
  const { arguments: written } = payload;
  let args: unknown = written ?? {};
  if (typeof written === "string") {
    try {
      args = JSON.parse(written || "{}");
    } catch (error) {
      throw new PluginHostError(
        "bad-answer",
        "The arguments of the function call are not valid JSON. The model may have made a mistake.",
        {
          cause: error,
        },
      );
    }
  }
  return {
    arguments: args as T,
    name: String(payload.apiName ?? payload.name ?? ""),
    settings: record(data.settings),
    state: record(data.state),
  };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
