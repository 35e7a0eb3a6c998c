// Any message of a plugin's page is parsed, foreign, or malformed; it is measured in bounded time.
import fc from "fast-check";
import { expect, test } from "vitest";
import { jsonFault, parsedContent } from "../src/json.js";
import { PREFIXES, readPluginMessage } from "../src/plugin-protocol.js";

/** Values that `postMessage` can carry, and more. */
const anything = fc.anything({
  withBigInt: true,
  withDate: true,
  withMap: true,
  withSet: true,
  withTypedArray: true,
  withSparseArray: true,
});

const CHANNELS = [
  "plugin-ready-for-render",
  "fill-plugin-content",
  "fetch-plugin-state",
  "update-plugin-state",
  "update-plugin-settings",
  "trigger-ai-message",
  "create-assistant-message",
];

test("any message", () => {
  fc.assert(
    fc.property(anything, (data) => {
      const read = readPluginMessage(data);
      expect(read === "foreign" || read === "malformed" || typeof read.message.channel === "string").toBe(true);
    }),
    { numRuns: 500 },
  );
});

test("nearly a message: its channel is the one it names, and its key is a short text", () => {
  const type = fc.tuple(fc.constantFrom(...PREFIXES, "other"), fc.constantFrom(...CHANNELS, "toString", ""));
  const field = fc.oneof(anything, fc.string(), fc.string({ minLength: 257, maxLength: 300 }));
  const body = fc.record(
    { key: field, value: field, content: field, id: field, requestId: field, triggerAiMessage: field },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(type, body, fc.boolean(), ([prefix, channel], fields, tail) => {
      const read = readPluginMessage({ ...fields, type: `${prefix}:${channel}${tail ? ":x" : ""}` });
      if (prefix === "other") expect(read).toBe("foreign");
      else if (tail || !CHANNELS.includes(channel)) expect(read).toBe("malformed");
      else if (typeof read === "object") {
        expect(read.message.channel).toBe(channel);
        for (const text of [read.requestId, "key" in read.message ? read.message.key : undefined])
          expect(text === undefined || (typeof text === "string" && text.length <= 256)).toBe(true);
      }
    }),
    { numRuns: 1_000 },
  );
});

test("what is let in can be written as JSON, in about the bytes that it was measured as", () => {
  fc.assert(
    fc.property(
      anything,
      fc.integer({ min: 0, max: 200 }),
      fc.integer({ min: 0, max: 5 }),
      (value, maxBytes, maxDepth) => {
        if (jsonFault(value, { maxBytes, maxDepth })) return;
        const text = JSON.stringify(value) ?? "";
        // An escape turns one character into six, and each value and key has its delimiters.
        expect(text.length).toBeLessThanOrEqual(12 * (maxBytes + 1));
      },
    ),
    { numRuns: 1_000 },
  );
});

test("what goes in circles, and what is deep, has an end", () => {
  const circle: Record<string, unknown> = {};
  circle.self = circle;
  expect(jsonFault(circle, { maxBytes: 1_000, maxDepth: 64 })).toBe("too-deep");
  const deep = JSON.parse("[".repeat(100_000) + "]".repeat(100_000)) as unknown;
  expect(jsonFault(deep, { maxBytes: 1_000_000, maxDepth: 64 })).toBe("too-deep");
});

test("content is parsed where it is JSON, and is what it was where not", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = JSON.stringify(value);
      expect(parsedContent(text)).toEqual(JSON.parse(text));
    }),
  );
  fc.assert(
    fc.property(anything, (value) => {
      if (typeof value !== "string") expect(parsedContent(value)).toBe(value);
    }),
  );
});
