import { z } from "zod/v4";
import { asError } from "./errors.js";
import type { IncomingEvent } from "./events.js";
import type { MethodDefinition } from "./methods.js";
import type { AgenticClient } from "./types.js";

const pauseArguments = z.object({
  reason: z.string().optional().describe("Reason for the pause"),
  messageId: z.string().optional().describe("The message whose work to pause. Default: the current work"),
});

const NO_REASON = "no reason given";
const PAUSE_METHOD = "pause";

/** Returns a method with which others pause this participant. Register it under the name `pause`. */
export function createPauseMethodDefinition(
  onPause?: (reason: string) => void | Promise<void>,
): MethodDefinition<typeof pauseArguments, { paused: true; reason: string }> {
  return {
    description:
      "Pauses the current work of this participant, so that someone can intervene. It continues with the next message.",
    parameters: pauseArguments,
    async execute({ reason = NO_REASON }) {
      await onPause?.(reason);
      return { paused: true, reason };
    },
  };
}

export interface InterruptHandlerOptions {
  client: Pick<AgenticClient, "clientId" | "events" | "pubsub">;
  /** The message that the participant works on. */
  messageId: string;
  onPause: (reason: string) => void | Promise<void>;
  onResume?: (reason: string) => void | Promise<void>;
  /** Default: `onPause`. */
  onCancel?: (reason: string) => void | Promise<void>;
  /** Receives errors of the callbacks. Default: the client's own error handlers. */
  onError?: (error: Error) => void;
}

export interface InterruptHandler {
  /** Watches until `cleanup` is called or the client is closed. Never rejects. */
  monitor(): Promise<void>;
  isPaused(): boolean;
  /** Stops watching. */
  cleanup(): void;
}

/** Watches for requests to pause this participant: an `execution-pause` for the message, or a call of `pause`. */
export function createInterruptHandler(options: InterruptHandlerOptions): InterruptHandler {
  const { client, messageId, onPause, onResume, onCancel = onPause } = options;
  const report = options.onError ?? ((error: Error) => client.pubsub.report(error));
  let paused = false;
  let ended = false;
  let events: AsyncIterableIterator<IncomingEvent> | undefined;

  const attempt = async (callback: ((reason: string) => void | Promise<void>) | undefined, reason = NO_REASON) => {
    try {
      await callback?.(reason);
    } catch (error) {
      report(asError(error));
    }
  };
  const pause = async (reason?: string) => {
    if (paused) return;
    paused = true;
    await attempt(onPause, reason);
  };
  const take = async (event: IncomingEvent) => {
    if (event.type === "execution-pause" && event.messageId === messageId) {
      const { status, reason } = event;
      if (status === "paused") return await pause(reason);
      paused = status === "cancelled";
      return await attempt(status === "cancelled" ? onCancel : onResume, reason);
    }
    if (event.type === "method-call" && event.methodName === PAUSE_METHOD && event.providerId === client.clientId) {
      const { reason, messageId: only } = pauseArguments.catch({}).parse(event.args ?? {});
      if (only !== undefined && only !== messageId) return;
      const wasPaused = paused;
      await pause(reason);
      // Notifies the other participants. A pause by a call looks the same as a pause by a message.
      if (wasPaused) return;
      const told = { messageId, status: "paused", ...(reason === undefined ? {} : { reason }) };
      await client.pubsub.publish("execution-pause", told).catch(report);
    }
  };

  return {
    async monitor() {
      while (!ended) {
        events ??= client.events({ includeEphemeral: true });
        try {
          for await (const event of events) await take(event);
          return;
        } catch (error) {
          // A callback took too long, and the event buffer overflowed. Events from now on still count.
          report(asError(error));
          events = undefined;
        }
      }
    },
    isPaused: () => paused,
    cleanup() {
      ended = true;
      void events?.return?.();
    },
  };
}
