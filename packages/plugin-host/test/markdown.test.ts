// Markdown plugins show formatted text, and nothing in the text becomes code or loads a remote resource.

import { expect, test } from "vitest";
import { memoryStore, mountPlugin, renderMarkdown } from "../src/index.js";

const html = (text: string) => (renderMarkdown(text, document) as HTMLElement).innerHTML;

test("a Markdown plugin is shown without a frame", () => {
  const view = mountPlugin(document.createElement("div"), {
    manifest: { identifier: "prices", type: "markdown", ui: { url: "https://plugin.example/" } },
    call: { messageId: "m", apiName: "price" },
    content: "## Bitcoin\n\n- **Current**: $45,000",
    store: memoryStore(),
  });
  expect(view.element.innerHTML).toContain("<h2>Bitcoin</h2><ul><li><strong>Current</strong>: $45,000</li></ul>");
  view.setContent("# New");
  expect(view.element.innerHTML).toContain("<h1>New</h1>");
});

test.each([
  ["a\nb\n\nc", "<p>a\nb</p><p>c</p>"],
  ["###### six", "<h6>six</h6>"],
  [
    "*em* _em_ **strong** __strong__ ~~gone~~",
    "<p><em>em</em> <em>em</em> <strong>strong</strong> <strong>strong</strong> <del>gone</del></p>",
  ],
  ["**strong with *em* in it**", "<p><strong>strong with <em>em</em> in it</strong></p>"],
  ["snake_case_name and 2*3*4", "<p>snake_case_name and 2*3*4</p>"],
  ["`a *b*`", "<p><code>a *b*</code></p>"],
  ["```js\nlet a = '*';\n```", "<pre><code data-language=\"js\">let a = '*';</code></pre>"],
  ["```\nopen to the end", "<pre><code>open to the end</code></pre>"],
  ["> quoted\n> # too", "<blockquote><p>quoted</p><h1>too</h1></blockquote>"],
  ["- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"],
  ["3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'],
  ["---", "<hr>"],
  [
    "| a | b |\n|---|---|\n| 1 | *2* |",
    "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><em>2</em></td></tr></tbody></table>",
  ],
  ["\\*not em\\*", "<p>*not em*</p>"],
])("%j", (text, expected) => expect(html(text)).toBe(expected));

test.each(["[site](https://a.example/x)", "https://a.example/x"])(
  "%s is a link that tells nobody where it came from",
  (text) => {
    expect(html(text)).toMatch(/<a href="https:\/\/a.example\/x" target="_blank" rel="noopener noreferrer nofollow">/);
  },
);

test.each([
  "<script>alert(1)</script>",
  '<img src=x onerror="alert(1)">',
  "[a](javascript:alert(1))",
  "[a](JaVaScRiPt:alert(1))",
  "[a](data:text/html,x)",
  '[a](https://a.example/"onclick="alert(1))',
  "![a](https://tracker.example/pixel.png)",
  "`<b>`",
  "| <i> | b |\n|---|---|",
])("%s stays text, or a plain link", (text) => {
  const root = renderMarkdown(text, document) as HTMLElement;
  expect(root.querySelectorAll("script, img, b, i, iframe").length).toBe(0);
  for (const element of root.querySelectorAll("*")) {
    expect(element.getAttributeNames().filter((name) => name.startsWith("on"))).toEqual([]);
    expect(element.getAttribute("href") ?? "https:").toMatch(/^https:/);
  }
});

test.each(["*", "_", "**", "[", "`", "> ", "- ", "  - ", "|", "~~", "https://", "![("])(
  "%j, many times, ends",
  (part) => {
    expect(html(part.repeat(20_000))).toBeTypeOf("string");
    expect(html(`${part}\n`.repeat(5_000))).toBeTypeOf("string");
  },
);

test("a link that reads like another address says where it leads", () => {
  expect(html("[https://good.example](https://evil.example/x)")).toContain(">https://good.example (evil.example)</a>");
  expect(html("[good.example](https://good.example/x)")).toContain(">good.example</a>");
  expect(html("[mail.me](mailto:a@b.example)")).toContain(">mail.me</a>");
});

// Each text can be matched in many ways; trying all of them would take too long.
test.each([
  ["a heading with blanks in it", `# a${" ".repeat(50_000)}x`],
  ["a heading that is not closed", `# ${"#".repeat(50_000)} x`],
  ["a table's rule that is none", `a|b\n-${" ".repeat(50_000)}x`],
  ["a table's rule of bars", `a|b\n${"|".repeat(50_000)}`],
  ["a rule that is none", `${"- ".repeat(25_000)}x`],
  ["brackets", "[".repeat(50_000)],
  ["links that do not end", "[a](".repeat(12_500)],
  ["stars", "**".repeat(25_000)],
  ["words that begin to be strong", "*a b".repeat(12_500)],
  ["a fence", `\`\`\`${" ".repeat(50_000)}\u0001`],
])("%s takes no longer than other texts", (_, text) => {
  expect(html(text)).not.toBe("");
});

test.each([
  ["# a #", "<h1>a</h1>"],
  ["# a ## b ##  ", "<h1>a ## b</h1>"],
  ["#  #", "<h1></h1>"],
  ["a | b\n:-- | --:\n1 | 2", "<table>"],
])("%j is still %s", (text, expected) => expect(html(text)).toContain(expected));
