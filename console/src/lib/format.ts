/** Formats numbers, times and sizes for people. The texts are short, and equally wide in columns. */

export function duration(microseconds: number): string {
  if (!Number.isFinite(microseconds) || microseconds < 0) return "–";
  if (microseconds < 1_000) return `${Math.round(microseconds)} µs`;
  const ms = microseconds / 1_000;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1_000;
  if (s < 9.995) return `${s.toFixed(2)} s`;
  if (s < 59.95) return `${s.toFixed(1)} s`;
  return span(ms);
}

/** Formats a time in whole milliseconds; zero means less than one. */
export function milliseconds(ms: number): string {
  return ms < 1 ? "under 1 ms" : duration(ms * 1_000);
}

/** Formats a longer time, in its two largest units. */
export function span(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1_000));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return s % 60 === 0 ? `${m} min` : `${m} min ${s % 60} s`;
  const h = Math.floor(m / 60);
  if (h < 24) return m % 60 === 0 ? `${h} h` : `${h} h ${m % 60} min`;
  const d = Math.floor(h / 24);
  return h % 24 === 0 ? `${d} d` : `${d} d ${h % 24} h`;
}

export function bytes(count: number): string {
  if (count < 1_000) return `${count} B`;
  for (const [unit, size] of [
    ["kB", 1e3],
    ["MB", 1e6],
    ["GB", 1e9],
  ] as const) {
    if (count < size * 1_000 || unit === "GB") return `${(count / size).toFixed(count / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${count} B`;
}

export function count(value: number): string {
  return value.toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** Formats a rate that may be a fraction. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond < 1) return perSecond.toFixed(2);
  if (perSecond < 10) return perSecond.toFixed(1);
  return count(Math.round(perSecond));
}

const two = (value: number) => String(value).padStart(2, "0");

/** Returns the local time of day. */
export function clock(at: number): string {
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Returns the time, with the date if it was another day. */
export function moment(at: number, now: number = Date.now()): string {
  const date = new Date(at);
  if (date.toDateString() === new Date(now).toDateString()) return clock(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}`;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
