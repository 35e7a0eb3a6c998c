// Lists and calls a tool with the official TypeScript SDK: PEERS, URL and TOKEN are its arguments.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [peers, url, token] = process.argv.slice(2);
const sdk = createRequire(`${peers}/package.json`).resolve('@modelcontextprotocol/client');
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(sdk).href);

const client = new Client({ name: 'test', version: '0' });
const headers = { Authorization: `Bearer ${token}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const result = await client.callTool({ name: 'notes_search', arguments: { query: 'typescript' } });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), result: result.structuredContent }));
await client.close();
