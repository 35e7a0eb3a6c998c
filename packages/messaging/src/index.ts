/** Participants of channels: messages, presence, methods, streaming and replay. */

export type { Attachment, AttachmentInput } from "./attachments.js";
export type { EventBuffer } from "./bounds.js";
export type { CallOptions, MethodCallHandle } from "./calls.js";
export { connect } from "./connect.js";
export { AgenticError, type AgenticErrorCode, ValidationError } from "./errors.js";
export type {
  IncomingBase,
  IncomingErrorMessage,
  IncomingEvent,
  IncomingExecutionPause,
  IncomingMessage,
  IncomingMethodCall,
  IncomingMethodResult,
  IncomingNewMessage,
  IncomingPresenceEvent,
  IncomingUpdateMessage,
  PauseStatus,
} from "./events.js";
export type { EventFilterOptions, ReplayMode } from "./hub.js";
export { jsonSchemaToZod, jsonSchemaToZodRawShape } from "./json-schema.js";
export {
  type DiscoveredMethod,
  type MethodAdvertisement,
  type MethodDefinition,
  type MethodExecutionContext,
  type MethodResultChunk,
  type MethodResultValue,
  MethodResultWithAttachments,
} from "./methods.js";
export {
  createInterruptHandler,
  createPauseMethodDefinition,
  type InterruptHandler,
  type InterruptHandlerOptions,
} from "./pause.js";
export type { PubSubClient } from "./pubsub.js";
export type { HistoryPage, PublishOptions, PubSubMessage } from "./pubsub-message.js";
export type { ReconnectOptions } from "./reconnect.js";
export type { Participant, ParticipantMetadata, RosterUpdate } from "./roster.js";
export type { AnySchema, JsonSchema, ZodSchema } from "./schemas.js";
export type { SessionStore } from "./session.js";
export { isMessageTargetedAt } from "./targeting.js";
export { type AgentSDKToolDefinition, type AgentSDKTools, createToolsForAgentSDK, type ToolsOptions } from "./tools.js";
export type {
  AgenticClient,
  AgenticParticipantMetadata,
  ConnectOptions,
  SendOptions,
  SendResult,
  UpdateOptions,
} from "./types.js";
