import type { Json, Schema } from "../lib/schema";
import type { Difference } from "../ui/differences";

/** The parts of the gateway's API responses that pages use. */

export interface Provider {
  kind: string;
  id: string;
}

export interface Tool {
  name: string;
  title?: string;
  description?: string;
  input_schema?: Schema;
  output_schema?: Schema;
  annotations?: Record<string, unknown>;
  _meta?: Record<string, unknown>;
  provider: Provider;
  online: boolean;
}

/** A tool with a definition that has changed since an operator accepted it. */
export interface ToolChange {
  provider: Provider;
  tool: string;
  /** The listed name. */
  name?: string;
  at_ms: number;
  revision: number;
  held: boolean;
  differences: Difference[];
  invisible_characters: number;
}

export interface Payload {
  bytes: number;
  /** Absent if it was too large to keep. */
  json?: Json;
}

export interface Call {
  id: string;
  state: "running" | "ended";
  tool: string;
  provider?: Provider;
  principal: { id: string; name: string; role: string };
  surface: string;
  session_key?: string;
  trace_id?: string;
  at_ms: number;
  waited_us?: number;
  duration_us?: number;
  updates?: number;
  ok?: boolean;
  args?: Payload;
  result?: Payload;
  error?: { kind: string; message: string; hint?: string; retryable: boolean };
}

export interface NodeEvent {
  node: string;
  event: string;
  data?: Json;
  at_ms: number;
}

export interface Node {
  id: string;
  online: boolean;
  for_ms: number;
  /** Whether it disconnected with a goodbye. */
  stopped?: boolean;
  running_calls: number;
  tools: string[];
  capabilities: string[];
  role?: string;
  primary: boolean;
  host_capabilities: string[];
  hostOs?: string;
  hostEnv?: string[];
  hostBinStatus?: Record<string, boolean>;
  recent_events?: NodeEvent[];
  blocked?: { name: string; held_by: string }[];
  about?: Json;
}

export interface Status {
  version: string;
  uptime_s: number;
  listen: string;
  data_dir: string;
  /** The beginning of a command line for this gateway. */
  command: string;
  nodes_online: number;
  nodes_known: number;
  running_calls: number;
  recorded_calls: number;
  lost_records: number;
}

export interface Point {
  at_s: number;
  calls: number;
  errors: number;
  p50_us: number;
  p95_us: number;
}

export interface Stats {
  now_ms: number;
  window_s: number;
  running_calls: number;
  step_s: number;
  /** Steps in which calls ended, oldest first. */
  steps: Point[];
  all: Point;
}

export interface Upstream {
  name: string;
  state: "disabled" | "idle" | "starting" | "ready" | "offline" | "failed" | "login_needed";
  since_ms: number;
  last_error?: string;
  left_out?: { tool: string; why: string }[];
  /** Whether a user has logged in; absent if no login is needed. */
  logged_in?: boolean;
  tools: number;
  restarts: number;
  source: "config" | "added";
  command?: string[];
  url?: string;
}

export interface AgentSession {
  session_id: string;
  state: "idle" | "running" | "ended";
  reason?: string;
  owner: { id?: string; name?: string };
  caller_id: string;
  caller?: string;
  caller_tools: string[];
  agent?: string;
  parent?: string;
  socket?: string;
  pending: number;
  timeout_ms: number;
  created_ms: number;
  ended_ms?: number;
}

export interface Channel {
  name: string;
  participants: number;
  created_ms: number;
  first_id: number;
  last_id: number;
}

export interface Participant {
  id: string;
  metadata?: {
    name?: string;
    handle?: string;
    type?: string;
    methods?: { name: string; description?: string }[];
  } | null;
  joined_ms: number;
  connections: number;
}

export interface Roster {
  name: string;
  participants: Participant[];
  first_id: number;
  last_id: number;
}

export interface Message {
  id?: number;
  kind: string;
  type: string;
  payload: Json;
  senderId: string;
  ts: number;
  attachmentMeta?: { id: string; mimeType: string; name?: string; size: number }[];
}

export interface AuditEvent {
  what: string;
  who: string;
  subject?: string;
  detail?: string;
  at_ms: number;
}
