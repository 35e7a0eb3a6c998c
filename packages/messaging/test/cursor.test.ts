// Which messages count as new, in the orders in which servers send them.
import { expect, test } from "vitest";
import { Cursor } from "../src/cursor.js";
import type { WireMessage } from "../src/wire.js";

const message = (id: number | undefined, type = "message"): WireMessage => ({
  ...{ kind: "persisted", type, payload: {}, senderId: "ann", ts: 0 },
  ...(id === undefined ? {} : { id }),
});

test("presence may come ahead of older messages, and the connection may break in between", () => {
  const cursor = new Cursor(10);
  expect(cursor.isNew(message(20, "presence"), false)).toBe(true);
  expect(cursor.isNew(message(11), false)).toBe(true);
  expect(cursor.position).toBe(11);
  // The connection is lost. Everything is sent again, from 11.
  expect(cursor.isNew(message(20, "presence"), false)).toBe(false);
  expect(cursor.isNew(message(11), false)).toBe(false);
  expect(cursor.isNew(message(12), false)).toBe(true);
  expect(cursor.ready({ kind: "ready" })).toEqual({ lost: false, other: false });
  expect(cursor.position).toBe(20);
  expect(cursor.isNew(message(21, "presence"), true)).toBe(true);
  expect(cursor.isNew(message(21), true)).toBe(false);
  expect(cursor.isNew(message(undefined), true)).toBe(true);
});

test("a loss is noticed", () => {
  const cursor = new Cursor(10, "a");
  expect(cursor.ready({ kind: "ready", epoch: "a", lastId: 30, recovered: false }).lost).toBe(true);
  expect(cursor.position).toBe(30);
  expect(cursor.ready({ kind: "ready", epoch: "b", lastId: 3, recovered: false })).toEqual({ lost: true, other: true });
  expect([cursor.position, cursor.epoch]).toEqual([3, "b"]);
  expect(cursor.isNew(message(4, "presence"), true)).toBe(true);
});

test("without replay the place is where the channel is", () => {
  const cursor = new Cursor();
  cursor.ready({ kind: "ready", epoch: "a", lastId: 7 });
  expect(cursor.position).toBe(7);
  const plain = new Cursor();
  plain.ready({ kind: "ready" });
  expect(plain.position).toBeUndefined();
  plain.isNew(message(5, "presence"), true);
  expect(plain.position).toBe(5);
});
