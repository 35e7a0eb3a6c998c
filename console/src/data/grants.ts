import { signIn } from "../lib/session";
import { createStore } from "../lib/store";
import type { Plugin } from "./plugins";

/**
 * The user's decisions about the secret settings that plugins' pages may see.
 *
 * The gateway never returns a stored secret, not even to this page. A grant therefore holds the values that the user
 * typed for the plugin's page. It belongs to one plugin, one origin and one manifest, and to this tab. It ends when it
 * is revoked, at sign-out and with the tab.
 */
export interface Grant {
  plugin: string;
  /** The origin of the plugin's page. */
  origin: string;
  /** The plugin's manifest at the time of the decision. */
  manifest: string;
  fields: string[];
  /** The values that the page may see, by field name. Absent after a refusal. */
  values?: Record<string, unknown>;
  at_ms: number;
}

const KEY = "switchboard.grants";

export const grants = createStore<readonly Grant[]>(restored());

/** Returns the parts of a plugin that a decision about its page depends on. */
export function manifestOf({ identifier, type, ui, settings, source, origins, api }: Plugin): string {
  const functions = api.map(({ name, description, parameters }) => [name, description, parameters]);
  return JSON.stringify([identifier, type, ui, settings, source, origins, functions]);
}

export function findGrant(all: readonly Grant[], plugin: Plugin, origin: string): Grant | undefined {
  const manifest = manifestOf(plugin);
  return all.find(
    (grant) => grant.plugin === plugin.identifier && grant.origin === origin && grant.manifest === manifest,
  );
}

/** Stores a decision and replaces the earlier one. */
export function decide(plugin: Plugin, origin: string, fields: string[], values?: Record<string, unknown>): void {
  const { identifier } = plugin;
  const made = { plugin: identifier, origin, manifest: manifestOf(plugin), fields, at_ms: Date.now() };
  const others = grants.get().filter((grant) => grant.plugin !== identifier || grant.origin !== origin);
  keep([...others, values === undefined ? made : { ...made, values }]);
}

export function takeBack(grant: Grant): void {
  keep(grants.get().filter((each) => each !== grant));
}

/** Grants end at sign-out: the next user has granted nothing. */
signIn.subscribe(() => {
  if (signIn.get().state === "out" && grants.get().length > 0) keep([]);
});

function keep(next: readonly Grant[]): void {
  try {
    if (next.length === 0) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, JSON.stringify(next));
  } catch {
    // Without storage a grant lasts until the next reload.
  }
  grants.set(next);
}

function restored(): readonly Grant[] {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return signIn.get().state === "in" && Array.isArray(stored) ? (stored as Grant[]) : [];
  } catch {
    return [];
  }
}
