// Lists and calls tools with the official TypeScript SDK: PEERS, MAJOR, URL, TOKEN and CALLS are its arguments. MAJOR is the
// SDK's major version, CALLS a JSON array of tools' names with their arguments.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [peers, major, url, token, calls] = process.argv.slice(2);
const { resolve } = createRequire(`${peers}/package.json`);
const load = async (...names) => {
  const modules = await Promise.all(names.map((name) => import(pathToFileURL(resolve(name)).href)));
  return Object.assign({}, ...modules);
};
const { Client, StreamableHTTPClientTransport } =
  major === '1'
    ? await load('@modelcontextprotocol/sdk/client/index.js', '@modelcontextprotocol/sdk/client/streamableHttp.js')
    : await load('@modelcontextprotocol/client');

const client = new Client({ name: 'test', version: '0' });
const headers = { Authorization: `Bearer ${token}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
// From here on the client checks structured content against the schemas of the list.
const { tools } = await client.listTools();
const results = [];
for (const [name, args] of JSON.parse(calls)) {
  const { content, structuredContent, isError = false, _meta = null } = await client.callTool({ name, arguments: args });
  results.push({ types: content.map((block) => block.type), structured: structuredContent, error: isError, meta: _meta });
}
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), results }));
await client.close();
