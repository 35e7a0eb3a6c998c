import type { Point, Stats } from "./types";

/** Returns the gateway's steps, including empty ones. */
export function filled({ now_ms, window_s, step_s, steps }: Stats): Point[] {
  const end = Math.floor(now_ms / 1_000 / step_s) * step_s;
  const known = new Map(steps.map((point) => [point.at_s, point]));
  return Array.from({ length: Math.floor(window_s / step_s) }, (_, at) => {
    const at_s = end - (Math.floor(window_s / step_s) - 1 - at) * step_s;
    return known.get(at_s) ?? { at_s, calls: 0, errors: 0, p50_us: 0, p95_us: 0 };
  });
}
