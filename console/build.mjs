// Builds the console, with a compressed copy of each file for the gateway to embed. Does nothing if no source has
// changed,
// because a new file in `dist` makes cargo recompile the gateway.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
const stamp = join(here, ".built");
const sources = [
  "src",
  "index.html",
  "icon.svg",
  "vite.config.ts",
  "package.json",
  "build.mjs",
  "../package-lock.json",
  "../packages/plugin-host/src",
];

function* files(path) {
  if (!existsSync(path)) return;
  if (!statSync(path).isDirectory()) yield path;
  else for (const name of readdirSync(path).sort()) yield* files(join(path, name));
}

const hash = createHash("sha256");
for (const source of sources)
  for (const file of files(join(here, source))) hash.update(file).update(readFileSync(file));
const wanted = hash.digest("hex");

const built = existsSync(join(here, "dist/index.html")) && existsSync(stamp) && readFileSync(stamp, "utf8") === wanted;
if (!built) {
  await build({ root: here, configFile: join(here, "vite.config.ts"), logLevel: "warn" });
  let compressed = 0;
  for (const file of [...files(join(here, "dist"))]) {
    const bytes = readFileSync(file);
    const brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } });
    writeFileSync(`${file}.br`, brotli);
    writeFileSync(`${file}.gzip`, gzipSync(bytes, { level: 9 }));
    compressed += brotli.length;
  }
  writeFileSync(stamp, wanted);
  console.log(`console: ${Math.ceil(compressed / 1000)} kB compressed`);
  if (compressed > 200_000) throw new Error("the console is to load under 200 kB compressed; take something out");
}
