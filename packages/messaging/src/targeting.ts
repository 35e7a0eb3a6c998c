import type { IncomingNewMessage } from "./events.js";

/**
 * Whether a message is for this participant: it names the participant by id or handle, or it has no recipients and is
 * for all participants.
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
  const isHandle = (name: string) => handle !== undefined && handleKey(name) === handleKey(handle);
  return names.some((name) => name === participantId || isHandle(name));
}

/** The form in which handles are compared: lower case, and without a leading `@`. */
function handleKey(handle: string): string {
  return handle.replace(/^@/, "").toLowerCase();
}
