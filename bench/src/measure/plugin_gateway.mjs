// An HTTP server around the edge handler of the plugin gateway in JavaScript. Its only argument is the directory it was
// installed into.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { Readable } from 'node:stream';

const require = createRequire(`${process.argv[2]}/`);
const { createGatewayOnEdgeRuntime } = require('@lobehub/chat-plugins-gateway');
// It prints a line for each call, which would distort the measurement.
console.info = () => {};
const handle = createGatewayOnEdgeRuntime();

const server = createServer(async (request, response) => {
  const { headers, method, url } = request;
  const body = Readable.toWeb(request);
  const init = { body, duplex: 'half', headers, method };
  const answer = await handle(new Request(`http://${headers.host}${url}`, init));
  const text = Buffer.from(await answer.arrayBuffer());
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(text);
});
server.listen(0, '127.0.0.1', () => console.log(`ready 127.0.0.1:${server.address().port}`));
// Ends with the driver.
process.stdin.on('end', () => process.exit(0)).resume();
