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

/** The metadata of a participant in the roster. */
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
  /** The context that the channel must belong to. A channel without a context takes the first one given. */
  contextId?: string;
  /** Stored if this connection creates the channel. `client.pubsub.channelConfig` is the stored value. */
  channelConfig?: Record<string, unknown>;
  /** More metadata for the roster. */
  extraMetadata?: Record<string, unknown>;
  /** The methods that others may call. */
  methods?: MethodDefinitions<TSchemas>;
  /** Names a session: the next client with the same id, channel and handle is replayed only the unread messages. */
  workspaceId?: string;
  /** The store of sessions. Default: `localStorage` in a web page, else the memory of this process. */
  sessionStore?: SessionStore;
  /**
   * The handling of earlier messages: combined (`collect`, the default), one by one (`stream`), or not requested
   * (`skip`).
   */
  replayMode?: ReplayMode;
  /** Replay begins after this message instead of with the first. */
  replaySinceId?: number;
  /** Whether to reconnect when the connection is lost. Default false. */
  reconnect?: boolean | ReconnectOptions;
  /** Another id of this client for `skipOwnMessages`. Its own id comes from the token. */
  clientId?: string;
  /** Whether `events()` omits the messages of this client. Default false. */
  skipOwnMessages?: boolean;
  /** The buffer limits for a reader of `events()`, and for one of a call's `stream`. */
  eventBuffer?: EventBuffer;
}

export interface SendOptions {
  replyTo?: string;
  /** Whether the message is stored. Default true. */
  persist?: boolean;
  attachments?: AttachmentInput[];
  contentType?: string;
  /** Ids or handles of the recipients. */
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
  /** The server's id; `undefined` if the message is not stored. */
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
   * Yields all events from now on. A reader that exceeds the `eventBuffer` gets the buffered events, and then an error
   * with the code `lagged`. Its `cause.replaySinceId` is the position to resume from.
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
  /** Leaves the channel, after a short wait for outgoing messages. */
  close(): Promise<void>;
}
