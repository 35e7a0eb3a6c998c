import { canonicalText, isRecord, jsonFault, parsedContent } from "./json.js";
import { Bucket, type Limits } from "./limits.js";
import type { HostChannel, Incoming, PluginMessage, Prefix } from "./plugin-protocol.js";
import { mergeSettings, secretPaths, splitSecrets, withSecrets } from "./secrets.js";
import type { StateStore } from "./store.js";

/** The parts of a plugin's manifest that are needed to show its page. */
export interface PluginManifest {
  identifier: string;
  type?: "default" | "markdown" | "standalone";
  ui?: { url: string; height?: number; width?: number; mode?: "iframe" | "module" };
  /** JSON Schema of the settings; `format: password` marks secrets. */
  settings?: unknown;
  meta?: { title?: string; description?: string; avatar?: string; tags?: string[] };
}

/** The call with the result that a page shows. */
export interface PluginCall {
  /** The message that the call belongs to. It is the key of the state. */
  messageId: string;
  apiName: string;
  /** The arguments as written by the model, or as an object. */
  arguments?: string | Record<string, unknown>;
}

export interface SettingsSource {
  read(): Promise<Record<string, unknown>> | Record<string, unknown>;
  /** Receives the changed settings, each with its whole value. */
  write(changes: Record<string, unknown>): Promise<void> | void;
}

/** A page requests to read or change settings that are marked as secret. */
export interface SecretsRequest {
  identifier: string;
  /** The origin of the page, to show to the user. */
  origin: string;
  purpose: "read" | "write";
  /** Names of the settings, such as `apiKey` or `account.token`. */
  fields: string[];
}

/**
 * The user's answer. A host that cannot read its stored secrets lets the user type them: `values` has the values that
 * the page may see, by field name. A plain `true` shows the page the secrets of `settings.read`.
 */
export type SecretsAnswer = boolean | { values: Record<string, unknown> };

/** The actions that a page can cause outside of its frame. Missing ones are refused. */
export interface PluginActions {
  /** The page changed its message's content, which is JSON of any kind. */
  setMessage?(content: unknown): Promise<void> | void;
  triggerAi?(messageId: string): Promise<void> | void;
  createAssistantMessage?(content: string): Promise<void> | void;
}

export interface SessionOptions {
  manifest: PluginManifest;
  call: PluginCall;
  /** The message's content: a plugin server's answer as text, or JSON. */
  content?: unknown;
  store: StateStore;
  settings?: SettingsSource;
  /** Asks the user. Without it, no page gets secrets. An approval lasts as long as the view. */
  requestSecrets?(request: SecretsRequest): Promise<SecretsAnswer> | SecretsAnswer;
  /** Returns an earlier grant for this page, so that its first request gets the secrets. */
  grantedSecrets?(page: { identifier: string; origin: string }): SecretsAnswer | undefined;
  actions?: PluginActions;
}

/** The maximum number of a page's own writes that are compared with new content. */
const MAX_WRITES = 16;

interface SessionSurroundings {
  origin: string;
  limits: Limits;
  now?: () => number;
  send(message: object): void;
  onProblem(problem: string): void;
}

/**
 * Answers one page. It does not handle frames: the caller must pass only messages of the right page.
 *
 * Messages are processed in order, so that a page that writes and then reads gets the written value.
 */
export class PluginSession {
  readonly #secretPaths;
  readonly #actions: Bucket;
  #content: unknown;
  /** The page's writes that the host may still send back, oldest first. */
  readonly #writes: string[] = [];
  /** The prefix of the page's messages; unset before its first message. */
  #prefix: Prefix | undefined;
  readonly #asked = new Map<SecretsRequest["purpose"], Promise<boolean>>();
  /** The secrets that the page may see: none, the stored ones, or values from the user. */
  #granted: SecretsAnswer;
  #line: Promise<void> = Promise.resolve();
  #waiting = 0;

  constructor(
    private readonly options: SessionOptions,
    private readonly around: SessionSurroundings,
  ) {
    this.#content = options.content;
    this.#secretPaths = secretPaths(options.manifest.settings);
    const before = options.grantedSecrets?.({ identifier: options.manifest.identifier, origin: around.origin });
    this.#granted = readAnswer(before);
    this.#actions = new Bucket(around.limits.actionsPerMinute, around.limits.actionsPerMinute / 60, around.now);
  }

