import { bounds } from "./bounds.js";
import { Client } from "./client.js";
import { ValidationError } from "./errors.js";
import { advertise, type MethodDefinition, readMethods } from "./methods.js";
import { PubSubClient } from "./pubsub.js";
import type { AnySchema } from "./schemas.js";
import { Session } from "./session.js";
import type { AgenticClient, AgenticParticipantMetadata, ConnectOptions } from "./types.js";

/** Joins a channel. Resolves when earlier messages have been replayed and this participant is in the roster. */
export async function connect<
  T extends AgenticParticipantMetadata = AgenticParticipantMetadata,
  TSchemas extends Record<string, unknown> = Record<string, AnySchema>,
>(options: ConnectOptions<TSchemas>): Promise<AgenticClient<T>> {
  required(options);
  const { serverUrl, token, channel, handle, name, type, workspaceId, reconnect } = options;
  const { replayMode = "collect", skipOwnMessages = false, clientId } = options;
  const methods = readMethods((options.methods ?? {}) as Record<string, MethodDefinition>);
  const session =
    workspaceId === undefined ? undefined : new Session(workspaceId, channel, handle, options.sessionStore);
  const { position, epoch } = session?.load() ?? {};
  const pubsub = new PubSubClient({
    serverUrl,
    token,
    channel,
    contextId: options.contextId,
    channelConfig: options.channelConfig,
    reconnect,
    metadata: {
      ...options.extraMetadata,
      name,
      type,
      handle,
      ...(workspaceId === undefined ? {} : { workspaceId }),
      methods: advertise(methods),
    },
    ...(replayMode === "skip" ? {} : { sinceId: options.replaySinceId ?? position ?? 0, epoch }),
  });
  const client = new Client<T>(pubsub, {
    ...{ handle, methods, replayMode, clientId, skipOwnMessages },
    bounds: bounds(options.eventBuffer),
  });
  await pubsub.open();
  session?.follow(pubsub);
  // In a separate task, so that a program that awaits `connect` and then calls `events()` misses no event.
  setTimeout(() => client.release(), 0);
  return client;
}

function required(options: ConnectOptions<Record<string, unknown>>): void {
  for (const key of ["serverUrl", "token", "channel", "handle", "name", "type"] as const) {
    if (typeof options[key] !== "string" || options[key] === "") {
      throw new ValidationError(`the option "${key}" is missing`, "send", { [key]: options[key] });
    }
  }
  if (!URL.canParse(options.serverUrl) || !/^(ws|http)s?:/.test(options.serverUrl)) {
    throw new ValidationError(
      `"${options.serverUrl}" is not a valid server URL; use a URL that starts with ws:// or wss://`,
      "send",
    );
  }
}
