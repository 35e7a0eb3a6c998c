/**
 * Schemas of the formats that plugins publish and hosts send, for validation. Unknown members are allowed: published
 * files have many.
 */

import { z } from "zod";

/** A JSON Schema of an object, such as a function's parameters. */
export const jsonObjectSchema = z.looseObject({
  properties: z.record(z.string(), z.unknown()).optional(),
  required: z.array(z.string()).optional(),
  type: z.literal("object"),
});

export const pluginApiSchema = z.looseObject({
  description: z.string(),
  name: z.string(),
  parameters: jsonObjectSchema,
  url: z.url().optional(),
});

export const pluginTypeSchema = z.enum(["default", "markdown", "standalone"]);

export const pluginDisplaySchema = z.looseObject({
  avatar: z.string().optional(),
  description: z.string().optional(),
  tags: z.array(z.string()).optional(),
  title: z.string().optional(),
});

export const pluginUiSchema = z.looseObject({
  height: z.number().optional(),
  mode: z.enum(["iframe", "module"]).optional(),
  url: z.string(),
  width: z.number().optional(),
});

export const pluginManifestSchema = z.looseObject({
  /** Absent if an OpenAPI document describes the functions. */
  api: z.array(pluginApiSchema).optional(),
  author: z.string().optional(),
  createAt: z.string().optional(),
  createdAt: z.string().optional(),
  gateway: z.string().optional(),
  homepage: z.string().optional(),
  identifier: z.string().min(1),
  meta: pluginDisplaySchema.optional(),
  openapi: z.string().optional(),
  settings: jsonObjectSchema.optional(),
  systemRole: z.string().optional(),
  type: pluginTypeSchema.optional(),
  ui: pluginUiSchema.optional(),
});

/** A plugin in an index. */
export const pluginMetaSchema = z.looseObject({
  author: z.string().optional(),
  createdAt: z.string().optional(),
  homepage: z.string().optional(),
  identifier: z.string().min(1),
  manifest: z.string(),
  meta: pluginDisplaySchema.optional(),
  schemaVersion: z.number().optional(),
});

export const marketIndexSchema = z.looseObject({
  plugins: z.array(pluginMetaSchema),
  schemaVersion: z.number(),
});

/** The body that a host posts to the gateway. */
export const pluginRequestPayloadSchema = z.looseObject({
  apiName: z.string(),
  /** JSON, as written by the model. */
  arguments: z.string().optional(),
  identifier: z.string().min(1),
  indexUrl: z.string().optional(),
  manifest: pluginManifestSchema.optional(),
  type: z.string().optional(),
});

export type PluginApi = z.infer<typeof pluginApiSchema>;
export type PluginType = z.infer<typeof pluginTypeSchema>;
export type PluginManifest = z.infer<typeof pluginManifestSchema>;
export type PluginMeta = z.infer<typeof pluginMetaSchema>;
export type MarketIndex = z.infer<typeof marketIndexSchema>;
export type PluginRequestPayload = z.infer<typeof pluginRequestPayloadSchema>;
