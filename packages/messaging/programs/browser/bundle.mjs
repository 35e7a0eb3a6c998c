// Bundles the page like the author of a web page, into the given directory.
import { fileURLToPath } from "node:url";
import { build } from "vite";

const here = fileURLToPath(new URL(".", import.meta.url));
await build({
  configFile: false,
  logLevel: "warn",
  root: here,
  build: {
    outDir: process.argv[2],
    target: "esnext",
    lib: { entry: "page.ts", formats: ["es"], fileName: () => "page.js" },
  },
});
