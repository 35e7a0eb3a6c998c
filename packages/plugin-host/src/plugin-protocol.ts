import { isRecord } from "./json.js";

/** Both families of plugins use the same channels with different prefixes. An answer has the prefix of the request. */
export const PREFIXES = ["speraxos", "lobe-chat"] as const;
export type Prefix = (typeof PREFIXES)[number];

/** A message of a plugin's page to its host. */
export type PluginMessage =
  | { channel: "plugin-ready-for-render" | "init-standalone-plugin" }
  | { channel: "fetch-plugin-message" }
  | { channel: "fill-plugin-content"; content: unknown; triggerAiMessage: boolean }
  | { channel: "fetch-plugin-state"; key: string }
  | { channel: "update-plugin-state"; key: string; value: unknown }
  | { channel: "fetch-plugin-settings" }
  | { channel: "update-plugin-settings"; value: Record<string, unknown> }
  | { channel: "trigger-ai-message"; id: string | undefined }
  | { channel: "create-assistant-message"; content: string };

/** A message of the host to a plugin's page. */
export type HostChannel = "render-plugin" | "init-standalone-plugin" | "render-plugin-state" | "render-plugin-settings";

/** A parsed message: its content, and the fields that its answer must repeat. */
export interface Incoming {
  prefix: Prefix;
  /** An extension of ours: lets a page with several open requests match the answers. */
  requestId: string | undefined;
  message: PluginMessage;
}

const MAX_KEY_LENGTH = 256;

/**
 * Reads a message. `"foreign"` is a message of another protocol, which pages may use. `"malformed"` is an invalid
 * message of this protocol.
 */
export function readPluginMessage(data: unknown): Incoming | "foreign" | "malformed" {
  if (!isRecord(data) || typeof data.type !== "string") return "foreign";
  const [family, channel, ...more] = data.type.split(":");
  const prefix = PREFIXES.find((known) => known === family);
  if (prefix === undefined) return "foreign";
  const message = channel === undefined || more.length > 0 ? undefined : readBody(channel, data);
  if (message === undefined) return "malformed";
  return { prefix, requestId: isShortText(data.requestId) ? data.requestId : undefined, message };
}

function readBody(channel: string, data: Record<string, unknown>): PluginMessage | undefined {
  switch (channel) {
    case "plugin-ready-for-render":
    case "init-standalone-plugin":
    case "fetch-plugin-message":
    case "fetch-plugin-settings":
      return { channel };
    case "fill-plugin-content":
      if (data.content === undefined || !isOptional(data.triggerAiMessage, "boolean")) return undefined;
      return { channel, content: data.content, triggerAiMessage: data.triggerAiMessage === true };
    case "fetch-plugin-state":
      return isShortText(data.key) ? { channel, key: data.key } : undefined;
    case "update-plugin-state":
      return isShortText(data.key) ? { channel, key: data.key, value: data.value } : undefined;
    case "update-plugin-settings":
      return isRecord(data.value) ? { channel, value: data.value } : undefined;
    case "trigger-ai-message":
      if (data.id === undefined || data.id === null) return { channel, id: undefined };
      return isShortText(data.id) ? { channel, id: data.id } : undefined;
    case "create-assistant-message":
      return typeof data.content === "string" ? { channel, content: data.content } : undefined;
    default:
      return undefined;
  }
}

function isShortText(value: unknown): value is string {
  return typeof value === "string" && value.length > 0 && value.length <= MAX_KEY_LENGTH;
}

function isOptional(value: unknown, type: "boolean"): boolean {
  return value === undefined || value === null || typeof value === type;
}
