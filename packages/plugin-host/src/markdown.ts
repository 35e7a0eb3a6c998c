/**
 * Renders Markdown as DOM nodes.
 *
 * The text comes from a plugin's server, so nothing in it becomes HTML. Addresses other than web and mail addresses
 * stay text. Images are shown as links, because loading one would reveal the reader to a foreign server.
 */
export function renderMarkdown(text: string, document: Document): Node {
  const root = document.createElement("div");
  root.className = "switchboard-markdown";
  // No person reads a longer answer, and inline matching takes time.
  appendBlocks(text.slice(0, 200_000).replaceAll("\r\n", "\n").split("\n"), root, 8);
  return root;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^( {0,8})(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;

function appendBlocks(lines: string[], parent: Element, depth: number): void {
  const document = parent.ownerDocument;
  const add = (tag: string, inline?: string): HTMLElement => {
    const element = document.createElement(tag);
    if (inline !== undefined) appendInline(inline, element, 8);
    parent.append(element);
    return element;
  };
  const takeWhile = (from: number, wanted: (line: string) => boolean): number => {
    let end = from;
    while (end < lines.length && wanted(lines[end] ?? "")) end += 1;
    return end;
  };
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] ?? "";
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    if (line.trim() === "") at += 1;
    else if (fence) {
      const mark = fence[1] ?? "```";
      const end = takeWhile(at + 1, (next) => !next.trimStart().startsWith(mark));
      const code = document.createElement("code");
      if (fence[2]) code.dataset.language = fence[2];
      code.textContent = lines.slice(at + 1, end).join("\n");
      add("pre").append(code);
      at = end + 1;
    } else if (heading) {
      add(`h${heading[1]?.length ?? 1}`, headingText(heading[2] ?? ""));
      at += 1;
    } else if (RULE.test(line)) {
      add("hr");
      at += 1;
    } else if (QUOTE.test(line) && depth > 0) {
      const end = takeWhile(at, (next) => QUOTE.test(next));
      const quoted = lines.slice(at, end).map((next) => QUOTE.exec(next)?.[1] ?? "");
      appendBlocks(quoted, add("blockquote"), depth - 1);
      at = end;
    } else if (item && depth > 0) at = appendList(lines, at, parent, depth);
    else if (line.includes("|") && isTableRule(lines[at + 1] ?? "")) {
      const end = takeWhile(at + 2, (next) => next.includes("|"));
      appendTable(lines.slice(at, end), add("table"));
      at = end;
    } else {
      const starts = (next: string) => [FENCE, HEADING, RULE, QUOTE, ITEM].some((block) => block.test(next));
      const end = takeWhile(at + 1, (next) => next.trim() !== "" && !starts(next));
      add("p", lines.slice(at, end).join("\n"));
      at = end;
    }
  }
}

/**
 * Removes the closing signs of a heading. A loop does this, because a regular expression would backtrack over all
 * splits of the blanks.
 */
function headingText(text: string): string {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (trimmed[end - 1] === "#") end -= 1;
  return trimmed.slice(0, end).trimEnd();
}

function isTableRule(line: string): boolean {
  const cells = line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");
  return cells.every((cell) => /^:?-+:?$/.test(cell.trim()));
}

function appendList(lines: string[], start: number, parent: Element, depth: number): number {
  const document = parent.ownerDocument;
  const first = ITEM.exec(lines[start] ?? "");
  const indent = first?.[1]?.length ?? 0;
  const list = document.createElement(first?.[2] === undefined ? "ul" : "ol");
  if (list instanceof (document.defaultView ?? globalThis).HTMLOListElement && first?.[2] !== "1")
    list.start = Number(first?.[2]);
  parent.append(list);
  let at = start;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at] ?? "");
    if (!item || (item[1]?.length ?? 0) < indent) break;
    const body = [item[3] ?? ""];
    at += 1;
    // Lines that are indented further than the marker, and continuation lines without one, belong to the item.
    while (at < lines.length) {
      const line = lines[at] ?? "";
      const inner = ITEM.exec(line);
      if (
        line.trim() === ""
          ? !/^ {2,}/.test(lines[at + 1] ?? "")
          : inner
            ? (inner[1]?.length ?? 0) <= indent
            : !/^ {2,}/.test(line)
      )
        break;
      body.push(line.slice(Math.min(indent + 2, line.search(/\S|$/))));
      at += 1;
    }
    const element = document.createElement("li");
    appendInline(body[0] ?? "", element, 8);
    if (body.length > 1) appendBlocks(body.slice(1), element, depth - 1);
    list.append(element);
  }
  return at;
}

