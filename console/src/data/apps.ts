import type { AppResource, AppTool } from "@switchboard/plugin-host";
import { api, mcp, segment } from "../lib/api";
import type { Json } from "../lib/schema";
import type { Block } from "./run";
import type { Tool } from "./types";

/** MCP Apps: pages of upstream MCP servers for the results of their tools. */

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Returns the address of the app that shows a tool's results, if there is one. */
export function appOf({ provider, _meta }: Tool): string | undefined {
  if (provider.kind !== "upstream") return undefined;
  const ui = isRecord(_meta?.ui) ? _meta.ui.resourceUri : undefined;
  const uri = ui ?? _meta?.["ui/resourceUri"];
  return typeof uri === "string" && uri.startsWith("ui://") ? uri : undefined;
}

/** Reads a resource of this server only: with another server's page, that server could access this one's tools. */
export const readResource = (server: string, uri: string) =>
  mcp<{ contents: AppResource[] }>("resources/read", { uri: `${server}+${uri}` });

export async function readApp(server: string, uri: string): Promise<AppResource> {
  const { contents } = await readResource(server, uri);
  const [first] = contents;
  if (!first) throw new Error(`"${uri}" is empty.`);
  return { ...first, uri };
}

/** Returns the tools of a server by its own names, each with the gateway's name. */
export function toolsOf(server: string, all: readonly Tool[]): Map<string, { tool: AppTool; exposed: string }> {
  const prefix = `${server}__`;
  const own = all.filter(
    ({ name, provider }) => provider.kind === "upstream" && provider.id === server && name.startsWith(prefix),
  );
  return new Map(
    own.map((tool) => [tool.name.slice(prefix.length), { tool: describe(tool, prefix), exposed: tool.name }]),
  );
}

function describe({ name, title, description, input_schema, output_schema, annotations, _meta }: Tool, prefix: string) {
  const inputSchema = input_schema ?? { type: "object" };
  return {
    name: name.slice(prefix.length),
    title,
    description,
    inputSchema,
    outputSchema: output_schema,
    annotations,
    _meta,
  };
}

/** Calls a tool for an app. */
export async function callFor(exposed: string, args: Record<string, unknown>, signal: AbortSignal): Promise<object> {
  const answer = await api<{ result?: Json; blocks?: Block[] }>(`/v1/tools/${segment(exposed)}/call`, {
    method: "POST",
    body: { args },
    signal,
  });
  return mcpResult(answer.result, answer.blocks);
}

/** Returns a result in MCP's format. A server's result without structured content already has this format. */
export function mcpResult(result: Json | undefined, blocks?: Block[]): Record<string, unknown> {
  if (isRecord(result) && Array.isArray(result.content)) return result;
  const text = typeof result === "string" ? result : JSON.stringify(result ?? null);
  return {
    content: blocks && blocks.length > 0 ? blocks : [{ type: "text", text }],
    ...(isRecord(result) ? { structuredContent: result } : {}),
  };
}

const MAX_MESSAGE = 20_000;

/** Returns an app's message as text. The host accepts only text. */
export function textOf(blocks: readonly unknown[]): string {
  const texts = blocks.map((block) => (isRecord(block) && block.type === "text" ? block.text : undefined));
  if (!texts.every((text) => typeof text === "string")) throw new Error("Only text messages are supported.");
  const text = texts.join("\n\n").trim();
  if (text === "") throw new Error("The message is empty.");
  if (text.length > MAX_MESSAGE) throw new Error(`The message is longer than ${MAX_MESSAGE} characters.`);
  return text;
}
