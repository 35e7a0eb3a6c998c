// A conversation: the events of a streamed answer, and the messages that the model gets afterwards.
import { expect, test } from "vitest";
import { type AssistantTurn, messagesOf, withEvent } from "../src/data/chat";
import { exposedName, type Plugin, pluginOf } from "../src/data/plugins";

const empty: AssistantTurn = { id: "t", role: "assistant", text: "", uses: [], state: "running" };
const hear = (...pieces: unknown[]) =>
  pieces.reduce<AssistantTurn>(
    (turn, piece) =>
      withEvent(turn, { event: "message", data: typeof piece === "string" ? piece : JSON.stringify(piece) }),
    empty,
  );
const said = (content: string) => ({ choices: [{ delta: { content } }] });
const news = (fields: object) => ({ choices: [], switchboard: fields });

test("text comes in pieces", () => {
  expect(hear(said("Hel"), said("lo"), { choices: [{ delta: {} }] }, { choices: [] }, "[DONE]").text).toBe("Hello");
});

test("a tool begins, reports and ends", () => {
  const turn = hear(
    news({ event: "tool_call", id: "1", name: "demo_echo", arguments: "{}", call_id: "c" }),
    news({ event: "tool_progress", id: "1", progress: 1, total: 2, message: null }),
  );
  expect(turn.uses).toEqual([
    { id: "1", name: "demo_echo", args: "{}", state: "running", ours: false, callId: "c", progress: "1 of 2" },
  ]);
  const ended = withEvent(turn, {
    event: "message",
    data: JSON.stringify(
      news({ event: "tool_result", id: "1", name: "demo_echo", ok: true, duration_ms: 5, result: "x" }),
    ),
  });
  expect(ended.uses[0]).toMatchObject({ state: "done", result: "x", durationMs: 5 });
});

test("a call that never ran is told by its result", () => {
  expect(
    hear(news({ event: "tool_result", id: "9", name: "gone", ok: false, result: "no such tool" })).uses,
  ).toMatchObject([{ id: "9", state: "failed", result: "no such tool" }]);
});

test("why a call failed is kept, so that the page can offer what helps", () => {
  const failed = { event: "tool_result", id: "1", name: "keyed__ask", ok: false, reason: "settings_invalid" };
  expect(hear(news(failed)).uses[0]?.reason).toBe("settings_invalid");
});

test("failures and limits", () => {
  expect(hear(said("a"), { error: { message: "no room" } })).toMatchObject({ text: "a", problem: "no room" });
  expect(hear(news({ event: "end", stopped: { reason: "max_rounds", message: "16 rounds" } })).note).toBe("16 rounds");
});

test("a function of a plugin's page comes in pieces, and goes back with what became of it", () => {
  const part = (index: number, id: string | undefined, name: string | undefined, args: string) => ({
    choices: [
      {
        delta: {
          tool_calls: [{ index, ...(id ? { id } : {}), function: { ...(name ? { name } : {}), arguments: args } }],
        },
      },
    ],
  });
  const turn = hear(
    part(0, "a", "list__make", '{"x"'),
    part(1, "b", "list__make", "{}"),
    part(0, undefined, undefined, ":1}"),
  );
  expect(turn.uses.map(({ id, name, args, ours }) => [id, name, args, ours])).toEqual([
    ["a", "list__make", '{"x":1}', true],
    ["b", "list__make", "{}", true],
  ]);
  const uses = turn.uses.map((use) => (use.id === "a" ? { ...use, result: "ticked" } : use));
  const messages = messagesOf([
    { id: "u", role: "user", text: "go" },
    { ...turn, uses },
  ]) as { role: string; content: string; tool_calls?: unknown[]; tool_call_id?: string }[];
  expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "tool"]);
  expect(messages[1]?.tool_calls).toHaveLength(2);
  expect(messages[2]).toMatchObject({ tool_call_id: "a", content: "ticked" });
});

test("calls that the gateway made are not sent again", () => {
  const turn = hear(news({ event: "tool_call", id: "1", name: "x", arguments: "{}" }), said("done"));
  expect(messagesOf([turn])).toEqual([{ role: "assistant", content: "done" }]);
});

test("a plugin is found by the name that its function has as a tool", () => {
  const plugin: Plugin = {
    identifier: "my.list",
    meta: {},
    type: "standalone",
    enabled: true,
    api: [
      { name: "make", parameters: {} },
      { name: "read", parameters: {}, tool: "my_list__read" },
    ],
  };
  expect(plugin.api.map((each) => exposedName(plugin, each))).toEqual(["my_list__make", "my_list__read"]);
  expect(pluginOf([plugin], "my_list__read")?.called.name).toBe("read");
  expect(pluginOf([plugin], "other")).toBeUndefined();
});
