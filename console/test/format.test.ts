// Numbers in a readable format.
import { expect, test } from "vitest";
import { bytes, count, duration, milliseconds, plural, rate, span } from "../src/lib/format";
import { href, parseRoute } from "../src/lib/route";
import { quoted, shellWord, snippetsOf } from "../src/lib/snippets";
import { words } from "../src/lib/words";

test.each([
  [0, "0 µs"],
  [999, "999 µs"],
  [1_000, "1.0 ms"],
  [9_949, "9.9 ms"],
  [9_960, "10 ms"],
  [999_499, "999 ms"],
  [999_500, "1.00 s"],
  [12_345_678, "12.3 s"],
  [60_000_000, "1 min"],
  [Number.NaN, "–"],
])("%d µs is %s", (us, text) => expect(duration(us)).toBe(text));

test.each([
  [0, "0 s"],
  [61_000, "1 min 1 s"],
  [3_600_000, "1 h"],
  [90_000_000, "1 d 1 h"],
])("%d ms is %s", (ms, text) => expect(span(ms)).toBe(text));

test("sizes, counts and rates", () => {
  expect([bytes(999), bytes(1_500), bytes(25_000_000)]).toEqual(["999 B", "1.5 kB", "25 MB"]);
  expect(count(1_234_567)).toBe("1\u2009234\u2009567");
  expect([plural(1, "call"), plural(2, "call")]).toEqual(["1 call", "2 calls"]);
  expect([rate(0), rate(0.2), rate(3.14), rate(1_200)]).toEqual(["0", "0.20", "3.1", "1\u2009200"]);
});

test("addresses of pages", () => {
  for (const item of ["demo_echo", "a/b c", "ü?#%", "%zz"])
    expect(parseRoute(href("tools", item, { args: '{"a":"&"}' }))).toMatchObject({ page: "tools", item });
  expect(parseRoute(href("tools", "x", { args: '{"a":"&"}' })).query.get("args")).toBe('{"a":"&"}');
  expect(parseRoute("")).toMatchObject({ page: "overview" });
  expect(parseRoute("#/tools/%zz").item).toBe("%zz");
});

test("what is copied is safe in a shell", () => {
  expect(quoted("it's")).toBe("'it'\\''s'");
  expect(shellWord("/a/b-c.d")).toBe("/a/b-c.d");
  expect(shellWord("/a b")).toBe("'/a b'");
  const [curl, cli, mcp] = snippetsOf(
    "demo_echo",
    { text: "it's $(rm -rf /) `x`" },
    { url: "http://127.0.0.1:1", program: "switchboard --data-dir /d", tokenFile: "/d/operator.token" },
  );
  for (const snippet of [curl, cli, mcp]) expect(snippet?.text).toContain("it'\\''s $(rm -rf /) `x`");
  expect(curl?.text).not.toMatch(/sb_/);
  expect(cli?.text).toMatch(/^switchboard --data-dir \/d call demo_echo --json '/);
});

test("a command line becomes words", () => {
  expect(words("npx -y  'a b' \"c \\\"d\\\"\" e\\ f ''")).toEqual(["npx", "-y", "a b", 'c "d"', "e f", ""]);
  expect(words("  ")).toEqual([]);
});

test("nought milliseconds are not none", () => {
  expect([0, 1, 1_500].map(milliseconds)).toEqual(["under 1 ms", "1.0 ms", "1.50 s"]);
});
