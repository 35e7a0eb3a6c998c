// Any input in place of a frame is read, ignored, or refused with the one documented error.
import fc from "fast-check";
import { expect, test } from "vitest";
import { encodeBinary } from "../src/attachments.js";
import { weigh } from "../src/bounds.js";
import { ValidationError } from "../src/errors.js";
import { check, isProtocolType } from "../src/protocol.js";
import { decodeFrame } from "../src/wire.js";

/** Asserts that the input is read, or refused with that error. */
function read(data: string | Uint8Array): void {
  try {
    decodeFrame(data);
  } catch (error) {
    expect(error).toBeInstanceOf(ValidationError);
  }
}

const json = fc.jsonValue({ maxDepth: 3 });
const FIELDS = [
  "kind",
  "id",
  "type",
  "payload",
  "senderId",
  "ts",
  "senderMetadata",
  "ref",
  "attachmentMeta",
  "roster",
  "messages",
];
const MESSAGE = {
  kind: "persisted",
  id: 1,
  type: "message",
  payload: { id: "m", content: "x" },
  senderId: "ann",
  ts: 1,
};
const FRAMES = [
  MESSAGE,
  { ...MESSAGE, attachmentMeta: [{ mimeType: "a/b", size: 3 }] },
  { kind: "ready", roster: { ann: { metadata: {} } }, lastId: 3, extensions: ["x"] },
  { kind: "error", error: "no", code: "rate-limited", ref: 1 },
  { kind: "history", messages: [MESSAGE], hasMore: false },
];

/** A frame with one field changed or removed. */
const nearly = fc
  .tuple(
    fc.constantFrom(...FRAMES),
    fc.constantFrom(...FIELDS, "__proto__", "constructor"),
    fc.option(json, { nil: undefined }),
  )
  .map(([frame, field, value]) =>
    JSON.stringify(Object.defineProperty({ ...frame }, field, { value, enumerable: true })),
  );

test("any text and any bytes", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: "binary" }),
        fc.json(),
        json.map((value) => JSON.stringify(value)),
      ),
      read,
    ),
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 64 }), read));
});

test("nearly a frame, as text and with bytes behind it", () => {
  fc.assert(
    fc.property(nearly, fc.uint8Array({ maxLength: 8 }), fc.nat(), (text, bytes, cut) => {
      read(text);
      read(text.slice(0, cut % text.length));
      const binary = encodeBinary(text, [bytes]);
      read(binary);
      read(binary.subarray(0, cut % binary.length));
      binary[cut % binary.length] = cut;
      read(binary);
    }),
    { numRuns: 1_000 },
  );
});

test("a frame as it should be is read, whatever its payload is", () => {
  fc.assert(
    fc.property(json, (payload) => {
      const frame = decodeFrame(JSON.stringify({ ...MESSAGE, payload }));
      expect(frame).toMatchObject({ kind: "message", message: { id: 1, senderId: "ann" } });
    }),
  );
});

test("invalid text is refused in the same way as invalid JSON", () => {
  const frame = encodeBinary(JSON.stringify(MESSAGE), []);
  frame[8] = 0xff;
  expect(() => decodeFrame(frame)).toThrow(ValidationError);
});

test("a frame that is nested too deeply is refused, and never runs out of stack", () => {
  const nested = (depth: number) =>
    JSON.stringify({ ...MESSAGE, payload: "PAYLOAD" }).replace('"PAYLOAD"', "[".repeat(depth) + "]".repeat(depth));
  for (const depth of [1_000, 100_000, 1_000_000]) expect(() => decodeFrame(nested(depth))).toThrow(ValidationError);
  const frame = decodeFrame(nested(100));
  expect(frame?.kind === "message" && weigh(frame.message.payload)).toBeGreaterThan(200);
  // Brackets in a text do not count as depth.
  expect(decodeFrame(JSON.stringify({ ...MESSAGE, payload: `"${"[{\\".repeat(1_000)}` }))).toBeDefined();
});

test("any payload of any type is checked", () => {
  const types = [
    "message",
    "update-message",
    "error",
    "method-call",
    "method-result",
    "method-cancel",
    "execution-pause",
  ];
  fc.assert(
    fc.property(fc.constantFrom(...types, "__proto__", "toString"), fc.anything(), (type, payload) => {
      if (!isProtocolType(type)) return;
      try {
        check(type, payload, "receive");
      } catch (error) {
        expect(error).toBeInstanceOf(ValidationError);
      }
    }),
    { numRuns: 500 },
  );
});

test("the acknowledgement of a close is no message, and no mistake", () => {
  expect(decodeFrame('{"kind":"persisted","ref":3}')).toBeUndefined();
  expect(() => decodeFrame('{"kind":"persisted"}')).toThrow(ValidationError);
});
