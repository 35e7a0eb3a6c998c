// Events are what the specification says they are, wherever a stream is cut, and none is longer than was agreed.
import assert from "node:assert/strict";
import test from "node:test";

import fc from "fast-check";
import { EventReader, EventTooLong, eventsOf } from "../events.js";

/** What a stream says, in these pieces; and whether it was too long. */
async function read(pieces, most) {
  const events = [];
  try {
    for await (const event of eventsOf(pieces, most)) events.push(event);
    return { events, tooLong: false };
  } catch (error) {
    if (!(error instanceof EventTooLong)) throw error;
    return { events, tooLong: true };
  }
}

const bytes = (text) => new TextEncoder().encode(text);
const check = async (text, expected) => assert.deepEqual((await read([bytes(text)])).events, expected, text);
const data = (...all) => all.map((each) => ({ event: "message", data: each }));

test("lines end in any way", async () => {
  for (const end of ["\n", "\r", "\r\n"])
    await check("data: a|data: b||data: c||".replaceAll("|", end), data("a\nb", "c"));
});

test("data is what was written, and other lines are none", async () => {
  await check("data:test\n\ndata: test\n\ndata:  test\n\n", data("test", "test", " test"));
  await check("data\n\ndata\ndata\n\ndata:", data("", "\n"));
  await check("data:\ndata: x\n\n", data("\nx"));
  await check(": still here\n\n:\n\ndata: x\n: still here\ndata: y\n\n", data("x\ny"));
  await check("retry: 5\nnonsense\nDATA: x\n data: x\n\n", []);
  await check("\ufeffdata: a\n\n\ufeffdata: b\n\ndata: c\n\n", data("a", "c"));
});

test("names are of one event and ids of all that follow", async () => {
  await check("event: a\ndata: 1\n\ndata: 2\n\n", [
    { event: "a", data: "1" },
    { event: "message", data: "2" },
  ]);
  await check("id: 7\n\ndata: 1\n\nid: 8\0\ndata: 2\n\nid\ndata: 3\n\n", [
    { event: "message", data: "1", id: "7" },
    { event: "message", data: "2", id: "7" },
    { event: "message", data: "3", id: "" },
  ]);
});

test("no event is longer than agreed, in one line or many, and those before it are told", async () => {
  for (const endless of ["x", ":", "data: 0123456789\n", "event: 0123456789"]) {
    const { events, tooLong } = await read([bytes(`data: first\n\n${endless.repeat(1_000)}`)], 100);
    assert.deepEqual([events.length, tooLong], [1, true], endless);
  }
  const { events, tooLong } = await read([bytes(": still here\ndata: x\n\nevent: y\n\n".repeat(1_000))], 100);
  assert.deepEqual([events.length, tooLong], [1_000, false]);
});

test("what an endless line costs grows as the line does", () => {
  // A reader that looked at everything again with each piece would be at it for hours.
  const reader = new EventReader();
  const piece = "x".repeat(16);
  for (let count = 0; count < 200_000; count++) assert.deepEqual([...reader.push(piece)], []);
});

const words = ["data", "event", "id", ":", " ", "\n", "\r", "\r\n", "\n\n", "\ufeff", "é", "\0", "x", "data: y\n\n"];
const streams = fc
  .array(fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...words).map(bytes) }, fc.uint8Array({ maxLength: 8 })), {
    maxLength: 60,
  })
  .map((pieces) => Uint8Array.from(pieces.flatMap((piece) => [...piece])));

test("events are the same wherever a stream is cut", async () => {
  await fc.assert(
    fc.asyncProperty(
      streams,
      fc.array(fc.nat(), { maxLength: 8 }),
      fc.integer({ min: 1, max: 80 }),
      async (stream, cuts, most) => {
        const whole = await read([stream], most);
        const places = [0, ...cuts.map((cut) => cut % (stream.length + 1)), stream.length].sort((a, b) => a - b);
        const pieces = places.slice(1).map((end, at) => stream.subarray(places[at], end));
        assert.deepEqual(await read(pieces, most), whole);
        assert.deepEqual(
          await read(
            [...stream].map((byte) => Uint8Array.of(byte)),
            most,
          ),
          whole,
        );
      },
    ),
    { numRuns: 300 },
  );
});

test("what is written as the specification says is read", async () => {
  const line = fc.string({ unit: "binary", maxLength: 20 }).map((text) => text.replaceAll(/[\r\n]/g, ""));
  const event = fc.record({
    name: fc.stringMatching(/^[a-z]{1,8}$/),
    lines: fc.array(line, { minLength: 1, maxLength: 4 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 5 }), fc.constantFrom("\n", "\r", "\r\n"), async (written, end) => {
      const text = written.map(
        ({ name, lines }) => `event: ${name}${end}${lines.map((each) => `data: ${each}${end}`).join("")}${end}`,
      );
      const { events } = await read([bytes(text.join(""))]);
      const expected = written.map(({ name, lines }) => ({ event: name, data: lines.join("\n").toWellFormed() }));
      assert.deepEqual(events, expected);
    }),
  );
});
