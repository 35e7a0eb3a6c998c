import type { PluginHooks, Setter, WatchedMessage } from "./hook-types.js";
import type { PluginClient } from "./speraxos.js";

/** The parts of React that the hooks use. */
export type ReactParts = Pick<typeof import("react"), "useCallback" | "useEffect" | "useRef" | "useState">;

/** Creates the hooks. React is requested only when a hook is used. */
export function createHooks(react: () => ReactParts, client: PluginClient): PluginHooks {
  return {
    useWatchPluginMessage<T>() {
      const { useEffect, useState } = react();
      const [watched, setWatched] = useState<WatchedMessage<T>>({ data: undefined, loading: true, error: undefined });
      useEffect(() => {
        const stop = client.watchMessage((data) => setWatched({ data: data as T, loading: false, error: undefined }));
        // The request detects a missing host, and supports hosts that only answer requests.
        client.getPluginMessage().catch((error: Error) => {
          setWatched((last) => (last.loading ? { ...last, error } : last));
        });
        return stop;
      }, []);
      return watched;
    },

    useOnStandalonePluginInit(callback, onError) {
      const { useEffect, useRef } = react();
      const latest = useRef({ callback, onError });
      latest.current = { callback, onError };
      useEffect(() => {
        let mounted = true;
        client.getPluginPayload().then(
          (payload) => mounted && latest.current.callback(payload),
          (error: Error) => mounted && latest.current.onError?.(error),
        );
        return () => {
          mounted = false;
        };
      }, []);
    },

    usePluginState<T>(key: string, initialValue: T) {
      const { useCallback, useEffect, useRef, useState } = react();
      const [value, setValue] = useState(initialValue);
      const current = useRef(value);
      const show = useRef((next: T) => {
        current.current = next;
        setValue(() => next);
      });
      useEffect(() => {
        // A value that was set during the request is newer than the answer.
        let settled = false;
        const stop = client.watchState(key, (next) => {
          settled = true;
          show.current(next as T);
        });
        client.getPluginState<T | undefined>(key).then(
          (kept) => {
            if (!settled && kept !== undefined) show.current(kept);
          },
          // Without a host the initial value stays, and the page works as if nothing was stored.
          () => undefined,
        );
        return () => {
          settled = true;
          stop();
        };
      }, [key]);
      const setter = useCallback<Setter<T>>(
        (next) => {
          const made = typeof next === "function" ? (next as (last: T) => T)(current.current) : next;
          void client.setPluginState(key, made);
        },
        [key],
      );
      return [value, setter] as const;
    },

    usePluginSettings<T extends object>(initialValue: T) {
      const { useCallback, useEffect, useState } = react();
      const [value, setValue] = useState(initialValue);
      useEffect(() => {
        let mounted = true;
        const merge = (settings: object | undefined): void => {
          if (mounted) setValue((last) => ({ ...last, ...settings }));
        };
        const stop = client.watchSettings(merge);
        client.getPluginSettings<T | undefined>().then(merge, () => undefined);
        return () => {
          mounted = false;
          stop();
        };
      }, []);
      const setter = useCallback((changes: Partial<T>) => void client.setPluginSettings(changes), []);
      return [value, setter] as const;
    },
  };
}
