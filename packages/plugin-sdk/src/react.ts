/** The hooks, for pages that always have React. */

import * as React from "react";
import type { PluginHooks } from "./hook-types.js";
import { createHooks } from "./hooks.js";
import { speraxOS } from "./speraxos.js";

export type { PluginHooks, Setter, WatchedMessage } from "./hook-types.js";

const hooks = createHooks(() => React, speraxOS);
export const useWatchPluginMessage: PluginHooks["useWatchPluginMessage"] = hooks.useWatchPluginMessage;
export const useOnStandalonePluginInit: PluginHooks["useOnStandalonePluginInit"] = hooks.useOnStandalonePluginInit;
export const usePluginState: PluginHooks["usePluginState"] = hooks.usePluginState;
export const usePluginSettings: PluginHooks["usePluginSettings"] = hooks.usePluginSettings;
