import type { Call } from "./types";

export interface Placed {
  /** Per cent of the width. */
  left: number;
  wait: number;
  width: number;
}

/** Returns the position of each visible call in the time span of all of them. */
export function waterfall(calls: readonly Call[], now: number): { span: number; place: (call: Call) => Placed } {
  const end = (call: Call) => (call.state === "running" ? now : call.at_ms + (call.duration_us ?? 0) / 1_000);
  let from = Number.POSITIVE_INFINITY;
  let to = 0;
  for (const call of calls) {
    from = Math.min(from, call.at_ms);
    to = Math.max(to, end(call));
  }
  const span = Math.max(0, to - from);
  if (calls.length === 0 || span === 0) return { span: 0, place: () => ({ left: 0, wait: 0, width: 0 }) };
  const percent = (ms: number) => Math.min(100, Math.max(0, (ms / span) * 100));
  return {
    span,
    place(call) {
      const left = percent(call.at_ms - from);
      const wait = percent((call.waited_us ?? 0) / 1_000);
      const width = percent(end(call) - call.at_ms) - wait;
      return {
        left: Math.min(left, 99),
        wait: Math.min(wait, 100 - left),
        width: Math.max(0, Math.min(width, 100 - left - wait)),
      };
    },
  };
}

/** Whether the stored value has masked parts, so that the call cannot be repeated unchanged. */
export function isMasked(json: unknown): boolean {
  if (json === "***") return true;
  if (typeof json !== "object" || json === null) return false;
  return Object.values(json).some(isMasked);
}

/** Returns a transform, which needs no layout: the bars of all rows change with the visible calls. */
export function bar(left: number, width: number): { transform: string } {
  return { transform: `translateX(${left}%) scaleX(${Math.max(width, 0.8) / 100})` };
}
