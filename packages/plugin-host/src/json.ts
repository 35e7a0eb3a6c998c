/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** The reason why a value is refused. */
export type JsonFault = "not-json" | "too-large" | "too-deep";

/**
 * Checks a value from `postMessage` before any other code reads it.
 *
 * Such a value may be cyclic, or hold maps, dates and buffers. Therefore it cannot be written as JSON to measure its
 * length. The check ends as soon as a limit is reached, whatever the size of the value.
 */
export function jsonFault(value: unknown, limits: { maxBytes: number; maxDepth: number }): JsonFault | undefined {
  let left = limits.maxBytes;
  const walk = (item: unknown, depth: number): JsonFault | undefined => {
    left -= 1;
    if (left < 0) return "too-large";
    if (item === null || item === undefined || typeof item === "boolean") return undefined;
    if (typeof item === "number") return Number.isFinite(item) ? undefined : "not-json";
    if (typeof item === "string") {
      left -= item.length;
      return left < 0 ? "too-large" : undefined;
    }
    if (typeof item !== "object") return "not-json";
    if (depth === 0) return "too-deep";
    if (Array.isArray(item)) {
      // A sparse array's length costs the sender nothing, so it is charged before the loop.
      if (item.length > left) return "too-large";
      for (const member of item) {
        const fault = walk(member, depth - 1);
        if (fault) return fault;
      }
      return undefined;
    }
    if (!isRecord(item)) return "not-json";
    for (const key of Object.keys(item)) {
      left -= key.length;
      const fault = walk(item[key], depth - 1);
      if (fault) return fault;
    }
    return undefined;
  };
  return walk(value, limits.maxDepth);
}

/** Returns true for objects that are neither arrays nor instances of a built-in class. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

/** Returns a JSON value as text that does not depend on the order of keys. Databases may change that order. */
export function canonicalText(value: unknown): string {
  const sorted = (_: string, item: unknown): unknown =>
    isRecord(item)
      ? Object.fromEntries(Object.entries(item).sort(([one], [other]) => (one < other ? -1 : Number(one > other))))
      : item;
  return JSON.stringify(value, sorted) ?? "";
}

/** Returns a message's text as a plugin expects it: parsed if it is JSON, otherwise unchanged. */
export function parsedContent(content: unknown): unknown {
  if (typeof content !== "string") return content;
  try {
    return JSON.parse(content) as unknown;
  } catch {
    return content;
  }
}
