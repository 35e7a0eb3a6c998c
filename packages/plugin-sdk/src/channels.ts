/** The names of the messages between a plugin's page and its host, without a prefix. */
export const CHANNELS = {
  createAssistantMessage: "create-assistant-message",
  fetchPluginMessage: "fetch-plugin-message",
  fetchPluginSettings: "fetch-plugin-settings",
  fetchPluginState: "fetch-plugin-state",
  fillStandalonePluginContent: "fill-plugin-content",
  initStandalonePlugin: "init-standalone-plugin",
  pluginReadyForRender: "plugin-ready-for-render",
  renderPlugin: "render-plugin",
  renderPluginSettings: "render-plugin-settings",
  renderPluginState: "render-plugin-state",
  triggerAIMessage: "trigger-ai-message",
  updatePluginSettings: "update-plugin-settings",
  updatePluginState: "update-plugin-state",
} as const;

export type ChannelName = keyof typeof CHANNELS;

/** Hosts of this family use `speraxos`; similar hosts use `lobe-chat`. */
export type ChannelPrefix = "speraxos" | "lobe-chat";

type Channels<Prefix extends ChannelPrefix> = {
  readonly [Name in ChannelName]: `${Prefix}:${(typeof CHANNELS)[Name]}`;
};

/** The names in the messages, for pages that use `postMessage` directly. */
export function channelsOf<Prefix extends ChannelPrefix>(prefix: Prefix): Channels<Prefix> {
  const named = Object.entries(CHANNELS).map(([name, channel]) => [name, `${prefix}:${channel}`]);
  return Object.fromEntries(named) as Channels<Prefix>;
}

export const PluginChannel = channelsOf("speraxos");
