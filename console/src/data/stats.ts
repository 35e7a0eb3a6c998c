import type { Stats } from "./types";

export interface Point {
  at_s: number;
  calls: number;
  errors: number;
  p50_us: number;
  p95_us: number;
}

/** The seconds of the gateway in steps of several, with those in which nothing happened. Quantiles are weighed by their calls. */
export function buckets(stats: Stats, stepS: number): Point[] {
  const end = Math.floor(stats.now_ms / 1_000 / stepS) * stepS;
  const length = Math.floor(stats.window_s / stepS);
  const points = Array.from({ length }, (_, at) => ({
    at_s: end - (length - 1 - at) * stepS,
    calls: 0,
    errors: 0,
    p50_us: 0,
    p95_us: 0,
  }));
  const first = points[0]?.at_s ?? end;
  for (const second of stats.seconds) {
    const point = points[Math.floor((second.at_s - first) / stepS)];
    if (point) add(point, second);
  }
  return points;
}

/** All of them as one. */
export function windowOf(points: Point[]): Point {
  const sum: Point = { at_s: 0, calls: 0, errors: 0, p50_us: 0, p95_us: 0 };
  for (const point of points) add(sum, point);
  return sum;
}

function add(sum: Point, more: Omit<Point, "at_s">): void {
  const calls = sum.calls + more.calls;
  if (calls > 0) {
    sum.p50_us = (sum.p50_us * sum.calls + more.p50_us * more.calls) / calls;
    sum.p95_us = Math.max(sum.p95_us, more.p95_us);
  }
  sum.calls = calls;
  sum.errors += more.errors;
}
