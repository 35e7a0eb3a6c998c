// A plugin's server as its authors write them: a handler from Request to Response, behind Node.js's own HTTP server.
import { createServer } from 'node:http';

const errors = { MethodNotAllowed: 405, PluginSettingsInvalid: 400, PluginServerError: 500 };

const createErrorResponse = (errorType, body) =>
  new Response(JSON.stringify({ body, errorType }), {
    headers: { 'Content-Type': 'application/json' },
    status: errors[errorType],
  });

const getPluginSettingsFromRequest = (req) => {
  const settings = req.headers.get('Sperax-Plugin-Settings');
  return settings ? JSON.parse(settings) : undefined;
};

const handler = async (req) => {
  if (req.method !== 'POST') return createErrorResponse('MethodNotAllowed');
  const settings = getPluginSettingsFromRequest(req);
  if (!settings?.apiKey) {
    return createErrorResponse('PluginSettingsInvalid', { message: 'API key required' });
  }
  const body = await req.json();
  if (body.query === 'markdown') return new Response(`## ${settings.name}\n`);
  return new Response(JSON.stringify({ success: true, data: { query: body.query, name: settings.name } }), {
    headers: { 'Content-Type': 'application/json' },
  });
};

const server = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const url = `http://${incoming.headers.host}${incoming.url}`;
  const body = ['GET', 'HEAD'].includes(incoming.method) ? undefined : Buffer.concat(chunks);
  const response = await handler(new Request(url, { method: incoming.method, headers: incoming.headers, body }));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(Buffer.from(await response.arrayBuffer()));
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
