import type { IncomingNewMessage } from "./events.js";

/**
 * Whether a message is for this participant: it names the participant by id or handle, or it names nobody and so is for
 * everybody.
 */
export function isMessageTargetedAt(
  message: Pick<IncomingNewMessage, "at">,
  participantId: string | null | undefined,
  handle?: string,
): boolean {
  return !message.at || message.at.length === 0 || isNamed(message, participantId, handle);
}

/** Whether a message names this participant. */
export function isNamed(
  message: Pick<IncomingNewMessage, "at">,
  participantId: string | null | undefined,
  handle?: string,
): boolean {
  const names = message.at ?? [];
  const isHandle = (name: string) => handle !== undefined && (name === handle || name === `@${handle}`);
  return names.some((name) => name === participantId || isHandle(name));
}
