import type { Cursor } from "./cursor.js";

/** A channel of a server. */
export interface Place {
  serverUrl: string;
  token: string;
  channel: string;
  /** The context that the channel must belong to. */
  contextId?: string | undefined;
  /** The configuration of the channel, if this connection creates it. */
  channelConfig?: Record<string, unknown> | undefined;
}

/** Returns the URL of the connection, with the token, the channel and the last position. */
export function addressOf(
  { serverUrl, token, channel, contextId, channelConfig }: Place,
  instance: string,
  { position, epoch }: Cursor,
): string {
  const url = new URL(serverUrl);
  url.protocol = url.protocol.replace(/^http/, "ws");
  url.searchParams.set("token", token);
  url.searchParams.set("channel", channel);
  url.searchParams.set("roster", "snapshot");
  url.searchParams.set("instance", instance);
  if (contextId !== undefined) url.searchParams.set("contextId", contextId);
  if (channelConfig !== undefined) url.searchParams.set("channelConfig", JSON.stringify(channelConfig));
  if (position !== undefined) {
    url.searchParams.set("sinceId", String(position));
    if (epoch !== undefined) url.searchParams.set("epoch", epoch);
  }
  return url.href;
}
