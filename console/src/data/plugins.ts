import { api, Problem, segment } from "../lib/api";
import type { Json, Schema } from "../lib/schema";
import { createResource } from "./resource";

export interface PluginFunction {
  name: string;
  description?: string;
  parameters: Schema;
  /** Absent if the plugin's page runs the function. */
  tool?: string;
}

export interface Plugin {
  identifier: string;
  meta: { title?: string; description?: string; avatar?: string; tags?: string[] };
  type: "default" | "markdown" | "standalone";
  enabled: boolean;
  ui?: { url: string; height?: number; width?: number; mode?: "iframe" | "module" };
  api: PluginFunction[];
  settings?: Schema;
  source?: string;
  origins?: string[];
  /** `host:port` of servers that it may reach although they are not public. */
  allow_private?: string[];
  added_ms?: number;
  fetched_ms?: number;
  held_back?: { at_ms: number; hash: string; changes: { path: string; was?: string; now?: string }[] };
  last_error?: string;
}

/** `null` if the gateway has no plugins. */
export const plugins = createResource(async (): Promise<Plugin[] | null> => {
  try {
    return (await api<{ plugins: Plugin[] }>("/v1/plugins")).plugins;
  } catch (error) {
    if (Problem.of(error).status === 404) return null;
    throw error;
  }
}, 10_000);

/** Returns the name under which a function is offered to a model, even if the page runs it. */
export const exposedName = (plugin: Plugin, { name, tool }: PluginFunction) =>
  tool ?? `${plugin.identifier}__${name}`.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);

/** Returns the plugin and the function of a tool's name. */
export function pluginOf(all: readonly Plugin[], tool: string): { plugin: Plugin; called: PluginFunction } | undefined {
  for (const plugin of all) {
    const called = plugin.api.find((each) => exposedName(plugin, each) === tool);
    if (called) return { plugin, called };
  }
  return undefined;
}

/** Whether a plugin shows more than the JSON of its answer. */
export const isShown = (plugin: Plugin) => plugin.ui !== undefined || plugin.type === "markdown";

export interface Settings {
  settings?: Record<string, Json>;
  problem?: string;
}

const path = (id: string) => `/v1/plugins/${segment(id)}/settings`;

export const readSettings = (id: string) => api<Settings>(path(id));
export const writeSettings = (id: string, settings: Json) =>
  api<Settings>(path(id), { method: "PUT", body: { settings } });
