// Invisible characters in external text become visible, and only web addresses become links.
import { expect, test } from "vitest";
import { linked, sentence, shortened, visible, visibleLine } from "../src/lib/text";

test("characters that steer a reader become visible", () => {
  expect(visible("plain ü 😀\n\tindented")).toBe("plain ü 😀\n\tindented");
  expect(visible("\u001b[31mred")).toBe("\\u{1b}[31mred");
  expect(visible("a\u202eb\u2066c\u200fd")).toBe("a\\u{202e}b\\u{2066}c\\u{200f}d");
  expect(visible("a\u0000b\u0085c\u007fd")).toBe("a\\u{0}b\\u{85}c\\u{7f}d");
  // Characters that a model reads and a person does not see.
  expect(visible("a\u200bb\u2060c\u00add\u{e0041}e\ud800")).toBe("a\\u{200b}b\\u{2060}c\\u{ad}d\\u{e0041}e\\u{d800}");
  expect(visible("👩‍💻 می‌خواهم")).toBe("👩‍💻 می‌خواهم");
  expect(visibleLine("a\nb\tc")).toBe("a\\u{a}b\\u{9}c");
});

test("the gateway's words are sentences", () => {
  expect(sentence("the link was used already")).toBe("The link was used already.");
  expect(sentence("You are signed out.")).toBe("You are signed out.");
  // A command to type has no full stop.
  expect(sentence("get a new one with: switchboard console")).toBe("Get a new one with: switchboard console");
  expect(sentence("")).toBe("");
});

test("links", () => {
  const check = (text: string, ...hrefs: string[]) => {
    const parts = linked(text);
    expect(parts.map((part) => part.text).join("")).toBe(text);
    expect(parts.flatMap((part) => part.href ?? [])).toEqual(hrefs);
  };
  check("see https://example.com/a?b=c.", "https://example.com/a?b=c");
  check("(http://a.example) and https://b.example/", "http://a.example/", "https://b.example/");
  check("javascript:alert(1) data:text/html,x file:///etc/passwd");
  check("https://");
  check(
    `https://a.example/${".".repeat(200_000)}x ${"[".repeat(200_000)}`,
    `https://a.example/${".".repeat(200_000)}x`,
  );
  check("");
  expect(linked("see [the docs](https://example.com/a) and [x](javascript:alert(1))")).toEqual([
    { text: "see " },
    { text: "the docs", href: "https://example.com/a" },
    { text: " and [x](javascript:alert(1))" },
  ]);
});

test("a link that reads like another address says where it leads", () => {
  const words = (text: string) => linked(text).find(({ href }) => href)?.text;
  expect(words("[https://good.example](https://evil.example/x)")).toBe("https://good.example (evil.example)");
  expect(words("[good.example/login](https://evil.example/x)")).toBe("good.example/login (evil.example)");
  expect(words("[www.good.example](https://good.example@evil.example/)")).toBe("www.good.example (evil.example)");
  expect(words("[good.example](https://good.example/a)")).toBe("good.example");
  expect(words("[the docs, v1.2](https://good.example/a)")).toBe("the docs, v1.2");
});

test("long texts are cut between characters", () => {
  expect(shortened("abc", 3)).toBe("abc");
  expect(shortened("abcd", 3)).toBe("ab…");
  expect(shortened("😀😀😀", 2)).toBe("😀…");
});
