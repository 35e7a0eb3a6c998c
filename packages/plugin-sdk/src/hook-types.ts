import type { Anything } from "./anything.js";
import type { PluginPayload } from "./speraxos.js";

/** `data` is there when `loading` is over. While it is not, `error` says that the host has been silent for too long. */
export type WatchedMessage<T> =
  | { data: undefined; loading: true; error: Error | undefined }
  | { data: T; loading: false; error: undefined };

/** Sets a value, or makes the next one from the last. */
export type Setter<T> = (value: T | ((last: T) => T)) => void;

export interface PluginHooks {
  /** The message's content, now and whenever it changes. */
  useWatchPluginMessage<T = Anything>(): WatchedMessage<T>;
  /** Calls back once, with the function call, the settings and the state. */
  useOnStandalonePluginInit<T = Anything>(
    callback: (payload: PluginPayload<T>) => void,
    onError?: (error: Error) => void,
  ): void;
  /** A value that the host keeps with the message. */
  usePluginState<T>(key: string, initialValue: T): readonly [T, Setter<T>];
  /** The plugin's settings. The setter changes those that it is given. */
  usePluginSettings<T extends object>(initialValue: T): readonly [T, (changes: Partial<T>) => void];
}
