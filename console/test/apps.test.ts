// Which tools have an app, which tools it may call, and which data it gets.
import { expect, test } from "vitest";
import { appOf, mcpResult, textOf, toolsOf } from "../src/data/apps";
import { askUser, questions } from "../src/data/questions";
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

test("what an app says is text, and not too much of it", () => {
  const text = (words: unknown) => ({ type: "text", text: words });
  expect(textOf([text("Hi"), text("there ")])).toBe("Hi\n\nthere");
  for (const blocks of [[], [text(" ")], [text(7)], [{ type: "image", data: "x" }], [text("x".repeat(20_001))]])
    expect(() => textOf(blocks)).toThrow();
});

test("an app asks one thing at a time, and nothing once it is gone", async () => {
  const abort = new AbortController();
  const request = (server: string) => ({ kind: "link", app: "roll", server, url: "https://a.example/" }) as const;
  const first = askUser(request("dice"), abort.signal);
  expect(await askUser(request("dice"), abort.signal)).toBe(false);
  const other = askUser(request("maps"), new AbortController().signal);
  expect(questions.get()).toHaveLength(2);
  questions.get()[1]?.answer(true);
  expect(await other).toBe(true);
  abort.abort();
  expect(await first).toBe(false);
  expect(questions.get()).toEqual([]);
  expect(await askUser(request("dice"), abort.signal)).toBe(false);
});
