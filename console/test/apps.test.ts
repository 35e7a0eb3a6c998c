// Which tools have an app, what it may call, and what it is told.
import { expect, test } from "vitest";
import { appOf, mcpResult, toolsOf } from "../src/data/apps";
import type { Tool } from "../src/data/types";

const tool = (name: string, more: Partial<Tool> = {}): Tool => ({
  name,
  provider: { kind: "upstream", id: "dice" },
  online: true,
  ...more,
});

test("only an upstream server's own ui resource is an app", () => {
  const named = (uri: unknown) => ({ _meta: { ui: { resourceUri: uri } } });
  expect(appOf(tool("dice__roll", named("ui://dice")))).toBe("ui://dice");
  expect(appOf(tool("dice__roll", { _meta: { "ui/resourceUri": "ui://old" } }))).toBe("ui://old");
  for (const none of [named("https://example.com"), named(7), { _meta: { ui: "ui://dice" } }, {}])
    expect(appOf(tool("dice__roll", none))).toBeUndefined();
  expect(appOf(tool("roll", { ...named("ui://dice"), provider: { kind: "node", id: "dice" } }))).toBeUndefined();
});

test("an app sees its own server's tools, by the server's names", () => {
  const other = tool("cards__draw", { provider: { kind: "upstream", id: "cards" } });
  const found = toolsOf("dice", [tool("dice__roll"), other, tool("renamed")]);
  expect([...found].map(([name, { exposed }]) => [name, exposed])).toEqual([["roll", "dice__roll"]]);
});

test("results are put as MCP has them", () => {
  const text = (text: string) => [{ type: "text", text }];
  expect(mcpResult({ content: text("a"), isError: false })).toEqual({ content: text("a"), isError: false });
  expect(mcpResult({ value: 6 }, text("six"))).toEqual({ content: text("six"), structuredContent: { value: 6 } });
  expect(mcpResult("six")).toEqual({ content: text("six") });
  expect(mcpResult([1])).toEqual({ content: text("[1]") });
  expect(mcpResult(undefined, [])).toEqual({ content: text("null") });
});
