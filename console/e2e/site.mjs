// Small web servers for a plugin author or a foreign site, and a gateway that allows them.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { setup } from "./browser.mjs";
import { start } from "./programs.mjs";

/**
 * A site with its own origin. `pages` has the content by path: a text as HTML, or a function of the request that
 * returns the whole response.
 */
export async function serve(pages = {}) {
  const server = createServer((request, response) => {
    const page = pages[new URL(request.url, "http://site").pathname];
    if (typeof page === "function") return page(request, response);
    response.writeHead(page === undefined ? 404 : 200, { "content-type": "text/html; charset=utf-8" });
    response.end(page ?? "nothing here");
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const host = `127.0.0.1:${server.address().port}`;
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { pages, host, origin: `http://${host}`, close };
}

export const json = (value) => (_, response) => {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(value));
};

/**
 * Starts the gateway with these lines in its configuration, and with plugins of these hosts allowed. It can be
 * restarted at the same address.
 */
export async function gateway(hosts, lines = "", listen = "127.0.0.1:0") {
  mkdirSync(setup.dir, { recursive: true });
  const config = join(setup.dir, "switchboard.toml");
  const allowed = hosts.map((host) => `"${host}"`).join(", ");
  writeFileSync(config, `${lines}\n[plugins]\nallow_private = [${allowed}]\n`);
  const data = join(setup.dir, "data");
  const args = ["up", "--listen", listen, "--data-dir", data, "--config", config];
  setup.url = await start(setup.program, args, "listening on ");
  setup.operator = readFileSync(join(data, "operator.token"), "utf8").trim();
}
