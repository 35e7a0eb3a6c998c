/**
 * For a plugin's server, and for code that both sides share. The page's part is in `@switchboard/plugin-sdk/client`.
 */

export { CHANNELS, type ChannelName, type ChannelPrefix, channelsOf, PluginChannel } from "./channels.js";
export * from "./error.js";
export * from "./gateway.js";
export * from "./schema.js";
export * from "./settings.js";
export type { PluginPayload, SperaxOS } from "./speraxos.js";