  /** Returns false if too many messages are waiting and the message is dropped. */
  receive(incoming: Incoming): boolean {
    if (this.#waiting >= this.around.limits.maxWaiting) return false;
    this.#waiting += 1;
    this.#prefix = incoming.prefix;
    this.#line = this.#line.then(async () => {
      try {
        await this.#handle(incoming);
      } catch (error) {
        this.around.onProblem(
          `"${incoming.message.channel}" failed: ${error instanceof Error ? error.message : String(error)}`,
        );
      } finally {
        this.#waiting -= 1;
      }
    });
    return true;
  }

  /**
   * Sets new content of the message. A running page gets it at once. A page that has sent no message yet requests it
   * when it is ready. A page's own write is not sent back: published SDKs use no request ids, and would take it for the
   * answer to their next request. A host may send it back late, after the page has written again. The later write stays.
   */
  setContent(content: unknown): void {
    const text = contentText(content);
    const write = this.#writes.indexOf(text);
    if (write >= 0) {
      // The host sends writes back in their order, so the earlier ones are done.
      this.#writes.splice(0, write);
      return;
    }
    const known = text === contentText(this.#content);
    this.#content = content;
    if (known) return;
    this.#writes.length = 0;
    if (this.#prefix !== undefined) this.#sendContent(this.#prefix, undefined);
  }

  async #handle({ prefix, requestId, message }: Incoming): Promise<void> {
    const { call, store, settings, actions } = this.options;
    switch (message.channel) {
      case "plugin-ready-for-render":
      case "init-standalone-plugin":
        return this.#sendStart(prefix, requestId);
      case "fetch-plugin-message":
        return this.#sendContent(prefix, requestId);
      case "fill-plugin-content":
        return this.#fill(message);
      case "fetch-plugin-state": {
        const state = await store.read(call.messageId);
        const value = Object.hasOwn(state, message.key) ? state[message.key] : undefined;
        return this.#send(prefix, "render-plugin-state", { key: message.key, value }, requestId);
      }
      case "update-plugin-state":
        return this.#updateState(message.key, message.value);
      case "fetch-plugin-settings":
        return this.#sendSettings(prefix, requestId);
      case "update-plugin-settings":
        if (!settings) throw new Error("this host does not store settings for the plugin");
        return this.#updateSettings(message.value, settings);
      case "trigger-ai-message":
        return this.#act("triggerAi", actions?.triggerAi, message.id ?? call.messageId);
      case "create-assistant-message":
        return this.#act("createAssistantMessage", actions?.createAssistantMessage, message.content);
    }
  }

  /**
   * Both start messages go to both kinds of page: either kind may request the call's arguments, and either may watch
   * its message.
   */
  async #sendStart(prefix: Prefix, requestId: string | undefined): Promise<void> {
    const { manifest, call, store } = this.options;
    const written = call.arguments ?? "{}";
    const payload = {
      identifier: manifest.identifier,
      apiName: call.apiName,
      arguments: typeof written === "string" ? written : JSON.stringify(written),
    };
    const [settings, state] = [(await this.#readSettings()).visible, await store.read(call.messageId)];
    const start = () =>
      this.#send(prefix, "init-standalone-plugin", { payload, props: payload, settings, state }, requestId);
    if (manifest.type === "standalone") start();
    this.#sendContent(prefix, requestId);
    if (manifest.type !== "standalone") start();
  }

  #sendContent(prefix: Prefix, requestId: string | undefined): void {
    const props = { content: parsedContent(this.#content), name: this.options.call.apiName };
    // Raw listeners of one family read `payload`, those of the other `props`.
    this.#send(prefix, "render-plugin", { props, payload: props }, requestId);
  }

  async #fill(message: Extract<PluginMessage, { channel: "fill-plugin-content" }>): Promise<void> {
    const { actions, call } = this.options;
    if (!actions?.setMessage) throw new Error("this host does not allow plugins to change their message");
    const before = this.#content;
    // Set before the action, because the host may set its content during it.
    this.#content = message.content;
    const write = contentText(message.content);
    this.#writes.push(write);
    if (this.#writes.length > MAX_WRITES) this.#writes.shift();
    try {
      await actions.setMessage(message.content);
    } catch (error) {
      this.#content = before;
      const refused = this.#writes.lastIndexOf(write);
      if (refused >= 0) this.#writes.splice(refused, 1);
      throw error;
    }
    if (message.triggerAiMessage) await this.#act("triggerAi", actions.triggerAi, call.messageId);
  }

  async #updateState(key: string, value: unknown): Promise<void> {
    const { limits } = this.around;
    const { call, store } = this.options;
    const state = new Map(Object.entries(await store.read(call.messageId)));
    state.set(key, value);
    if (state.size > limits.maxStateKeys)
      throw new Error(`the state has more than ${limits.maxStateKeys} keys; remove some`);
    const fault = jsonFault(Object.fromEntries(state), {
      maxBytes: limits.maxStateBytes,
      maxDepth: limits.maxDepth + 1,
    });
    if (fault) throw new Error(`the state was rejected (${fault}); it may have at most ${limits.maxStateBytes} bytes`);
    await store.write(call.messageId, key, value);
  }

  /**
   * Answers a page at once, without the secrets. If there are any, the user is asked in the meantime. A page that is
   * granted them gets the settings again. Otherwise the page would wait for settings that it may see anyway.
   */
  async #sendSettings(prefix: Prefix, requestId: string | undefined): Promise<void> {
    const { visible, withheld } = await this.#readSettings();
    this.#send(prefix, "render-plugin-settings", { value: visible }, requestId);
    if (withheld.length === 0) return;
    // A repeated request while the user decides waits for the same answer, and gets one message.
    const first = !this.#asked.has("read");
    const granted = this.#ask("read", withheld);
    if (!first) return;
    void granted
      .then(async (yes) => {
        if (yes)
          this.#send(prefix, "render-plugin-settings", { value: (await this.#readSettings()).visible }, undefined);
      })
      .catch((error: unknown) => this.around.onProblem(`cannot read the granted settings: ${String(error)}`));
  }

  async #updateSettings(changes: Record<string, unknown>, settings: SettingsSource): Promise<void> {
    const { visible } = await this.#readSettings();
    // Pages often send all settings back. A secret with the value that the page was shown is not a change.
    const { secret: shown } = splitSecrets(visible, this.#secretPaths);
    const { open, secret, fields } = splitSecrets(withoutSame(changes, shown), this.#secretPaths);
    const write = async (part: Record<string, unknown>): Promise<void> => {
      const merged = mergeSettings(await settings.read(), part);
      await settings.write(Object.fromEntries(Object.keys(part).map((key) => [key, merged[key]])));
    };
    if (Object.keys(open).length > 0) await write(open);
    if (fields.length === 0) return;
    void this.#ask("write", fields)
      .then((granted) => (granted ? write(secret) : undefined))
      .catch((error: unknown) => this.around.onProblem(`cannot write the secret settings: ${String(error)}`));
  }

  async #readSettings(): Promise<{ visible: Record<string, unknown>; withheld: string[] }> {
    const all = (await this.options.settings?.read()) ?? {};
    if (this.#granted === true) return { visible: all, withheld: [] };
    const { open, fields } = splitSecrets(all, this.#secretPaths);
    if (this.#granted === false) return { visible: open, withheld: fields };
    const { values } = this.#granted;
    return {
      visible: withSecrets(open, this.#secretPaths, values),
      withheld: fields.filter((field) => !Object.hasOwn(values, field)),
    };
  }

  /** Asks the user once for each purpose. After a refusal, this view does not ask again. */
  #ask(purpose: SecretsRequest["purpose"], fields: string[]): Promise<boolean> {
    const { requestSecrets, manifest } = this.options;
    const request = { identifier: manifest.identifier, origin: this.around.origin, purpose, fields };
    const before = this.#asked.get(purpose);
    if (before) return before;
    const answer = Promise.resolve()
      .then(() => requestSecrets?.(request) ?? false)
      .then((given) => {
        const answer = readAnswer(given);
        if (purpose === "read") this.#granted = answer;
        return answer !== false;
      })
      .catch((error: unknown) => {
        this.around.onProblem(`cannot ask for secret settings: ${String(error)}`);
        return false;
      });
    this.#asked.set(purpose, answer);
    return answer;
  }

  async #act(
    name: keyof PluginActions,
    action: ((text: string) => Promise<void> | void) | undefined,
    argument: string,
  ): Promise<void> {
    if (!action) throw new Error(`this host does not offer ${name} to plugins`);
    if (!this.#actions.take()) {
      throw new Error(`at most ${this.around.limits.actionsPerMinute} of these requests per minute are allowed`);
    }
    await action.call(this.options.actions, argument);
  }

  #send(prefix: Prefix, channel: HostChannel, body: object, requestId: string | undefined): void {
    this.around.send({ type: `${prefix}:${channel}`, ...body, ...(requestId === undefined ? {} : { requestId }) });
  }
}

/** Returns a text that is equal for contents that are equal for a page. */
function contentText(content: unknown): string {
  return canonicalText(parsedContent(content));
}

/** Only a clear approval counts; any other value is a refusal. */
function readAnswer(given: unknown): SecretsAnswer {
  if (given === true) return true;
  return isRecord(given) && isRecord(given.values) ? { values: { ...given.values } } : false;
}

/** Returns the changes without those that leave a value unchanged. */
function withoutSame(changes: Record<string, unknown>, known: Record<string, unknown>): Record<string, unknown> {
  const left: [string, unknown][] = [];
  for (const [key, value] of Object.entries(changes)) {
    const before = Object.hasOwn(known, key) ? known[key] : undefined;
    if (isRecord(value) && isRecord(before)) left.push([key, withoutSame(value, before)]);
    else if (before === undefined || canonicalText(value) !== canonicalText(before)) left.push([key, value]);
  }
  // `fromEntries` defines its keys: an assignment would follow a key `__proto__`.
  return Object.fromEntries(left);
}
