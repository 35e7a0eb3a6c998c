import { EventReader, type ServerEvent } from "@switchboard/caller/events";
import { enter, leave, type Session, signIn, token } from "./session";

/** A problem of the gateway, with its message and a suggested action. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly hint?: string,
    readonly callId?: string,
    /** A more exact name than the kind, if there is one. */
    readonly reason?: string,
  ) {
    super(message);
  }

  static of(error: unknown): Problem {
    if (error instanceof Problem) return error;
    if (error instanceof DOMException && error.name === "AbortError")
      return new Problem(499, "cancelled", "It was cancelled.");
    const reason = error instanceof Error ? error.message : String(error);
    return new Problem(
      0,
      "unreachable",
      `The gateway did not answer (${reason}).`,
      "Check whether it runs: switchboard status",
    );
  }

  static parse(status: number, text: string): Problem {
    try {
      const body = JSON.parse(text) as Record<string, unknown>;
      const field = (name: string) => (typeof body[name] === "string" ? body[name] : undefined);
      return new Problem(
        status,
        field("kind") ?? "failed",
        field("detail") ?? `The gateway answered ${status}.`,
        field("hint"),
        field("call_id"),
        field("reason"),
      );
    } catch {
      return new Problem(status, "failed", `The gateway answered ${status}.`);
    }
  }
}

interface Options {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  /** Sends no session token, so that a refusal does not end the session. */
  anonymous?: boolean;
}

async function send(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  const sent = options.anonymous ? "" : token();
  if (sent) headers.authorization ??= `Bearer ${sent}`;
  const init: RequestInit = { method: options.method ?? "GET", headers, cache: "no-store", credentials: "omit" };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    headers["content-type"] = "application/json";
    init.body = JSON.stringify(options.body);
  }
  const response = await fetch(path, init);
  if (response.ok) return response;
  const problem = Problem.parse(response.status, await response.text());
  if (response.status === 401 && sent && token() === sent)
    leave("Your session has ended.", "Get a new link with: switchboard console");
  throw problem;
}

export async function api<T>(path: string, options: Options = {}): Promise<T> {
  try {
    const response = await send(path, options);
    const text = await response.text();
    return (text === "" ? undefined : JSON.parse(text)) as T;
  } catch (error) {
    throw Problem.of(error);
  }
}

/** Sends an MCP request to the gateway. */
export async function mcp<T>(method: string, params: unknown, signal?: AbortSignal): Promise<T> {
  try {
    const response = await send("/mcp", {
      method: "POST",
      body: { jsonrpc: "2.0", id: 1, method, params },
      headers: { accept: "application/json, text/event-stream" },
      ...(signal ? { signal } : {}),
    });
    const text = await response.text();
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    const messages = isStream ? Array.from(new EventReader().push(`${text}\n\n`), ({ data }) => data) : [text];
    for (const each of messages) {
      // An event without data only shows that the stream is open.
      const answer = JSON.parse(each || "null") as { id?: number; result?: T; error?: { message: string } } | null;
      if (answer?.id !== 1) continue;
      if (answer.result !== undefined) return answer.result;
      throw new Problem(0, "failed", answer.error?.message ?? "The answer of the gateway is empty.");
    }
    throw new Problem(0, "failed", `The gateway did not answer "${method}".`);
  } catch (error) {
    throw Problem.of(error);
  }
}

/** Reads a stream of events to its end. */
export async function stream(
  path: string,
  options: Options,
  onEvent: (event: ServerEvent) => void,
  onOpen?: (response: Response) => void,
): Promise<void> {
  try {
    const response = await send(path, { ...options, headers: { accept: "text/event-stream", ...options.headers } });
    onOpen?.(response);
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const event of events.push(value)) onEvent(event);
    }
  } catch (error) {
    throw Problem.of(error);
  }
}

export const segment = (text: string) => encodeURIComponent(text);

/**
 * Signs in with a code. An invalid code does not end an existing session, because any page can link here with an
 * invented code.
 */
export async function signInWithCode(code: string): Promise<void> {
  const before = signIn.get();
  if (before.state !== "in") signIn.set({ state: "entering" });
  try {
    enter(await api<Session>("/v1/console/sign-in", { method: "POST", body: { code }, anonymous: true }));
  } catch (error) {
    const problem = Problem.of(error);
    if (before.state !== "in") leave(problem.message, problem.hint);
  }
}

export async function signInWithToken(pasted: string): Promise<void> {
  const headers = { authorization: `Bearer ${pasted.trim()}` };
  enter(await api<Session>("/v1/console/sign-in", { method: "POST", headers }));
}

export async function signOut(): Promise<void> {
  try {
    await api("/v1/console/sign-out", { method: "POST" });
  } catch {
    // The tab drops the token in any case, and the token expires.
  }
  leave("You are signed out.");
}
