/** Hosts the pages of plugins, and MCP Apps, in sandboxed frames. */

export { FrameAddressError } from "./frame.js";
export { DEFAULT_LIMITS, type Limits } from "./limits.js";
export { linkWords, renderMarkdown } from "./markdown.js";
export type { AppActions, AppTool } from "./mcp/app-bridge.js";
export { APP_MIME_TYPE, type AppResource, type AppView, type AppViewOptions, mountMcpApp } from "./mcp/mount-app.js";
export type { AppCsp, AppPermission } from "./mcp/policy.js";
export { mountPlugin, type PluginView, type PluginViewOptions } from "./mount-plugin.js";
export { type HostChannel, type PluginMessage, PREFIXES, type Prefix } from "./plugin-protocol.js";
export type {
  PluginActions,
  PluginCall,
  PluginManifest,
  SecretsAnswer,
  SecretsRequest,
  SettingsSource,
} from "./plugin-session.js";
export type { Problem, Status, Words } from "./status-panel.js";
export { memoryStore, type StateStore, webStorageStore } from "./store.js";
