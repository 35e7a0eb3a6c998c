import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";
import { sandboxPage, sandboxPageHeaders } from "../packages/plugin-host/src/mcp/sandbox-page.ts";

/** The page between the console and an MCP App, and the headers that the gateway must serve it with. */
const sandbox: Plugin = {
  name: "sandbox-page",
  generateBundle() {
    this.emitFile({ type: "asset", fileName: "sandbox.html", source: sandboxPage });
    const headers = JSON.stringify(sandboxPageHeaders, null, 2);
    this.emitFile({ type: "asset", fileName: "sandbox.headers.json", source: headers });
  },
};

export default defineConfig({
  base: "./",
  // From its source, so that the console builds before the packages are built.
  resolve: {
    alias: { "@switchboard/plugin-host": new URL("../packages/plugin-host/src/index.ts", import.meta.url).pathname },
  },
  plugins: [react(), sandbox],
  // `npm run dev` next to a running gateway with server.allowed_origins = ["http://127.0.0.1:5173"].
  server: { host: "127.0.0.1", port: 5173, proxy: { "/v1": { target: "http://127.0.0.1:3210", changeOrigin: true } } },
  build: {
    target: "es2022",
    // No inline code: the page's policy allows only its own files.
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
});
