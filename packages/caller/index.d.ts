/** A JSON Schema of type object. */
export type Schema = Record<string, unknown>;

export interface Tool<Arguments = never> {
  description?: string;
  /** Arguments are checked against it before they come here. */
  inputSchema?: Schema;
  /** Its promise is the tool's result; what it throws is the tool's error. The signal fires when nobody waits any more. */
  run(args: Arguments, signal: AbortSignal): unknown | Promise<unknown>;
}

export interface SessionEvent {
  type: string;
  session_id: string;
  id?: number;
  at_ms?: number;
  [field: string]: unknown;
}

export interface StartOptions {
  /** The gateway's address, such as `http://127.0.0.1:3210`. */
  gateway: string;
  token: string;
  /** What the names of the tools begin with. */
  callerId: string;
  tools: Record<string, Tool>;
  message: string;
  /** The configured agent that is to work; the gateway's usual one otherwise. */
  agent?: string;
  /** How long a tool may take. */
  timeoutMs?: number;
  /** Hears of everything that happens in the session. */
  onEvent?(event: SessionEvent): void;
}

export interface Session {
  readonly id: string;
  /** The session as the gateway described it when it began. */
  readonly about: Record<string, unknown>;
  /** Resolves when the session has ended; fails when the gateway is lost for good. */
  readonly ended: Promise<void>;
  /** Says more to the agent. */
  message(text: string): Promise<void>;
  /** Ends the session. */
  end(): Promise<void>;
}

/** The gateway refuses, and says why. */
export class Refused extends Error {
  readonly status: number;
  readonly kind: string;
}

/** Starts a session, and answers for the tools until it ends. */
export function startSession(options: StartOptions): Promise<Session>;
