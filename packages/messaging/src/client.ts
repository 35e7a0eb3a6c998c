import type { Bounds } from "./bounds.js";
import { type CallOptions, Calls, type MethodCallHandle } from "./calls.js";
import { AgenticError, quiet, ValidationError } from "./errors.js";
import { type IncomingEvent, type IncomingMethodCancel, readEvent } from "./events.js";
import { type EventFilterOptions, EventHub, type ReplayMode } from "./hub.js";
import { type DiscoveredMethod, type Method, methodsOf } from "./methods.js";
import { check, type Payload, type ProtocolType } from "./protocol.js";
import { Provider } from "./provider.js";
import type { PubSubClient } from "./pubsub.js";
import type { PublishOptions, PubSubMessage } from "./pubsub-message.js";
import type { Participant, RosterUpdate } from "./roster.js";
import type { AgenticClient, AgenticParticipantMetadata, SendOptions, SendResult, UpdateOptions } from "./types.js";
import { uuid } from "./uuid.js";

export interface ClientOptions {
  handle: string;
  methods: Record<string, Method>;
  replayMode: ReplayMode;
  clientId?: string | undefined;
  skipOwnMessages: boolean;
  bounds: Bounds;
}

/** The client, composed of all parts of the package. */
export class Client<T extends AgenticParticipantMetadata> implements AgenticClient<T> {
  readonly handle: string;
  readonly pubsub: PubSubClient;
  readonly #hub: EventHub;
  readonly #provider: Provider;
  readonly #calls: Calls;
  /** Messages that arrived before `connect` returned the client. */
  #early: PubSubMessage[] | undefined = [];

