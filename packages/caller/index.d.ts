/** A JSON Schema of type object. */
export type Schema = Record<string, unknown>;

export interface Tool<Arguments = never> {
  description?: string;
  /** Arguments are validated against it before the call. */
  inputSchema?: Schema;
  /**
   * Its promise is the tool's result; an exception is the tool's error. The signal fires when the call is cancelled.
   */
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
  /** The prefix of the tools' names. */
  callerId: string;
  tools: Record<string, Tool>;
  message: string;
  /** The configured agent to use; by default, the gateway's default agent. */
  agent?: string;
  /** The timeout of a tool. */
  timeoutMs?: number;
  /** Receives every event of the session. */
  onEvent?(event: SessionEvent): void;
}

export interface Session {
  readonly id: string;
  /** The gateway's description of the session at its start. */
  readonly about: Record<string, unknown>;
  /** Resolves when the session has ended; rejects when the gateway is lost for good. */
  readonly ended: Promise<void>;
  /** Sends another message to the agent. */
  message(text: string): Promise<void>;
  /** Ends the session. */
  end(): Promise<void>;
}

/** A refusal by the gateway, with its reason. */
export class Refused extends Error {
  readonly status: number;
  readonly kind: string;
}

/** Starts a session, and answers the calls of the tools until it ends. */
export function startSession(options: StartOptions): Promise<Session>;
