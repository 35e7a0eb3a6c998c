import type { AttachmentInput } from "./attachments.js";
import type { EventBuffer } from "./bounds.js";
import type { CallOptions, MethodCallHandle } from "./calls.js";
import type { IncomingEvent } from "./events.js";
import type { EventFilterOptions, ReplayMode } from "./hub.js";
import type { DiscoveredMethod, MethodAdvertisement, MethodDefinitions } from "./methods.js";
import type { PubSubClient } from "./pubsub.js";
import type { ReconnectOptions } from "./reconnect.js";
import type { Participant, RosterUpdate } from "./roster.js";
import type { AnySchema } from "./schemas.js";
import type { SessionStore } from "./session.js";

/** What the roster says about a participant. */
export interface AgenticParticipantMetadata {
  name: string;
  type: string;
  handle: string;
  methods?: MethodAdvertisement[];
  [key: string]: unknown;
}

export interface ConnectOptions<TSchemas extends Record<string, unknown> = Record<string, AnySchema>> {
  /** `ws://`, `wss://`, `http://` or `https://`. */
  serverUrl: string;
  token: string;
  channel: string;
  /** Unique in the channel. */
  handle: string;
  name: string;
  type: string;
  /** The context that the channel must belong to. A channel without one takes the first that is named. */
  contextId?: string;
  /** Stored if this connection creates the channel. `client.pubsub.channelConfig` is what was stored. */
  channelConfig?: Record<string, unknown>;
  /** More for the roster to say. */
  extraMetadata?: Record<string, unknown>;
  /** What others may call. */
  methods?: MethodDefinitions<TSchemas>;
  /** Names a session: the next client with this, the channel and the handle is replayed only what this one has not had. */
  workspaceId?: string;
  /** Where sessions are kept. Default: `localStorage` in a web page, else in this process alone. */
  sessionStore?: SessionStore;
  /**
   * What becomes of messages from before: put together (`collect`, the default), handed on one by one (`stream`), or not
   * asked for (`skip`).
   */
  replayMode?: ReplayMode;
  /** Replay begins after this message, and not with the first. */
  replaySinceId?: number;
  /** Whether to connect again when the connection is lost. Default false. */
  reconnect?: boolean | ReconnectOptions;
  /** Another id by which `skipOwnMessages` knows this client. Its own id comes from the token. */
  clientId?: string;
  /** Whether `events()` leaves out what this client has sent. Default false. */
  skipOwnMessages?: boolean;
  /** How much may wait for a reader of `events()`, and for one of a call's `stream`. */
  eventBuffer?: EventBuffer;
}

export interface SendOptions {
  replyTo?: string;
  /** Whether it is stored. Default true. */
  persist?: boolean;
  attachments?: AttachmentInput[];
  contentType?: string;
  /** Ids or handles of those whom it is for. */
  at?: string[];
  metadata?: Record<string, unknown>;
}

export interface UpdateOptions {
  complete?: boolean;
  persist?: boolean;
  attachments?: AttachmentInput[];
  contentType?: string;
}

export interface SendResult {
  messageId: string;
  /** The server's id; `undefined` for what is not stored. */
  pubsubId: number | undefined;
}

/** A participant of a channel. */
export interface AgenticClient<T extends AgenticParticipantMetadata = AgenticParticipantMetadata> {
  /** This participant's id. */
  readonly clientId: string;
  readonly handle: string;
  readonly channel: string;
  readonly connected: boolean;
  readonly reconnecting: boolean;
  /** The transport, for messages of other types. */
  readonly pubsub: PubSubClient;

  send(content: string, options?: SendOptions): Promise<SendResult>;
  /** Appends to a message. */
  update(messageId: string, content: string, options?: UpdateOptions): Promise<number | undefined>;
  complete(messageId: string, options?: { persist?: boolean }): Promise<number | undefined>;
  error(messageId: string, error: string, code?: string, options?: { persist?: boolean }): Promise<number | undefined>;
  /**
   * Everything that comes from now on. A reader that leaves more unread than the `eventBuffer` holds gets what it had, and
   * then an error with the code `lagged`, whose `cause.replaySinceId` is where to go on.
   */
  events(filter?: EventFilterOptions): AsyncIterableIterator<IncomingEvent>;

  discoverMethodDefs(): DiscoveredMethod[];
  discoverMethodDefsFrom(providerId: string): DiscoveredMethod[];
  callMethod(providerId: string, methodName: string, args?: unknown, options?: CallOptions): MethodCallHandle;

  readonly roster: Record<string, Participant<T>>;
  onRoster(handler: (update: RosterUpdate<T>) => void): () => void;

  onError(handler: (error: Error) => void): () => void;
  onDisconnect(handler: () => void): () => void;
  onReconnect(handler: () => void): () => void;
  /** Leaves the channel; what is on its way is waited for, for a moment. */
  close(): Promise<void>;
}
