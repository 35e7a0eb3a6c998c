import type { Json } from "./schema";

/** Snippets of a call for other programs. They contain no secret: the token is read from its file. */
export interface Snippet {
  label: string;
  text: string;
}

export interface Place {
  /** The gateway's address. */
  url: string;
  /** The beginning of a command line for this gateway. */
  program: string;
  /** The operator's token, as an argument for the shell. */
  tokenFile: string;
}

export function snippetsOf(tool: string, args: Json, place: Place): Snippet[] {
  const bearer = `-H "Authorization: Bearer $(cat ${shellWord(place.tokenFile)})"`;
  const json = '-H "Content-Type: application/json"';
  const post = (path: string, body: Json, more = "") =>
    [
      `curl -s ${place.url}${path} \\`,
      `  ${bearer} \\`,
      `  ${json} \\`,
      ...(more ? [`  ${more} \\`] : []),
      `  -d ${quoted(JSON.stringify(body))}`,
    ].join("\n");
  const request = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: tool, arguments: args } };
  return [
    { label: "curl", text: post(`/v1/tools/${encodeURIComponent(tool)}/call`, { args }) },
    { label: "CLI", text: `${place.program} call ${shellWord(tool)} --json ${quoted(JSON.stringify(args))}` },
    { label: "MCP", text: post("/mcp", request, '-H "Accept: application/json, text/event-stream"') },
  ];
}

/** Puts a text in single quotes, in which a shell interprets only the closing quote. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./~@%+=:,-]+$/.test(text) ? text : quoted(text);
}