  constructor(pubsub: PubSubClient, options: ClientOptions) {
    this.pubsub = pubsub;
    this.handle = options.handle;
    const { replayMode, handle } = options;
    const isOwn = (id: string) => id === pubsub.clientId || id === options.clientId;
    this.#hub = new EventHub({
      replayMode,
      handle,
      selfId: () => pubsub.clientId,
      isSkipped: (senderId) => options.skipOwnMessages && isOwn(senderId),
      bounds: options.bounds,
      report: (error) => pubsub.report(error),
    });
    this.#provider = new Provider(
      options.methods,
      (payload, attachments) => this.#publish("method-result", payload, attachments ? { attachments } : {}),
      (error) => pubsub.report(error),
    );
    this.#calls = new Calls({
      send: (type, payload) => this.#publish(type, payload as Payload<"method-call" | "method-cancel">),
      look: (providerId, methodName) => this.#look(providerId, methodName),
      bounds: options.bounds,
    });
    pubsub.onMessage((message) => this.#receive(message));
    pubsub.onReconnect(() => this.#provider.runMissed());
    pubsub.onEnd(() => this.#end());
  }

  /** Called when the program has the client. Handles early messages; later ones are handled on arrival. */
  release(): void {
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const message of early) this.#handle(message);
  }

  get clientId(): string {
    return this.pubsub.clientId ?? "";
  }

  get channel(): string {
    return this.pubsub.channel;
  }

  get connected(): boolean {
    return this.pubsub.connected;
  }

  get reconnecting(): boolean {
    return this.pubsub.reconnecting;
  }

  send(content: string, options: SendOptions = {}): Promise<SendResult> {
    const { persist = true, attachments = [], ...fields } = options;
    const messageId = uuid();
    const published = this.#publish("message", { id: messageId, content, ...fields }, { persist, attachments });
    return quiet(published.then((pubsubId) => ({ messageId, pubsubId })));
  }

  update(messageId: string, content: string, options: UpdateOptions = {}): Promise<number | undefined> {
    const { persist = true, attachments = [], ...fields } = options;
    return this.#publish("update-message", { id: messageId, content, ...fields }, { persist, attachments });
  }

  complete(messageId: string, { persist = true }: { persist?: boolean } = {}): Promise<number | undefined> {
    return this.#publish("update-message", { id: messageId, complete: true }, { persist });
  }

  error(
    messageId: string,
    error: string,
    code?: string,
    { persist = true }: { persist?: boolean } = {},
  ): Promise<number | undefined> {
    return this.#publish("error", { id: messageId, error, ...(code === undefined ? {} : { code }) }, { persist });
  }

  events(filter?: EventFilterOptions): AsyncIterableIterator<IncomingEvent> {
    return this.#hub.events(filter);
  }

  discoverMethodDefs(): DiscoveredMethod[] {
    return Object.values(this.pubsub.roster).flatMap(methodsOf);
  }

  discoverMethodDefsFrom(providerId: string): DiscoveredMethod[] {
    const provider = this.pubsub.roster[providerId];
    return provider ? methodsOf(provider) : [];
  }

  callMethod(providerId: string, methodName: string, args?: unknown, options?: CallOptions): MethodCallHandle {
    return this.#calls.start(providerId, methodName, args, options);
  }

  get roster(): Record<string, Participant<T>> {
    return this.pubsub.roster as unknown as Record<string, Participant<T>>;
  }

  onRoster(handler: (update: RosterUpdate<T>) => void): () => void {
    return this.pubsub.onRoster((update) => handler(update as unknown as RosterUpdate<T>));
  }

  onError(handler: (error: Error) => void): () => void {
    return this.pubsub.onError(handler);
  }

  onDisconnect(handler: () => void): () => void {
    return this.pubsub.onDisconnect(handler);
  }

  onReconnect(handler: () => void): () => void {
    return this.pubsub.onReconnect(handler);
  }

  async close(): Promise<void> {
    await this.pubsub.close();
  }

  /** Validates a payload and publishes it. Validation errors are also reported to the error listeners. */
  #publish<K extends ProtocolType>(
    type: K,
    payload: Payload<K>,
    options?: PublishOptions,
  ): Promise<number | undefined> {
    // An unhandled rejection must not end a program that does not await the message.
    return quiet(this.#check(type, payload, options));
  }

  async #check<K extends ProtocolType>(
    type: K,
    payload: Payload<K>,
    options: PublishOptions = {},
  ): Promise<number | undefined> {
    try {
      check(type, payload, "send");
      return await this.pubsub.publish(type, payload, options);
    } catch (error) {
      if (error instanceof ValidationError) this.pubsub.report(error);
      throw error;
    }
  }

  #look(providerId: string, methodName: string): { method?: DiscoveredMethod; objection?: AgenticError } {
    const method = this.discoverMethodDefsFrom(providerId).find(({ name }) => name === methodName);
    if (method) return { method };
    // A server that watches calls rejects an unknown method itself, and the list of its tools may be incomplete.
    if (this.pubsub.serverWatchesCalls || this.pubsub.reconnecting) return {};
    const provider = this.pubsub.roster[providerId];
    // A provider that declares no methods answers by itself.
    if (provider && !Array.isArray(provider.metadata.methods)) return {};
    if (provider) {
      return { objection: new AgenticError(`"${providerId}" has no method "${methodName}"`, "method-not-found") };
    }
    return {
      objection: new AgenticError(`there is no participant "${providerId}" in the channel`, "provider-not-found"),
    };
  }

  #receive(message: PubSubMessage): void {
    if (this.pubsub.closed) return;
    if (this.#early && message.kind !== "replay") this.#early.push(message);
    else this.#handle(message);
  }

  #handle(message: PubSubMessage): void {
    let event: IncomingEvent | IncomingMethodCancel | undefined;
    try {
      event = readEvent(message);
    } catch (error) {
      this.pubsub.report(error);
      return;
    }
    if (!event) return;
    if (event.kind !== "replay") this.#act(event, message.missed ?? false);
    if (event.type !== "method-cancel") this.#hub.push(event);
  }

  #act(event: IncomingEvent | IncomingMethodCancel, missed: boolean): void {
    switch (event.type) {
      case "method-call":
        if (event.providerId !== this.pubsub.clientId) return;
        if (!this.#provider.has(event.methodName) && this.#isElsewhere(event.methodName)) return;
        if (missed) this.#provider.missed(event);
        else this.#provider.call(event);
        return;
      case "method-cancel":
        this.#provider.cancel(event.callId, event.senderId);
        return;
      case "method-result":
        this.#calls.result(event);
        if (event.senderId === this.pubsub.clientId) this.#provider.answered(event);
        return;
      case "presence":
        if (event.action === "leave" && !missed && !this.pubsub.serverWatchesCalls) this.#calls.left(event.senderId);
        return;
    }
  }

  /** Whether another connection of this participant has declared the method, and therefore answers. */
  #isElsewhere(methodName: string): boolean {
    return this.discoverMethodDefsFrom(this.clientId).some(({ name }) => name === methodName);
  }

  #end(): void {
    this.#provider.close();
    this.#calls.fail(new AgenticError("the connection is closed", "connection-error"));
    this.#hub.end();
  }
}
