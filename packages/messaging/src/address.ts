import type { Cursor } from "./cursor.js";

/** Where to connect, with what the server has to know: who, which channel, and what was read of it. */
export function addressOf(
  { serverUrl, token, channel }: { serverUrl: string; token: string; channel: string },
  instance: string,
  { position, epoch }: Cursor,
): string {
  const url = new URL(serverUrl);
  url.protocol = url.protocol.replace(/^http/, "ws");
  url.searchParams.set("token", token);
  url.searchParams.set("channel", channel);
  url.searchParams.set("roster", "snapshot");
  url.searchParams.set("instance", instance);
  if (position !== undefined) {
    url.searchParams.set("sinceId", String(position));
    if (epoch !== undefined) url.searchParams.set("epoch", epoch);
  }
  return url.href;
}
