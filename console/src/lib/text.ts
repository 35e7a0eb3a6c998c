import { linkWords } from "@switchboard/plugin-host";

/**
 * External text can contain invisible characters that change the visible text, or that a model reads and a person does
 * not see: control characters, bidirectional controls, zero-width characters. They are shown as escapes.
 */
// Joiners stay, because emoji and several scripts need them.
const STEERING = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** Escapes a text of several lines; tabs and line breaks stay. */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(STEERING, escaped);
}

/** Escapes a text for a single line. */
export function visibleLine(text: string): string {
  return text.replace(/[\t\n]/g, escaped).replace(STEERING, escaped);
}

function escaped(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/**
 * Formats a message of the gateway as a sentence: with a capital letter and, unless it ends with a command, a full
 * stop.
 */
export function sentence(text: string): string {
  const shown = visible(text.trim());
  const ended = /[.!?…]$/.test(shown) || /: [a-z][a-z ]*$/.test(shown);
  return `${shown.charAt(0).toUpperCase()}${shown.slice(1)}${ended || shown === "" ? "" : "."}`;
}

/** Returns the beginning of a long text. */
export function shortened(text: string, length: number): string {
  const characters = [...text.slice(0, length * 2 + 2)];
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : text;
}

export interface Part {
  text: string;
  /** Set if the text is a web address. */
  href?: string;
}

/** Matches `[words](address)`, or a plain address. */
const LINK = /\[([^\][\n]{1,200})\]\((https?:\/\/[^\s()<>"'`]+)\)|https?:\/\/[^\s<>"'`]+/g;

/** Splits a text at its web addresses, for descriptions. Only http and https become links. */
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

/**
 * Removes the final punctuation, which belongs to the sentence. A loop does this, because a regular expression would
 * backtrack.
 */
function withoutEnd(address: string): string {
  let end = address.length;
  while (end > 0 && ".,;:!?)]}".includes(address[end - 1] ?? " ")) end -= 1;
  return address.slice(0, end);
}
