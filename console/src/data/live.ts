import type { ServerEvent } from "@switchboard/caller/events";
import { api, Problem, stream } from "../lib/api";
import { signIn } from "../lib/session";
import { createStore } from "../lib/store";
import { callList, loadCalls } from "./calls";
import { plugins } from "./plugins";
import { createResource } from "./resource";
import type {
  AgentSession,
  AuditEvent,
  Call,
  Channel,
  Node,
  NodeEvent,
  Stats,
  Status,
  Tool,
  ToolChange,
  Upstream,
} from "./types";

/** Data that several pages show, kept current by the gateway's event feed. */

export const connection = createStore<"connecting" | "live" | "lost">("connecting");

export const status = createResource(() => api<Status>("/v1/status"), 5_000);
export const stats = createResource(() => api<Stats>("/v1/stats?step=5"), 1_000);
export const tools = createResource(allTools, 30_000);
export const toolChanges = createResource(
  async () => (await api<{ changes: ToolChange[] }>("/v1/tool-changes")).changes,
  30_000,
);
export const nodes = createResource(async () => (await api<{ nodes: Node[] }>("/v1/nodes")).nodes, 5_000);
export const upstreams = createResource(
  async () => (await api<{ upstream: Upstream[] }>("/v1/upstream")).upstream,
  5_000,
);
export const sessions = createResource(listSessions, 5_000);
export const channels = createResource(
  async () => (await api<{ channels: Channel[] }>("/v1/channels")).channels,
  3_000,
);
export const audit = createResource(
  async () => (await api<{ events: AuditEvent[] }>("/v1/audit?limit=12")).events,
  30_000,
);

/** Events of nodes outside of calls, newest first. */
export const nodeEvents = createStore<readonly NodeEvent[]>([]);
const MAX_NODE_EVENTS = 200;

async function allTools(): Promise<Tool[]> {
  const found: Tool[] = [];
  let cursor: string | undefined;
  do {
    const page = await api<{ tools: Tool[]; next_cursor?: string }>(
      `/v1/tools?limit=1000${cursor === undefined ? "" : `&cursor=${encodeURIComponent(cursor)}`}`,
    );
    found.push(...page.tools);
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  return found;
}

/** A gateway without sessions returns 404, which is not a failure of the page. */
async function listSessions(): Promise<AgentSession[] | null> {
  try {
    return (await api<{ sessions: AgentSession[] }>("/v1/sessions")).sessions;
  } catch (error) {
    if (Problem.of(error).status === 404) return null;
    throw error;
  }
}

const everything = [plugins, status, stats, tools, toolChanges, nodes, upstreams, sessions, channels, audit];

function receive({ event, data }: ServerEvent): void {
  switch (event) {
    case "call_started":
      callList.started(JSON.parse(data) as Call);
      break;
    case "call_ended":
      callList.ended(JSON.parse(data) as Call);
      break;
    case "tools_changed":
      for (const changed of [tools, nodes, upstreams, status]) changed.refresh();
      break;
    case "node_event":
      nodeEvents.update((events) => [JSON.parse(data) as NodeEvent, ...events].slice(0, MAX_NODE_EVENTS));
      break;
    case "audit":
      for (const changed of [audit, plugins, nodes, upstreams, status, toolChanges]) changed.refresh();
      break;
    case "session":
      sessions.refresh();
      break;
    case "missed":
      // The feed dropped some events; the history has them all.
      void loadCalls().catch(() => {});
      break;
  }
}

let stop: AbortController | undefined;

/** Follows the gateway while a user is signed in; reconnects when the gateway returns. */
export function follow(): void {
  const start = () => {
    const signedIn = signIn.get().state === "in";
    if (signedIn && !stop) {
      stop = new AbortController();
      void run(stop.signal);
    } else if (!signedIn && stop) {
      stop.abort();
      stop = undefined;
      for (const known of everything) known.clear();
      callList.clear();
      nodeEvents.set([]);
      connection.set("connecting");
    }
  };
  signIn.subscribe(start);
  start();
}

async function run(signal: AbortSignal): Promise<void> {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 5_000)) {
    try {
      await stream("/v1/events?watch=true", { signal }, receive, () => {
        wait = 500;
        connection.set("live");
        for (const known of everything) known.refresh();
        void loadCalls().catch(() => {});
      });
    } catch {
      // The code below reports any error: the feed has ended, and is retried.
    }
    if (signal.aborted) return;
    connection.set("lost");
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
