// For callers: offers your functions as tools to an agent in a session.

import { EventTooLong, eventsOf } from "./events.js";

// The delay before a lost connection is retried, and the maximum number of retries.
const RECONNECT_EVERY_MS = 200;
const RECONNECTS = 50;
// The maximum number of attempts to send an answer.
const ANSWER_ATTEMPTS = 5;

export class Refused extends Error {
  /** @param {number} status @param {{kind?: string, detail?: string}} problem */
  constructor(status, problem) {
    super(problem.detail ?? `the gateway answered ${status}`);
    this.status = status;
    this.kind = problem.kind ?? "";
  }
}

/** @param {import("./index.js").StartOptions} options @returns {Promise<import("./index.js").Session>} */
export async function startSession({ gateway, token, callerId, tools, message, agent, timeoutMs, onEvent }) {
  const http = connectTo(gateway.replace(/\/+$/, ""), token);
  const specs = Object.entries(tools).map(([name, { description, inputSchema }]) => ({
    name,
    description,
    inputSchema,
  }));
  const context = { caller_id: callerId, caller_tools: specs };
  const response = await http("POST", "/v1/sessions", { message, agent, timeout_ms: timeoutMs, context });
  const about = await response.json();
  const path = `/v1/sessions/${about.session_id}`;
  const ended = serve(http, path, tools, onEvent ?? (() => {}));
  // Without this handler, a rejection crashes a program that does not use `ended`.
  ended.catch(() => {});
  return {
    id: about.session_id,
    about,
    ended,
    message: async (text) => void (await http("POST", "/v1/sessions", { session_id: about.session_id, message: text })),
    end: async () => void (await http("DELETE", path)),
  };
}

function connectTo(base, token) {
  return async (method, path, body, headers = {}) => {
    const request = { method, headers: { authorization: `Bearer ${token}`, ...headers }, body: undefined };
    if (body !== undefined) {
      request.headers["content-type"] = "application/json";
      request.body = JSON.stringify(body);
    }
    const response = await fetch(base + path, request);
    if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
    return response;
  };
}

async function serve(http, path, tools, onEvent) {
  const running = new Map();
  let last = "0";
  let failures = 0;
  try {
    for (;;) {
      try {
        const response = await http("GET", `${path}/events`, undefined, { "last-event-id": last });
        failures = 0;
        for await (const event of eventsOf(response.body)) {
          if (event.id !== undefined) last = event.id;
          const data = parsed(event.data);
          if (data === undefined) continue;
          if (data.type === "caller_tool_request") run(http, path, tools, running, data);
          if (data.type === "caller_tool_cancelled") running.get(data.request_id)?.abort();
          onEvent(data);
          if (data.type === "session_ended") return;
        }
      } catch (error) {
        // After a reconnect, an event that is too long would arrive again.
        const final = error instanceof Refused || error instanceof EventTooLong;
        if (final || ++failures > RECONNECTS) throw error;
      }
      await pause();
    }
  } finally {
    for (const work of running.values()) work.abort();
  }
}

async function run(http, path, tools, running, { request_id, tool, arguments: args }) {
  // After a reconnect, the gateway sends all open requests again.
  if (running.has(request_id)) return;
  const work = new AbortController();
  running.set(request_id, work);
  let answer;
  try {
    if (!Object.hasOwn(tools, tool)) throw new Error(`there is no function "${tool}" here`);
    answer = { request_id, result: (await tools[tool].run(args, work.signal)) ?? null };
  } catch (error) {
    answer = { request_id, error: error instanceof Error ? error.message : String(error) };
  }
  for (let attempt = 0; attempt < ANSWER_ATTEMPTS && !work.signal.aborted; attempt++) {
    try {
      await http("POST", `${path}/responses`, answer);
      break;
    } catch (error) {
      if (error instanceof Refused) break;
      await pause();
    }
  }
  running.delete(request_id);
}

/** Returns the data of an event; `undefined` if it is not an object. @param {string} text */
function parsed(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, RECONNECT_EVERY_MS));
}
