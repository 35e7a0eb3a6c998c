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

/** A web server on a separate port, and so with a separate origin. */
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

/** Returns the directory in which `cargo xtask test` installs the SDKs of other projects. */
function peers(): string {
  const place = process.env.SWITCHBOARD_PLUGIN_PAGES;
  if (place) return place;
  throw new Error("SWITCHBOARD_PLUGIN_PAGES is not set: run these tests with `cargo xtask test plugin_host_browser`.");
}

/** Bundles a page's script into one file, with each package from its installation. */
export async function bundle(entry: string, format: "es" | "iife" = "es"): Promise<string> {
  const fromPeers = createRequire(join(peers(), "package.json"));
  const result = await build({
    configFile: false,
    logLevel: "silent",
    mode: "production",
    // Otherwise the test runner's mode applies: React would be bundled for production, but called as in development.
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

/** Returns a page with a script in it. */
export function scripted(code: string, attributes = "", type = "module"): string {
  return `<!doctype html><html${attributes}><meta charset="utf-8"><body><script type="${type}">${code.replaceAll("</script", "<\\/script")}</script></body></html>`;
}

/** Returns a site with the host's page. A test may add more pages. */
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
