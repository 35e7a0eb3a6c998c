// A plugin's server reads settings from any host, and its errors have the status and body that hosts expect.
// @vitest-environment node

import { expect, test } from "vitest";
import {
  createErrorResponse,
  createHeadersWithPluginSettings,
  getPluginErrorStatus,
  getPluginSettingsFromRequest,
  PLUGIN_SETTINGS_HEADERS,
  PluginErrorType,
  pluginManifestSchema,
  pluginRequestPayloadSchema,
} from "../src/index.js";

const request = (headers: Record<string, string>) => new Request("http://plugin.example/", { method: "POST", headers });

test.each([
  ["MethodNotAllowed", 405],
  ["PluginGatewayError", 502],
  ["PluginServerError", 500],
  ["PluginSettingsInvalid", 400],
  ["PluginMarketIndexNotFound", 404],
  ["PluginMarketIndexInvalid", 490],
  ["PluginMetaNotFound", 404],
  ["PluginMetaInvalid", 490],
  ["PluginManifestNotFound", 404],
  ["PluginManifestInvalid", 490],
  ["PluginApiNotFound", 404],
  ["PluginApiParamsError", 422],
  ["PluginOpenApiInitError", 500],
] as const)("%s has the status %d", async (name, status) => {
  const response = createErrorResponse(PluginErrorType[name], { message: "why" });
  expect(response.status).toBe(status);
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(await response.json()).toEqual({ body: { message: "why" }, errorType: name });
});

test.each([
  [418, 418],
  ["SomethingElse", 500],
  ["constructor", 500],
  [99, 500],
  [600, 500],
  [Number.NaN, 500],
])("the status of %s is %d", (type, status) => expect(getPluginErrorStatus(type)).toBe(status));

test.each(PLUGIN_SETTINGS_HEADERS)("settings are read from %s", (name) => {
  const settings = { apiKey: "käse" };
  const header = createHeadersWithPluginSettings(settings)[name] ?? "";
  expect(header).toBe('{"apiKey":"k\\u00e4se"}');
  expect(getPluginSettingsFromRequest(request({ [name]: header }))).toEqual(settings);
  expect(getPluginSettingsFromRequest({ headers: { [name.toLowerCase()]: header } })).toEqual(settings);
});

test.each(["", "{", "7", "null", "[]", '"text"'])("%j is no settings", (header) => {
  expect(getPluginSettingsFromRequest(request({ "Sperax-Plugin-Settings": header }))).toBeUndefined();
});

test("no header is no settings", () => expect(getPluginSettingsFromRequest(request({}))).toBeUndefined());

test("published manifests pass, and what is no manifest does not", () => {
  const openApiOnly = { identifier: "a", openapi: "https://plugin.example/openapi.json", version: "1" };
  expect(pluginManifestSchema.parse(openApiOnly)).toEqual(openApiOnly);
  expect(pluginManifestSchema.safeParse({ api: [] }).success).toBe(false);
  expect(pluginManifestSchema.safeParse({ identifier: "a", type: "other" }).success).toBe(false);
  expect(pluginRequestPayloadSchema.safeParse({ identifier: "a", apiName: "b", arguments: {} }).success).toBe(false);
});
