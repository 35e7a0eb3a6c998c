import { z } from "zod/v4";
import type { WireMessage } from "./wire.js";

export type ParticipantMetadata = Record<string, unknown>;

export interface Participant<T = ParticipantMetadata> {
  id: string;
  metadata: T;
}

export interface RosterUpdate<T = ParticipantMetadata> {
  participants: Record<string, Participant<T>>;
  /** The time of the change, in milliseconds. */
  ts: number;
  /** The participant that joined, changed or left; absent if the whole roster is new. */
  change?: { type: "join" | "update" | "leave"; participantId: string; leaveReason?: "graceful" | "disconnect" };
}

const snapshotEntry = z.object({ metadata: z.record(z.string(), z.unknown()) });

export const presencePayload = z.object({
  action: z.enum(["join", "update", "leave"]),
  metadata: z.record(z.string(), z.unknown()).nullish(),
  leaveReason: z.enum(["graceful", "disconnect"]).optional().catch(undefined),
});

type Participants = Record<string, Participant>;

/** Participants by id, without a prototype: no id finds an inherited property. */
function byId(participants: Participants = {}): Participants {
  return Object.assign(Object.create(null), participants);
}

/** The participants of the channel. Each state is a separate object that never changes. */
export class Roster {
  #now = byId();
  /** The roster under construction, before `ready`. */
  #next: Participants | undefined = byId();
  readonly #onUpdate: (update: RosterUpdate) => void;

  constructor(onUpdate: (update: RosterUpdate) => void) {
    this.#onUpdate = onUpdate;
  }

  get participants(): Participants {
    return this.#now;
  }

  /** Starts a new roster, because a new connection sends all participants again. */
  begin(): void {
    this.#next = byId();
  }

  apply({ senderId, ts, payload }: WireMessage): void {
    const read = presencePayload.safeParse(payload);
    if (!read.success) return;
    const { action, metadata, leaveReason } = read.data;
    const participants = byId(this.#next ?? this.#now);
    if (action === "leave") delete participants[senderId];
    else participants[senderId] = { id: senderId, metadata: metadata ?? {} };
    if (this.#next) {
      this.#next = participants;
      return;
    }
    this.#now = participants;
    const change = { type: action, participantId: senderId, ...(leaveReason ? { leaveReason } : {}) };
    this.#onUpdate({ participants, ts, change });
  }

  /** Completes the roster; a snapshot replaces it. */
  ready(snapshot: Record<string, unknown> | undefined): void {
    const named = Object.entries(snapshot ?? {}).map(([id, about]) => {
      const read = snapshotEntry.safeParse(about);
      return [id, { id, metadata: read.success ? read.data.metadata : {} }] as const;
    });
    this.#now = snapshot ? byId(Object.fromEntries(named)) : (this.#next ?? byId());
    this.#next = undefined;
    this.#onUpdate({ participants: this.#now, ts: Date.now() });
  }
}
