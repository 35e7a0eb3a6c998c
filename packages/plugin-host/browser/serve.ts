import { createServer, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, chromium } from "playwright-core";
import { build } from "vite";

export interface Page {
  body: string;
  headers?: Record<string, string>;
  status?: number;
}

/** A web server on a port of its own, and so with an origin of its own. */
export class Site {
  readonly pages = new Map<string, Page>();
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      const page = this.pages.get(new URL(request.url ?? "/", "http://site").pathname);
      response.writeHead(page ? (page.status ?? 200) : 404, {
        "content-type": "text/html; charset=utf-8",
        ...page?.headers,
      });
      response.end(page?.body ?? "nothing here");
    });
  }

  async open(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}

const here = fileURLToPath(new URL(".", import.meta.url));

/** Where `cargo xtask test` puts other people's SDKs. */
function peers(): string {
  const place = process.env.SWITCHBOARD_PLUGIN_PAGES;
  if (place) return place;
  throw new Error("SWITCHBOARD_PLUGIN_PAGES is not set: run these tests with `cargo xtask test plugin_host_browser`.");
}

/** A page's script as one piece, with each package taken from where it was installed. */
export async function bundle(entry: string, format: "es" | "iife" = "es"): Promise<string> {
  const fromPeers = createRequire(join(peers(), "package.json"));
  const result = await build({
    configFile: false,
    logLevel: "silent",
    mode: "production",
    // Or else the test runner's own mode decides, and React is bundled for production and called as in development.
    oxc: { jsx: { runtime: "automatic", development: false } },
    define: { "process.env.NODE_ENV": '"production"' },
    resolve: {
      alias: {
        "@sperax/plugin-sdk/client": join(here, "../../plugin-sdk/src/client.ts"),
        "@lobehub/chat-plugin-sdk/client": join(peers(), "node_modules/@lobehub/chat-plugin-sdk/es/client/index.js"),
        "@modelcontextprotocol/ext-apps": fromPeers.resolve("@modelcontextprotocol/ext-apps/app-with-deps"),
      },
      dedupe: ["react", "react-dom"],
    },
    build: {
      write: false,
      minify: false,
      target: "esnext",
      rolldownOptions: { input: entry, output: { format, codeSplitting: false } },
    },
  });
  const [output] = Array.isArray(result) ? result : [result];
  if (!output || !("output" in output)) throw new Error(`${entry} was not built`);
  return output.output[0].code;
}

/** A page with a script in it. */
export function scripted(code: string, attributes = "", type = "module"): string {
  return `<!doctype html><html${attributes}><meta charset="utf-8"><body><script type="${type}">${code.replaceAll("</script", "<\\/script")}</script></body></html>`;
}

/** A site with the host's page on it, and with what a test adds. */
export async function hostSite(): Promise<Site> {
  const site = await new Site().open();
  const html = '<!doctype html><title>host</title><main></main><script type="module" src="/host.js"></script>';
  site.pages.set("/", { body: html });
  site.pages.set("/host.js", {
    body: await bundle(join(here, "pages/host.ts")),
    headers: { "content-type": "text/javascript" },
  });
  return site;
}

export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}
