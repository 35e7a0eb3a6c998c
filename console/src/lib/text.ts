import { linkWords } from "@switchboard/plugin-host";

/**
 * Text from outside can hold characters that a reader does not see but that change what they see, or that a model reads and a person
 * does not: control characters, those that turn text around, those without a width. They are shown as what they are.
 */
// Joiners stay: emoji and several scripts are made with them.
const STEERING = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** A text of several lines; tabs and line breaks stay. */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(STEERING, escaped);
}

/** A text that is to be one line. */
export function visibleLine(text: string): string {
  return text.replace(/[\t\n]/g, escaped).replace(STEERING, escaped);
}

function escaped(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/** The beginning of a text that may be long. */
export function shortened(text: string, length: number): string {
  const characters = [...text.slice(0, length * 2 + 2)];
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : text;
}

export interface Part {
  text: string;
  /** Set where the text is an address of the web. */
  href?: string;
}

/** `[words](address)`, or an address by itself. */
const LINK = /\[([^\][\n]{1,200})\]\((https?:\/\/[^\s()<>"'`]+)\)|https?:\/\/[^\s<>"'`]+/g;

/** A text with its web addresses told apart, for descriptions. Nothing but http and https becomes a link. */
export function linked(text: string): Part[] {
  const parts: Part[] = [];
  let done = 0;
  for (const match of text.matchAll(LINK)) {
    const bare = withoutEnd(match[0]);
    const [shown, address, length] = match[2] ? [match[1] ?? "", match[2], match[0].length] : [bare, bare, bare.length];
    const href = webAddress(address);
    if (href === undefined) continue;
    if (match.index > done) parts.push({ text: text.slice(done, match.index) });
    parts.push({ text: linkWords(shown, href), href });
    done = match.index + length;
  }
  if (done < text.length) parts.push({ text: text.slice(done) });
  return parts;
}

function webAddress(text: string): string | undefined {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Without the marks at its end, which belong to the sentence. Step by step: an expression would try from each of them anew. */
function withoutEnd(address: string): string {
  let end = address.length;
  while (end > 0 && ".,;:!?)]}".includes(address[end - 1] ?? " ")) end -= 1;
  return address.slice(0, end);
}
