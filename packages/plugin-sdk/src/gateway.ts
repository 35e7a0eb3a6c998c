import { createErrorResponse, PluginErrorType } from "./error.js";
import { PLUGIN_SETTINGS_HEADERS } from "./settings.js";

export interface GatewayOptions {
  /** The address of Switchboard. By default the environment's `SWITCHBOARD_URL`, else this machine. */
  url?: string;
  /**
   * A token of Switchboard. By default the environment's `SWITCHBOARD_TOKEN`. Every client of this handler acts with
   * it.
   */
  token?: string;
  timeoutMs?: number;
  /** The maximum size of a forwarded request. */
  maxBytes?: number;
  /** Pages that may call this handler; `*` for any. */
  allowOrigin?: string;
  /** For runtimes with their own implementation. */
  fetch?: typeof fetch;
}

/** The used parts of Node's request; some platforms have already read and parsed its body. */
export interface NodeRequest extends AsyncIterable<Uint8Array> {
  method?: string | undefined;
  headers: Readonly<Record<string, string | string[] | undefined>>;
  body?: unknown;
}

export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: Uint8Array): unknown;
}

const DEFAULT_URL = "http://127.0.0.1:3210";

/**
 * Returns a handler for web runtimes that forwards plugin calls to a Switchboard.
 *
 * Only the required parts are forwarded: the body, its type, and the user's settings. Cookies and credentials of the
 * request are not forwarded.
 */
export function createSperaxChatPluginGateway(options: GatewayOptions = {}): (request: Request) => Promise<Response> {
  return async (request) => {
    const origin = options.allowOrigin ?? "*";
    if (request.method === "OPTIONS") return new Response(null, { status: 204, headers: corsHeaders(origin) });
    const response = await forward(request, options);
    const headers = new Headers(corsHeaders(origin));
    const type = response.headers.get("content-type");
    if (type !== null) headers.set("content-type", type);
    return new Response(response.body, { status: response.status, headers });
  };
}

/** The same under the names in templates. */
export const createSperaxPluginGateway: typeof createSperaxChatPluginGateway = createSperaxChatPluginGateway;
export const createGatewayOnEdgeRuntime: typeof createSperaxChatPluginGateway = createSperaxChatPluginGateway;

/** The same for Node.js: `(request, response)`. */
export function createGatewayOnNodeRuntime(
  options: GatewayOptions = {},
): (request: NodeRequest, response: NodeResponse) => Promise<void> {
  const handle = createSperaxChatPluginGateway(options);
  return async (incoming, outgoing) => {
    const headers = new Headers();
    for (const [name, value] of Object.entries(incoming.headers))
      if (typeof value === "string") headers.set(name, value);
    const method = incoming.method ?? "GET";
    const body = method === "GET" || method === "HEAD" ? null : await readBody(incoming, maxBytes(options));
    const answer =
      body === undefined
        ? tooLarge(options)
        : await handle(new Request("http://gateway.invalid/", { method, headers, body }));
    outgoing.statusCode = answer.status;
    answer.headers.forEach((value, name) => void outgoing.setHeader(name, value));
    outgoing.end(new Uint8Array(await answer.arrayBuffer()));
  };
}

async function forward(request: Request, options: GatewayOptions): Promise<Response> {
  if (request.method !== "POST") {
    return createErrorResponse(PluginErrorType.MethodNotAllowed, { message: "Plugin calls must use POST." });
  }
  const body = await readLimited(request.body, maxBytes(options));
  if (body === undefined) return tooLarge(options);
  const address = new URL("/api/gateway", options.url ?? (environment("SWITCHBOARD_URL") || DEFAULT_URL));
  const headers = new Headers({ "content-type": "application/json" });
  const token = options.token ?? environment("SWITCHBOARD_TOKEN");
  if (token) headers.set("authorization", `Bearer ${token}`);
  for (const name of PLUGIN_SETTINGS_HEADERS) {
    const settings = request.headers.get(name);
    if (settings !== null) headers.set(name, settings);
  }
  const timeoutMs = options.timeoutMs ?? 65_000;
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]);
  try {
    // Redirects are not followed: the token is only for this address.
    return await (options.fetch ?? fetch)(address, { method: "POST", headers, body, signal, redirect: "error" });
  } catch (error) {
    const why =
      error instanceof Error ? (error.cause instanceof Error ? error.cause.message : error.message) : String(error);
    const message = `Switchboard at ${address.origin} did not answer: ${why}. Check that it is running, and that SWITCHBOARD_URL is correct.`;
    return createErrorResponse(PluginErrorType.PluginGatewayError, { message });
  }
}

function corsHeaders(origin: string): Record<string, string> {
  return {
    "access-control-allow-origin": origin,
    "access-control-allow-methods": "POST, OPTIONS",
    "access-control-allow-headers": ["Content-Type", ...PLUGIN_SETTINGS_HEADERS].join(", "),
    ...(origin === "*" ? {} : { vary: "origin" }),
  };
}

function maxBytes(options: GatewayOptions): number {
  return options.maxBytes ?? 1_048_576;
}

function tooLarge(options: GatewayOptions): Response {
  return createErrorResponse(413, { message: `The request is larger than ${maxBytes(options)} bytes.` });
}

/** Reads at most `limit` bytes; returns `undefined` if there are more. */
async function readLimited(body: ReadableStream<Uint8Array> | null, limit: number): Promise<Blob | undefined> {
  const parts: BlobPart[] = [];
  let length = 0;
  const reader = body?.getReader();
  for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
    length += piece.value.byteLength;
    if (length > limit) {
      await reader?.cancel();
      return undefined;
    }
    parts.push(new Uint8Array(piece.value));
  }
  return new Blob(parts);
}

/** Returns `undefined` if the body is larger than `limit`. */
async function readBody(incoming: NodeRequest, limit: number): Promise<string | Blob | undefined> {
  if (incoming.body !== undefined)
    return typeof incoming.body === "string" ? incoming.body : JSON.stringify(incoming.body);
  const parts: BlobPart[] = [];
  let length = 0;
  for await (const part of incoming) {
    length += part.byteLength;
    if (length > limit) return undefined;
    parts.push(new Uint8Array(part));
  }
  return new Blob(parts);
}

/** Edge runtimes have no `process`. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name];
}