function appendTable(lines: string[], table: HTMLElement): void {
  const document = table.ownerDocument;
  const row = (line: string, tag: "th" | "td"): HTMLElement => {
    const element = document.createElement("tr");
    const cells = line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").slice(0, 50);
    for (const cell of cells) {
      const part = document.createElement(tag);
      appendInline(cell.trim(), part, 8);
      element.append(part);
    }
    return element;
  };
  const [head = "", , ...body] = lines;
  const [thead, tbody] = [document.createElement("thead"), document.createElement("tbody")];
  thead.append(row(head, "th"));
  tbody.append(...body.map((line) => row(line, "td")));
  table.append(thead, tbody);
}

/** Matches the first inline element. Each alternative is bounded in length, so that no text makes the matching slow. */
const INLINE =
  /(?<code>`{1,3})(?<codeText>[^`]{1,2000})\k<code>|!?\[(?<label>[^\]\n]{0,500})\]\((?<address>[^()\s]{1,2000})\)|(?<strong>\*\*|__)(?<strongText>(?:(?!\k<strong>).){1,2000})\k<strong>|~~(?<struck>[^~\n]{1,2000})~~|(?<![\w*])(?<em>[*_])(?<emText>[^*_\s](?:[^*_\n]{0,2000}[^*_\s])?)\k<em>(?![\w*])|(?<bare>https?:\/\/[^\s<>()[\]"']{1,2000}[^\s<>()[\]"'.,;:!?])|\\(?<escaped>[\\`*_{}[\]()#+\-.!|>~])/s;

function appendInline(text: string, parent: Element, depth: number): void {
  const document = parent.ownerDocument;
  let rest = text;
  for (let match = INLINE.exec(rest); match?.groups; match = INLINE.exec(rest)) {
    parent.append(rest.slice(0, match.index));
    rest = rest.slice(match.index + match[0].length);
    const { codeText, label, address, strongText, struck, emText, bare, escaped } = match.groups;
    const wrap = (tag: string, inner: string): void => {
      const element = document.createElement(tag);
      if (depth > 0 && tag !== "code") appendInline(inner, element, depth - 1);
      else element.textContent = inner;
      parent.append(element);
    };
    if (codeText !== undefined) wrap("code", codeText);
    else if (address !== undefined) parent.append(link(document, address, label || address) ?? match[0]);
    else if (strongText !== undefined) wrap("strong", strongText);
    else if (struck !== undefined) wrap("del", struck);
    else if (emText !== undefined) wrap("em", emText);
    else if (bare !== undefined) parent.append(link(document, bare, bare) ?? bare);
    else parent.append(escaped ?? "");
  }
  parent.append(rest);
}

function link(document: Document, address: string, label: string): HTMLElement | undefined {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return undefined;
  }
  if (!["https:", "http:", "mailto:"].includes(url.protocol)) return undefined;
  const anchor = document.createElement("a");
  anchor.href = url.href;
  anchor.target = "_blank";
  anchor.rel = "noopener noreferrer nofollow";
  anchor.textContent = linkWords(label, url.href);
  return anchor;
}

/** Returns the text of a link. If the text looks like an address, the real host is appended, unless it is the same. */
export function linkWords(words: string, address: string): string {
  const { host } = new URL(address);
  const named = /^\s*(?:https?:\/\/)?([\w-]+(?:\.[\w-]+)+(?::\d+)?)(?:[/?#]|\s*$)/i.exec(words)?.[1]?.toLowerCase();
  return named === undefined || host === "" || named === host.toLowerCase() ? words : `${words} (${host})`;
}
