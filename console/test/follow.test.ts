// A conversation follows its end until the reader scrolls up.
import { expect, test } from "vitest";
import { Follow } from "../src/lib/follow";

/** Reports these positions of a box with 100 pixels, as [scrollTop, scrollHeight], and returns whether it follows. */
function follows(end: Follow, ...positions: [number, number][]): boolean {
  for (const [scrollTop, scrollHeight] of positions) end.scrolled({ scrollTop, scrollHeight, clientHeight: 100 });
  return end.follows;
}

test("content that grows before the event of our own scrolling does not end it", () => {
  expect(follows(new Follow(), [400, 500], [900, 1000], [900, 1600])).toBe(true);
});

test("a reader who scrolls up is left alone until the end is reached again", () => {
  const end = new Follow();
  expect(follows(end, [900, 1000], [700, 1000])).toBe(false);
  expect(follows(end, [750, 1200])).toBe(false);
  expect(follows(end, [1090, 1200])).toBe(true);
});

test("a few pixels do not count", () => {
  expect(follows(new Follow(), [900, 1000], [870, 1000])).toBe(true);
});

test("sending a message shows the end", () => {
  const end = new Follow();
  follows(end, [900, 1000], [100, 1000]);
  end.restart();
  expect(end.follows).toBe(true);
});
