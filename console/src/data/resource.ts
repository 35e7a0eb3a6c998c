import { useEffect, useSyncExternalStore } from "react";
import { Problem } from "../lib/api";
import { createStore } from "../lib/store";

export interface Loaded<T> {
  data?: T;
  problem?: Problem;
}

export interface Resource<T> {
  get(): Loaded<T>;
  subscribe(listener: () => void): () => void;
  /** Reloads soon; several requests at once cause one reload. */
  refresh(): void;
  /** Drops all data at sign-out. */
  clear(): void;
}

const SOON_MS = 120;

/**
 * Data of the gateway. It is loaded while a page shows it: at first, when an event reports a change, and periodically
 * for data without events. Old data stays on the page during a reload.
 */
export function createResource<T>(load: () => Promise<T>, everyMs: number): Resource<T> {
  const store = createStore<Loaded<T>>({});
  let watching = 0;
  let due: ReturnType<typeof setTimeout> | undefined;
  let loading = false;
  let again = false;
  let round = 0;

  const ask = async () => {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    const mine = round;
    let next: Loaded<T>;
    try {
      next = { data: await load() };
    } catch (error) {
      const known = store.get().data;
      next = { problem: Problem.of(error), ...(known === undefined ? {} : { data: known }) };
    }
    loading = false;
    if (mine === round) store.set(next);
    schedule(again ? SOON_MS : everyMs);
    again = false;
  };
  const schedule = (ms: number) => {
    clearTimeout(due);
    if (watching > 0) due = setTimeout(ask, ms);
  };
  return {
    get: store.get,
    subscribe(listener) {
      watching += 1;
      if (watching === 1) void ask();
      const stop = store.subscribe(listener);
      return () => {
        stop();
        watching -= 1;
        if (watching === 0) clearTimeout(due);
      };
    },
    refresh() {
      // The pending answer may be older than the change.
      if (loading) again = true;
      else schedule(SOON_MS);
    },
    clear() {
      round += 1;
      store.set({});
    },
  };
}

export function useResource<T>(resource: Resource<T>): Loaded<T> {
  return useSyncExternalStore(resource.subscribe, resource.get);
}

/** Returns one resource for each name, kept while it is shown. */
export function useNamed<T>(cache: Map<string, Resource<T>>, name: string, make: () => Resource<T>): Resource<T> {
  let found = cache.get(name);
  if (!found) {
    found = make();
    cache.set(name, found);
  }
  useEffect(
    () => () => {
      cache.delete(name);
    },
    [cache, name],
  );
  return found;
}
