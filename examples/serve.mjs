// The shared code of the example plugins: a small web server with a manifest, functions and files. Plain Node.js.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const MAX_BYTES = 64 * 1024;
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript", json: "application/json" };
/** The headers in which hosts of this family send a user's settings. */
const SETTINGS = [
  "x-sperax-plugin-settings",
  "sperax-plugin-settings",
  "speraxos-plugin-settings",
  "x-lobe-plugin-settings",
];

/** Returns an error in the format of the hosts. */
export class PluginError extends Error {
  constructor(status, errorType, message) {
    super(message);
    Object.assign(this, { status, errorType });
  }
}

/**
 * Serves a plugin from `folder` (an `import.meta.url`): its manifest, the `functions` by name, and the `files` of its
 * page.
 *
 * A function gets the arguments and the user's settings. It returns text, or any other value as JSON.
 */
export async function servePlugin({ folder, functions, files = [], port = Number(process.argv[2] ?? 0) }) {
  const near = (file) => fileURLToPath(new URL(file, folder));
  const manifest = await readFile(near("manifest.json"), "utf8");
  const pages = new Map(files.map((file) => [file === "index.html" ? "/" : `/${file}`, near(file)]));
  pages.set("/plugin.js", fileURLToPath(new URL("plugin.js", import.meta.url)));
  let origin = "";

  async function answer(request) {
    const { pathname } = new URL(request.url, "http://plugin");
    if (request.method === "OPTIONS") return { status: 204, body: "" };
    if (pathname === "/manifest.json") return { type: TYPES.json, body: manifest.replaceAll("{origin}", origin) };
    const name = pathname.startsWith("/api/") ? pathname.slice(5) : "";
    if (Object.hasOwn(functions, name)) {
      if (request.method !== "POST") throw new PluginError(405, "MethodNotAllowed", "Send the arguments with POST.");
      const result = await functions[name](await readJson(request), readSettings(request));
      if (typeof result === "string") return { type: "text/markdown", body: result };
      return { type: TYPES.json, body: JSON.stringify(result) };
    }
    const page = pages.get(pathname);
    if (!page) throw new PluginError(404, "PluginApiNotFound", `There is nothing at ${pathname}.`);
    return { type: TYPES[page.split(".").pop()], body: await readFile(page) };
  }

  const server = createServer(async (request, response) => {
    const {
      status = 200,
      type = TYPES.json,
      body,
    } = await answer(request).catch((error) => ({
      status: error.status ?? 500,
      body: JSON.stringify({ errorType: error.errorType ?? "PluginServerError", body: { message: error.message } }),
    }));
    response.writeHead(status, {
      "content-type": `${type}; charset=utf-8`,
      "access-control-allow-origin": "*",
      "access-control-allow-headers": ["content-type", ...SETTINGS].join(", "),
      // A page that runs only its own files, and may be shown in any chat.
      "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:",
      "x-content-type-options": "nosniff",
    });
    response.end(body);
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${server.address().port}`;
  console.log(`listening on ${origin}`);
  console.error(`add it to the gateway by its manifest: ${origin}/manifest.json`);
  return server;
}

async function readJson(request) {
  let text = "";
  for await (const part of request.setEncoding("utf8")) {
    text += part;
    if (text.length > MAX_BYTES) throw new PluginError(413, 413, `More than ${MAX_BYTES} bytes of arguments.`);
  }
  try {
    const value = JSON.parse(text || "{}");
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // The code below reports it, like other values that are not arguments.
  }
  throw new PluginError(422, "PluginApiParamsError", "The arguments have to be a JSON object.");
}

function readSettings(request) {
  const written = SETTINGS.map((name) => request.headers[name]).find(Boolean);
  try {
    return Object(JSON.parse(written ?? "{}"));
  } catch {
    throw new PluginError(400, "PluginSettingsInvalid", "The settings are not JSON.");
  }
}
