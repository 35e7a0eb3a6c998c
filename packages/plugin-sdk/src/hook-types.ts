import type { Anything } from "./anything.js";
import type { PluginPayload } from "./speraxos.js";

/** `data` is set when `loading` is false. While `loading` is true, `error` reports a timeout of the host. */
export type WatchedMessage<T> =
  | { data: undefined; loading: true; error: Error | undefined }
  | { data: T; loading: false; error: undefined };

/** Sets a value, or computes the next one from the last. */
export type Setter<T> = (value: T | ((last: T) => T)) => void;

export interface PluginHooks {
  /** The message's content, at the start and at every change. */
  useWatchPluginMessage<T = Anything>(): WatchedMessage<T>;
  /** Calls back once, with the function call, the settings and the state. */
  useOnStandalonePluginInit<T = Anything>(
    callback: (payload: PluginPayload<T>) => void,
    onError?: (error: Error) => void,
  ): void;
  /** A value that the host stores with the message. */
  usePluginState<T>(key: string, initialValue: T): readonly [T, Setter<T>];
  /** The plugin's settings. The setter changes only the given ones. */
  usePluginSettings<T extends object>(initialValue: T): readonly [T, (changes: Partial<T>) => void];
}
