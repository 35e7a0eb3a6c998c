import { api, Problem, segment } from "../lib/api";
import type { Json, Schema } from "../lib/schema";
import { createResource } from "./resource";

export interface PluginFunction {
  name: string;
  description?: string;
  parameters: Schema;
  /** Absent for one that the plugin's page runs. */
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
  /** `host:port` of what it may reach though it is not public. */
  allow_private?: string[];
  added_ms?: number;
  fetched_ms?: number;
  held_back?: { at_ms: number; hash: string; changes: { path: string; was?: string; now?: string }[] };
  last_error?: string;
}

/** `null` where the gateway has no plugins. */
export const plugins = createResource(async (): Promise<Plugin[] | null> => {
  try {
    return (await api<{ plugins: Plugin[] }>("/v1/plugins")).plugins;
  } catch (error) {
    if (Problem.of(error).status === 404) return null;
    throw error;
  }
}, 10_000);

/** The name under which a function is offered to a model, whoever runs it. */
export const exposedName = (plugin: Plugin, { name, tool }: PluginFunction) =>
  tool ?? `${plugin.identifier}__${name}`.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);

/** The plugin and the function behind a tool's name. */
export function pluginOf(all: readonly Plugin[], tool: string): { plugin: Plugin; called: PluginFunction } | undefined {
  for (const plugin of all) {
    const called = plugin.api.find((each) => exposedName(plugin, each) === tool);
    if (called) return { plugin, called };
  }
  return undefined;
}

/** Whether something is to be seen of a plugin, beside the JSON that it answers. */
export const isShown = (plugin: Plugin) => plugin.ui !== undefined || plugin.type === "markdown";

export interface Settings {
  settings?: Record<string, Json>;
  problem?: string;
}

const path = (id: string) => `/v1/plugins/${segment(id)}/settings`;

export const readSettings = (id: string) => api<Settings>(path(id));
export const writeSettings = (id: string, settings: Json) =>
  api<Settings>(path(id), { method: "PUT", body: { settings } });
