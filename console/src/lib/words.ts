/** Splits a command line into words like a shell, with quotes and backslashes; no other shell syntax is supported. */
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
