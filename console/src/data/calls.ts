import { api } from "../lib/api";
import { createStore } from "../lib/store";
import type { Call } from "./types";

/** The maximum number of calls in the page; the oldest are dropped. */
export const MAX_CALLS = 20_000;
const PAGE = 500;

export interface CallsView {
  /** Newest first. */
  calls: readonly Call[];
  /** The position of older calls; absent when all have been loaded. */
  cursor?: number;
  loaded: boolean;
}

/**
 * The calls that this page knows: loaded history and later events. There can be many events, so they are collected and
 * shown together.
 */
export class CallList {
  readonly store = createStore<CallsView>({ calls: [], loaded: false });
  #byId = new Map<string, Call>();
  #cursor: number | undefined;
  #loaded = false;
  #dirty = false;

  constructor(private readonly defer: (show: () => void) => void) {}

  started(call: Omit<Call, "state">): void {
    // The end may have arrived first, from the history.
    if (!this.#byId.has(call.id)) this.#put({ ...call, state: "running" });
  }

  ended(call: Omit<Call, "state">): void {
    this.#put({ ...call, state: "ended" });
  }

  /** Adds a page of the history. Running calls that are missing in it have ended, and are removed. */
  page(calls: Call[], cursor: number | undefined, first: boolean): void {
    if (first) {
      const listed = new Set(calls.map((call) => call.id));
      for (const [id, call] of this.#byId) if (call.state === "running" && !listed.has(id)) this.#byId.delete(id);
    }
    for (const call of calls) {
      const known = this.#byId.get(call.id);
      if (!known || known.state === "running") this.#byId.set(call.id, call);
    }
    if (!first || !this.#loaded) this.#cursor = cursor;
    this.#loaded = true;
    this.#change();
  }

  clear(): void {
    this.#byId.clear();
    this.#cursor = undefined;
    this.#loaded = false;
    this.#change();
  }

  #put(call: Call): void {
    this.#byId.set(call.id, call);
    this.#change();
  }

  #change(): void {
    if (this.#dirty) return;
    this.#dirty = true;
    this.defer(() => {
      this.#dirty = false;
      const calls = [...this.#byId.values()].sort((a, b) => b.at_ms - a.at_ms || (a.id < b.id ? 1 : -1));
      for (const old of calls.splice(MAX_CALLS)) this.#byId.delete(old.id);
      this.store.set({ calls, loaded: this.#loaded, ...(this.#cursor === undefined ? {} : { cursor: this.#cursor }) });
    });
  }
}

export const callList = new CallList((show) => setTimeout(show, 100));

interface Page {
  calls: Call[];
  next_cursor?: number;
}

export async function loadCalls(): Promise<void> {
  const page = await api<Page>(`/v1/calls?limit=${PAGE}`);
  callList.page(page.calls, page.next_cursor, true);
}

let older: Promise<void> | undefined;

/** Loads the next page of the history, if there is one. */
export function loadOlder(): Promise<void> {
  const { cursor, calls } = callList.store.get();
  if (cursor === undefined || calls.length >= MAX_CALLS) return Promise.resolve();
  older ??= api<Page>(`/v1/calls?limit=${PAGE}&state=ended&cursor=${cursor}`)
    .then((page) => callList.page(page.calls, page.next_cursor, false))
    .finally(() => {
      older = undefined;
    });
  return older;
}

/**
 * Reads the current state of a call. The feed reports that a call has started, without its arguments; this request
 * returns them.
 */
export const readCall = (id: string) => api<Call>(`/v1/calls/${encodeURIComponent(id)}`);

export const cancelCall = (id: string) => api(`/v1/calls/${id}`, { method: "DELETE" });

export interface Filter {
  text: string;
  outcome: string;
  surface: string;
}

export function matches(call: Call, filter: Filter): boolean {
  if (filter.surface && call.surface !== filter.surface) return false;
  if (filter.outcome && outcomeOf(call) !== filter.outcome && !(filter.outcome === "error" && hasFailed(call)))
    return false;
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const about =
    `${call.tool} ${call.principal.name} ${call.principal.role} ${call.provider?.kind ?? ""} ${call.provider?.id ?? ""} ${call.id} ${call.session_key ?? ""}`.toLowerCase();
  return words.every((word) => about.includes(word));
}

/** Whether the call is an error. A cancelled call is not an error. */
export function hasFailed(call: Call): boolean {
  return call.state === "ended" && !call.ok && call.error?.kind !== "cancelled";
}

export function outcomeOf(call: Call): string {
  if (call.state === "running") return "running";
  return call.ok ? "ok" : (call.error?.kind ?? "failed");
}
