/** For a plugin's page: the client, and hooks for React. */

import type { Anything } from "./anything.js";
import type { PluginHooks } from "./hook-types.js";
import { createHooks } from "./hooks.js";
import { lazyReact } from "./lazy-react.js";
import { speraxOS } from "./speraxos.js";

export { CHANNELS, type ChannelName, type ChannelPrefix, channelsOf, PluginChannel } from "./channels.js";
export type { PluginHooks, Setter, WatchedMessage } from "./hook-types.js";
export { type ClientOptions, DEFAULT_TIMEOUT_MS, PluginHostError } from "./mailbox.js";
export { createPluginClient, type PluginClient, type PluginPayload, type SperaxOS, speraxOS } from "./speraxos.js";

/** The same as `speraxOS.getPluginMessage()`, under the name in templates. */
export const fetchPluginMessage = <T = Anything>(): Promise<T> => speraxOS.getPluginMessage<T>();

const hooks = createHooks(lazyReact, speraxOS);
export const useWatchPluginMessage: PluginHooks["useWatchPluginMessage"] = hooks.useWatchPluginMessage;
export const useOnStandalonePluginInit: PluginHooks["useOnStandalonePluginInit"] = hooks.useOnStandalonePluginInit;
export const usePluginState: PluginHooks["usePluginState"] = hooks.usePluginState;
export const usePluginSettings: PluginHooks["usePluginSettings"] = hooks.usePluginSettings;
