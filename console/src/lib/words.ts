/** A command line cut into words as a shell would, quotes and backslashes minded; nothing else of a shell is there. */
export function words(line: string): string[] {
  const found: string[] = [];
  let word: string | undefined;
  let quote = "";
  for (let at = 0; at < line.length; at++) {
    const character = line[at] as string;
    if (quote) {
      if (character === quote) quote = "";
      else if (character === "\\" && quote === '"' && /["\\$`]/.test(line[at + 1] ?? ""))
        word = (word ?? "") + line[++at];
      else word = (word ?? "") + character;
    } else if (character === "'" || character === '"') {
      quote = character;
      word ??= "";
    } else if (/\s/.test(character)) {
      if (word !== undefined) found.push(word);
      word = undefined;
    } else if (character === "\\" && at + 1 < line.length) word = (word ?? "") + line[++at];
    else word = (word ?? "") + character;
  }
  if (word !== undefined) found.push(word);
  return found;
}
