import assert from "node:assert/strict";
import test from "node:test";

import { eventsOf } from "../index.js";

async function read(...parts) {
  const encoder = new TextEncoder();
  const events = [];
  for await (const event of eventsOf(
    (async function* () {
      for (const part of parts) yield encoder.encode(part);
    })(),
  ))
    events.push(event);
  return events;
}

test("events are read across parts, and comments are left out", async () => {
  const events = await read("id: 7\nevent: x\nda", 'ta: {"a":\ndata: 1}\n', "\n: still here\n\ndata: {}\n\n");
  assert.deepEqual(events, [
    { id: "7", data: { a: 1 } },
    { id: undefined, data: {} },
  ]);
});

test("a character that is cut in two is whole again", async () => {
  const bytes = new TextEncoder().encode('data: "ü"\n\n');
  const events = [];
  for await (const event of eventsOf(
    (async function* () {
      yield bytes.slice(0, 8);
      yield bytes.slice(8);
    })(),
  ))
    events.push(event);
  assert.deepEqual(events, [{ id: undefined, data: "ü" }]);
});
