import { signIn } from "../lib/session";
import { createStore } from "../lib/store";
import type { Plugin } from "./plugins";

/**
 * Which plugin's page may see which secret settings, as the user decided.
 *
 * The gateway gives a stored secret to nobody, this page included, so a grant holds what the user typed for the plugin's page. It belongs
 * to one plugin, one origin and one manifest, and to this tab: it ends when it is taken back, at sign-out and with the tab.
 */
export interface Grant {
  plugin: string;
  /** Where the plugin's page comes from. */
  origin: string;
  /** What the plugin was when the user decided. */
  manifest: string;
  fields: string[];
  /** What the page may see, by the names of the fields. Absent where the user said no. */
  values?: Record<string, unknown>;
  at_ms: number;
}

const KEY = "switchboard.grants";

export const grants = createStore<readonly Grant[]>(restored());

/** The parts of a plugin that a decision about its page depends on. */
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

/** Remembers a decision in place of the one before. */
export function decide(plugin: Plugin, origin: string, fields: string[], values?: Record<string, unknown>): void {
  const { identifier } = plugin;
  const made = { plugin: identifier, origin, manifest: manifestOf(plugin), fields, at_ms: Date.now() };
  const others = grants.get().filter((grant) => grant.plugin !== identifier || grant.origin !== origin);
  keep([...others, values === undefined ? made : { ...made, values }]);
}

export function takeBack(grant: Grant): void {
  keep(grants.get().filter((each) => each !== grant));
}

/** Whoever comes next has granted nothing. */
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
    const kept: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return signIn.get().state === "in" && Array.isArray(kept) ? (kept as Grant[]) : [];
  } catch {
    return [];
  }
}
