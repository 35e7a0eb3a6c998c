import { addressOf } from "./address.js";
import type { Attachment, AttachmentInput } from "./attachments.js";
import { Connection } from "./connection.js";
import { Cursor } from "./cursor.js";
import { AgenticError, asError, quiet, ValidationError } from "./errors.js";
import { Listeners } from "./listeners.js";
import { Outbox } from "./outbox.js";
import {
  type HistoryPage,
  messageOf,
  type PublishOptions,
  type PubSubMessage,
  type PubSubOptions,
} from "./pubsub-message.js";
import { delayBefore } from "./reconnect.js";
import { type Participant, Roster, type RosterUpdate } from "./roster.js";
import { uuid } from "./uuid.js";
import type { FailureFrame, ReadyFrame, ServerFrame, WireMessage } from "./wire.js";

/** Close codes after which a reconnect is useless. */
const FINAL_CODES: ReadonlySet<number> = new Set([4001, 4002, 4005, 4006]);
const FLUSH_MS = 1000;
const OTHER_HISTORY = new AgenticError("the history of the channel was replaced", "connection-error");
/** References of frames that the client sends by itself. */
const INTRODUCTION = 0;
const PROBE = -1;

/** The transport: messages of any type, in order, across reconnects. */
export class PubSubClient {
  readonly #options: PubSubOptions;
  readonly #outbox = new Outbox();
  /** Distinguishes this program from others of the same participant: a call is for one of them. */
  readonly #instance = uuid();
  #cursor: Cursor;
  readonly #roster: Roster;
  readonly #errors = new Listeners<[Error]>(() => {});
  readonly #messages = this.#listeners<[PubSubMessage]>();
  readonly #rosterUpdates = this.#listeners<[RosterUpdate]>();
  readonly #disconnects = this.#listeners<[]>();
  readonly #reconnects = this.#listeners<[]>();
  readonly #ends = this.#listeners<[]>();
  #metadata: Record<string, unknown>;
  /** The metadata that is being changed. */
  #requested: Record<string, unknown> | undefined;
  #state: "connecting" | "connected" | "waiting" | "closed" = "connecting";
  #connection: Connection | undefined;
  /** The current connection's pending handshake. */
  #handshake: { resolve(frame: ReadyFrame): void; reject(error: Error): void } | undefined;
  #ready: ReadyFrame | undefined;
  #clientId: string | undefined;
  #opened = false;
  /** Whether the server detects a message that is sent again. */
  #idempotent = false;
  /** The reason why a reconnect is useless. */
  #hopeless: AgenticError | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: PubSubOptions) {
    this.#options = options;
    this.#metadata = options.metadata;
    this.#cursor = new Cursor(options.sinceId, options.epoch);
    this.#roster = new Roster((update) => this.#rosterUpdates.call(update));
  }

  /** Connects, and resolves when all requested messages have been replayed. Called once. */
  async open(): Promise<void> {
    try {
      await this.#connect().catch(async (error: unknown) => {
        if (error !== OTHER_HISTORY) throw error;
        // The channel was deleted and created again: read it from its beginning.
        this.#drop();
        this.#cursor = new Cursor(0);
        await this.#connect();
      });
      this.#opened = true;
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  /** Publishes a message. Resolves with the id when it is stored, or without one when an unstored message was sent. */
  publish(type: string, payload: unknown, options: PublishOptions = {}): Promise<number | undefined> {
    const { persist = true, attachments = [] } = options;
    const clientMessageId = uuid();
    const published = this.#request(
      (ref) => ({ action: "publish", type, payload, persist, ref, ...(persist ? { clientMessageId } : {}) }),
      persist,
      attachments,
    ).then((answer) => (answer && "id" in answer ? answer.id : undefined));
    return quiet(published);
  }

  /** Replaces this participant's metadata in the roster. */
  async updateMetadata(metadata: Record<string, unknown>): Promise<void> {
    this.#requested = metadata;
    try {
      await this.#request((ref) => ({ action: "update-metadata", payload: metadata, ref }), true);
      this.#metadata = metadata;
    } finally {
      if (this.#requested === metadata) this.#requested = undefined;
    }
  }

  /** Returns stored messages that are older than this one, if the server supports it. */
  async getMessagesBefore(before: number, limit = 100): Promise<HistoryPage> {
    if (!this.#can("get-messages-before")) {
      throw new AgenticError("the server does not support history requests; use a replay instead", "connection-error");
    }
    const answer = await this.#request((ref) => ({ action: "get-messages-before", before, limit, ref }), true);
    if (answer?.kind !== "history") throw new AgenticError("the server did not return history", "connection-error");
    return { messages: answer.messages.map((message) => messageOf(message, "replay")), hasMore: answer.hasMore };
  }

  /** This participant's id, which the server takes from its token. */
  get clientId(): string | undefined {
    return this.#clientId;
  }

  get channel(): string {
    return this.#options.channel;
  }

  /** The channel's context, while this client is connected and the channel has one. */
  get contextId(): string | undefined {
    return this.#ready?.contextId;
  }

  /** The configuration that the channel was created with. */
  get channelConfig(): Record<string, unknown> | undefined {
    return this.#ready?.channelConfig;
  }

  get connected(): boolean {
    return this.#state === "connected";
  }

  get reconnecting(): boolean {
    return this.#state === "waiting" || (this.#state === "connecting" && this.#opened);
  }

  get closed(): boolean {
    return this.#state === "closed";
  }

  get roster(): Record<string, Participant> {
    return this.#roster.participants;
  }

  /** The read position in the channel, and the id of its history. */
  get checkpoint(): { position?: number; epoch?: string } {
    const { position, epoch } = this.#cursor;
    return { ...(position === undefined ? {} : { position }), ...(epoch === undefined ? {} : { epoch }) };
  }

  /** Whether the server watches calls: it fails calls that cannot be answered. */
  get serverWatchesCalls(): boolean {
    return this.#ready?.extensions !== undefined;
  }

  /** Calls the handler with every message of every type, in order, once. */
  onMessage(handler: (message: PubSubMessage) => void): () => void {
    return this.#messages.add(handler);
  }

  /** Calls the handler with the current roster if it is known, and at every change. */
  onRoster(handler: (update: RosterUpdate) => void): () => void {
    const participants = this.#roster.participants;
    const isKnown = Object.keys(participants).length > 0;
    return this.#rosterUpdates.add(handler, isKnown ? [{ participants, ts: Date.now() }] : undefined);
  }

  onError(handler: (error: Error) => void): () => void {
    return this.#errors.add(handler);
  }

  onDisconnect(handler: () => void): () => void {
    return this.#disconnects.add(handler);
  }

  /** Called after a reconnect, when all missed messages have been delivered. */
  onReconnect(handler: () => void): () => void {
    return this.#reconnects.add(handler);
  }

  /** Called when the client is closed or the connection is lost for good. */
  onEnd(handler: () => void): () => void {
    return this.#ends.add(handler);
  }

  /** Reports an error to the error listeners. */
  report(error: unknown): void {
    this.#errors.call(asError(error));
  }

  /** Disconnects, after a short wait for outgoing messages. */
  async close(): Promise<void> {
    if (this.#state === "closed") return;
    const connection = this.#state === "connected" ? this.#connection : undefined;
    this.#state = "closed";
    clearTimeout(this.#timer);
    this.#ends.call();
    if (connection) await this.#outbox.empty(FLUSH_MS);
    this.#end();
    if (connection) this.#disconnects.call();
  }

  #listeners<Args extends unknown[]>(): Listeners<Args> {
    return new Listeners<Args>((error) => this.report(error));
  }

  #can(extension: string): boolean {
    return this.#ready?.extensions?.includes(extension) ?? false;
  }

  #request(
    make: Parameters<Outbox["add"]>[0],
    again: boolean,
    attachments: readonly AttachmentInput[] = [],
  ): ReturnType<Outbox["add"]> {
    if (this.#state === "closed") return Promise.reject(new AgenticError("the client is closed", "connection-error"));
    const connection = this.#state === "connected" ? this.#connection : undefined;
    try {
      return this.#outbox.add(make, attachments, again, connection && ((data) => connection.send(data)));
    } catch (error) {
      if (error instanceof ValidationError) return Promise.reject(error);
      const failure = new ValidationError(
        `the message cannot be written as JSON: ${asError(error).message}`,
        "send",
        error,
      );
      return Promise.reject(failure);
    }
  }

  /** Opens one connection, and returns when it is ready. */
  async #connect(): Promise<void> {
    this.#state = "connecting";
    this.#roster.begin();
    const ready = new Promise<ReadyFrame>((resolve, reject) => {
      this.#handshake = { resolve, reject };
    });
    ready.catch(() => {});
    let connection: Connection;
    try {
      connection = await Connection.open(addressOf(this.#options, this.#instance, this.#cursor), {
        frame: (frame) => this.#frame(frame),
        unreadable: (error) => this.report(error),
        closed: (code, reason) => this.#lost(code, reason),
        probe: () => this.#probe(),
      });
    } catch (error) {
      throw new AgenticError(asError(error).message, "connection-error", error);
    }
    if (this.closed) {
      connection.close();
      throw new AgenticError("the client is closed", "connection-error");
    }
    this.#connection = connection;
    await ready;
    await this.#introduce(connection);
    // The connection may be lost, or the client closed, at the same moment.
    if (this.#connection !== connection)
      throw new AgenticError("the connection was lost immediately", "connection-error");
    this.#state = "connected";
    this.#outbox.resend((data) => connection.send(data));
  }

  /** Sends this participant's metadata; only then can others call it. */
  async #introduce(connection: Connection): Promise<void> {
    const introduced = new Promise<ReadyFrame>((resolve, reject) => {
      this.#handshake = { resolve, reject };
    });
    connection.send(JSON.stringify({ action: "update-metadata", payload: this.#metadata, ref: INTRODUCTION }));
    await introduced;
  }

  #frame(frame: ServerFrame): void {
    if (frame.kind === "ready") this.#caughtUp(frame);
    else if (frame.kind === "error") this.#refused(frame);
    else if (frame.kind === "message") this.#message(frame.message, frame.attachments);
    else if (frame.ref !== undefined) this.#outbox.answer(frame.ref, frame);
  }

  #refused(frame: FailureFrame): void {
    const code = frame.code === "handle-conflict" ? frame.code : "connection-error";
    const error = new AgenticError(frame.error, code, frame);
    if (frame.ref === INTRODUCTION) this.#handshake?.reject(error);
    else if (!this.#outbox.refuse(frame) && frame.ref !== PROBE) this.report(error);
  }

  #message(message: WireMessage, attachments: Attachment[] | undefined): void {
    const caughtUp = this.#ready !== undefined;
    const { ref, type, senderId } = message;
    if (caughtUp && (ref === INTRODUCTION || this.#isIntroduction(message))) {
      this.#clientId = senderId;
      this.#handshake?.resolve(this.#ready as ReadyFrame);
    }
    if (type === "presence") {
      if (this.#isConflict(message)) return;
      this.#roster.apply(message);
    }
    // Initial presence belongs to the roster, and is not an event.
    if (!caughtUp && message.id === undefined) return;
    const isNew = this.#cursor.isNew(message, caughtUp);
    // A duplicate is an answer, not an event: it was delivered before, or belongs to another program of this
    // participant.
    if (isNew && !message.duplicate) {
      const kind = this.#opened && message.kind === "replay" ? "persisted" : message.kind;
      const missed = !caughtUp && this.#opened;
      if (missed && senderId === this.#clientId && !this.#idempotent) this.#outbox.recognise(message);
      this.#messages.call(messageOf(message, kind, attachments, missed));
    }
    if (ref !== undefined) this.#outbox.answer(ref, message);
  }

  /**
   * Whether this is the server's notice before it refuses a handle: a presence of the handle's owner, with the handle
   * in the spelling of this client.
   */
  #isConflict({ id, payload, senderId }: WireMessage): boolean {
    if (id !== undefined || senderId === this.#clientId) return false;
    const { action, metadata } = (payload ?? {}) as { action?: unknown; metadata?: { handle?: unknown } | null };
    const handle = this.#requested?.handle;
    return action === "update" && handle !== undefined && metadata?.handle === handle;
  }

  /** Some servers answer an introduction without its reference. */
  #isIntroduction({ type, payload, senderId }: WireMessage): boolean {
    if (type !== "presence" || this.#state !== "connecting") return false;
    // Another participant may have the same metadata; a server that reports our id would not confuse the two.
    if (this.#clientId !== undefined && senderId !== this.#clientId) return false;
    const { action, metadata } = (payload ?? {}) as { action?: unknown; metadata?: unknown };
    return action === "update" && JSON.stringify(metadata) === JSON.stringify(this.#metadata);
  }

  #caughtUp(frame: ReadyFrame): void {
    this.#ready = frame;
    this.#idempotent = this.#can("client-message-id");
    if (frame.participantId !== undefined) this.#clientId = frame.participantId;
    const { lost, other } = this.#cursor.ready(frame);
    if (other && !this.#opened) {
      this.#handshake?.reject(OTHER_HISTORY);
      return;
    }
    this.#roster.ready(frame.roster);
    if (lost) {
      this.report(
        new AgenticError("some messages were deleted before this client could read them", "connection-error", frame),
      );
    }
    this.#handshake?.resolve(frame);
  }

  #probe(): boolean {
    // A connection that is not ready yet has a pending answer anyway.
    if (this.#state !== "connected") return true;
    if (!this.#can("get-messages-before")) return false;
    // There are no messages before the first id, so the answer is small.
    this.#connection?.send(JSON.stringify({ action: "get-messages-before", before: 1, limit: 1, ref: PROBE }));
    return true;
  }

  #lost(code: number, reason: string): void {
    const error = new AgenticError(`the connection was closed: ${reason || code}`, "connection-error", {
      code,
      reason,
    });
    const wasConnected = this.#state === "connected";
    this.#connection = undefined;
    this.#ready = undefined;
    this.#outbox.disconnected();
    this.#handshake?.reject(error);
    if (!wasConnected) {
      if (FINAL_CODES.has(code)) this.#hopeless = error;
      return;
    }
    this.#disconnects.call();
    if (this.closed) return;
    if (FINAL_CODES.has(code)) this.#giveUp(error);
    else this.#again(1, error);
  }

  #again(attempt: number, why: Error): void {
    const delay = delayBefore(attempt, this.#options.reconnect);
    if (delay === undefined) {
      if (this.#options.reconnect) this.#giveUp(why);
      else this.#end();
      return;
    }
    this.#state = "waiting";
    this.#timer = setTimeout(() => {
      this.#connect().then(
        () => this.#reconnects.call(),
        (error: unknown) => {
          if (this.closed) return;
          this.#drop();
          if (this.#hopeless) return this.#giveUp(this.#hopeless);
          if (error instanceof AgenticError && error.code === "handle-conflict") return this.#giveUp(error);
          this.#again(attempt + 1, asError(error));
        },
      );
    }, delay);
  }

  #giveUp(error: Error): void {
    this.report(error);
    this.#end();
  }

  #drop(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#ready = undefined;
    connection?.close();
  }

  #end(): void {
    const told = this.#state === "closed";
    this.#state = "closed";
    clearTimeout(this.#timer);
    this.#handshake?.reject(new AgenticError("the client is closed", "connection-error"));
    this.#outbox.fail(new AgenticError("the connection is closed", "connection-error"));
    try {
      this.#connection?.send(JSON.stringify({ action: "close", ref: 0 }));
    } catch {
      // The connection is not open any more.
    }
    this.#drop();
    if (!told) this.#ends.call();
  }
}
