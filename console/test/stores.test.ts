// The stores that pages observe: the list of calls, resources, the stream of events.
import { beforeEach, describe, expect, test, vi } from "vitest";
import { CallList, MAX_CALLS, matches } from "../src/data/calls";
import { createResource } from "../src/data/resource";
import { filled } from "../src/data/stats";
import type { Call } from "../src/data/types";
import { isMasked, waterfall } from "../src/data/waterfall";

const call = (id: string, at_ms: number, more: Partial<Call> = {}): Call => ({
  id,
  state: "ended",
  tool: "t",
  principal: { id: "p", name: "bot", role: "agent" },
  surface: "rest",
  at_ms,
  ok: true,
  duration_us: 1_000,
  ...more,
});

describe("calls", () => {
  let list: CallList;
  const ids = () => list.store.get().calls.map(({ id, state }) => `${id} ${state}`);
  beforeEach(() => {
    list = new CallList((show) => show());
  });

  test("a call begins, ends, and stays in its place", () => {
    list.started(call("a", 1));
    list.started(call("b", 2));
    list.ended(call("a", 1));
    expect(ids()).toEqual(["b running", "a ended"]);
  });
  test("an end that came first is not undone", () => {
    list.ended(call("a", 1));
    list.started(call("a", 1));
    expect(ids()).toEqual(["a ended"]);
  });
  test("after a gap, running calls that the gateway does not know are gone", () => {
    list.started(call("a", 1));
    list.started(call("b", 2));
    list.page([call("b", 2, { state: "running" }), call("c", 0)], 7, true);
    expect(ids()).toEqual(["b running", "c ended"]);
  });
  test("the first page does not forget how far back somebody has scrolled", () => {
    list.page([call("b", 2)], 2, true);
    list.page([call("a", 1)], undefined, false);
    list.page([call("b", 2)], 2, true);
    expect(list.store.get().cursor).toBeUndefined();
  });
  test("the oldest of too many go", () => {
    const held: (() => void)[] = [];
    list = new CallList((show) => held.push(show));
    for (let at = 0; at < MAX_CALLS + 10; at++) list.ended(call(String(at), at));
    expect(held.length).toBe(1);
    held[0]?.();
    expect(list.store.get().calls.length).toBe(MAX_CALLS);
    expect(list.store.get().calls.at(-1)?.id).toBe("10");
  });
  test("filters", () => {
    const failed = call("x", 1, {
      ok: false,
      error: { kind: "timeout", message: "", retryable: false },
      provider: { kind: "node", id: "mac" },
    });
    const all = { text: "", outcome: "", surface: "" };
    for (const [filter, expected] of [
      [all, true],
      [{ ...all, text: "BOT mac" }, true],
      [{ ...all, text: "bot linux" }, false],
      [{ ...all, outcome: "error" }, true],
      [{ ...all, outcome: "timeout" }, true],
      [{ ...all, outcome: "ok" }, false],
      [{ ...all, surface: "mcp" }, false],
    ] as const)
      expect(matches(failed, filter), JSON.stringify(filter)).toBe(expected);
    const cancelled = call("x", 1, { ok: false, error: { kind: "cancelled", message: "", retryable: false } });
    expect(matches(cancelled, { ...all, outcome: "cancelled" })).toBe(true);
    expect(matches(cancelled, { ...all, outcome: "error" }), "who cancels a call makes no error of it").toBe(false);
  });
  test("masked arguments are found at any depth", () => {
    expect(isMasked({ a: [{ token: "***" }] })).toBe(true);
    expect(isMasked({ a: ["*", null, 1] })).toBe(false);
  });
  test("a waterfall places calls in the time that they share", () => {
    const early = call("a", 1_000, { duration_us: 500_000, waited_us: 100_000 });
    const late = call("b", 1_500, { duration_us: 500_000 });
    const { span, place } = waterfall([late, early], 9_999);
    expect(span).toBe(1_000);
    expect(place(early)).toEqual({ left: 0, wait: 10, width: 40 });
    expect(place(late)).toEqual({ left: 50, wait: 0, width: 50 });
    expect(waterfall([], 0).span).toBe(0);
  });
});

test("a curve has the quiet steps as well", () => {
  const point = (at_s: number, calls: number) => ({ at_s, calls, errors: 0, p50_us: 1, p95_us: 2 });
  const steps = [point(0, 9), point(10, 4)];
  const curve = filled({ now_ms: 20_900, window_s: 20, running_calls: 0, step_s: 5, steps, all: point(0, 13) });
  expect(curve.map(({ at_s, calls }) => [at_s, calls])).toEqual([
    [5, 0],
    [10, 4],
    [15, 0],
    [20, 0],
  ]);
});

describe("a resource", () => {
  test("is asked for while somebody watches, and keeps what it knew when an answer fails", async () => {
    vi.useFakeTimers();
    const load = vi.fn().mockResolvedValueOnce(1).mockRejectedValueOnce(new Error("gone")).mockResolvedValue(2);
    const resource = createResource<number>(load, 1_000);
    expect(load).not.toHaveBeenCalled();
    const stop = resource.subscribe(() => {});
    await vi.advanceTimersByTimeAsync(0);
    expect(resource.get()).toEqual({ data: 1 });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(resource.get()).toMatchObject({ data: 1, problem: { kind: "unreachable" } });
    resource.refresh();
    resource.refresh();
    await vi.advanceTimersByTimeAsync(200);
    expect(resource.get()).toEqual({ data: 2 });
    expect(load).toHaveBeenCalledTimes(3);
    stop();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(load).toHaveBeenCalledTimes(3);
    vi.useRealTimers();
  });
  test("a change that is told while an answer is on its way is asked about after it", async () => {
    vi.useFakeTimers();
    const load = vi.fn().mockResolvedValueOnce(1).mockResolvedValue(2);
    const resource = createResource<number>(load, 30_000);
    const stop = resource.subscribe(() => {});
    resource.refresh();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(resource.get()).toEqual({ data: 2 });
    expect(load).toHaveBeenCalledTimes(2);
    stop();
    vi.useRealTimers();
  });
});
