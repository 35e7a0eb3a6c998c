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
  /** Asks again soon; several wishes at once are one question. */
  refresh(): void;
  /** Forgets everything, for the next person. */
  clear(): void;
}

const SOON_MS = 120;

/**
 * Something that the gateway knows. It is asked for while a page shows it: at first, when an event says that it has changed, and
 * every so often for what no event tells. What was known stays on the page while it is asked for again.
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
      // The answer that is on its way may be from before.
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

/** One resource for each name, kept while it is shown. */
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
