// Lists and calls tools with the official TypeScript SDK: PEERS, URL, TOKEN and CALLS are its arguments, the last as JSON,
// the names of tools with their arguments.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [peers, url, token, calls] = process.argv.slice(2);
const sdk = createRequire(`${peers}/package.json`).resolve('@modelcontextprotocol/client');
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(sdk).href);

const client = new Client({ name: 'test', version: '0' });
const headers = { Authorization: `Bearer ${token}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const results = {};
for (const [name, args] of Object.entries(JSON.parse(calls))) {
  results[name] = (await client.callTool({ name, arguments: args })).structuredContent;
}
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), results }));
await client.close();
