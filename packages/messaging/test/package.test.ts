// The installed package: its size in a web page, and its types for old compiler settings.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "vite";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const require = createRequire(import.meta.url);
const run = promisify(execFile);

test("in a web page it has at most 40 kB, compressed and without zod", async () => {
  const bundled = await build({
    configFile: false,
    logLevel: "warn",
    root,
    build: {
      write: false,
      minify: true,
      target: "es2022",
      lib: { entry: "src/index.ts", formats: ["es"] },
      rollupOptions: { external: /^zod(\/|$)/ },
    },
  });
  const outputs = (Array.isArray(bundled) ? bundled : [bundled]) as { output: { type: string; code?: string }[] }[];
  const code = outputs.flatMap(({ output }) => output).map((chunk) => chunk.code ?? "");
  const bytes = gzipSync(code.join("")).byteLength;
  expect(bytes).toBeGreaterThan(5_000);
  expect(bytes).toBeLessThanOrEqual(40_000);
});

const PROGRAM = `
import { connect, type AgenticClient } from "@switchboard/messaging";
import { z } from "zod";
export const client: Promise<AgenticClient> = connect({
  serverUrl: "ws://x", token: "t", channel: "c", handle: "h", name: "n", type: "agent",
  methods: { greet: { parameters: z.object({ name: z.string() }), execute: async ({ name }) => name.length } },
});
// @ts-expect-error The types are there: a client needs more than this.
connect({ serverUrl: "ws://x" });
`;

test("its types are found under moduleResolution node10", async () => {
  const dir = await mkdtemp(join(tmpdir(), "messaging-"));
  try {
    // As npm would install it: compiled, with its package.json.
    const installed = join(dir, "node_modules/@switchboard/messaging");
    await mkdir(installed, { recursive: true });
    await mkdir(join(dir, "node_modules"), { recursive: true });
    await symlink(join(root, "package.json"), join(installed, "package.json"));
    const zod = fileURLToPath(new URL(".", import.meta.resolve("zod/package.json")));
    await symlink(zod, join(dir, "node_modules/zod"));
    const tsc = (compiler: string, ...args: string[]) => run(process.execPath, [require.resolve(compiler), ...args]);
    await run(join(root, "../../node_modules/.bin/tsc"), [
      ...["--project", join(root, "tsconfig.build.json"), "--outDir", join(installed, "dist")],
    ]);
    await writeFile(join(dir, "program.ts"), PROGRAM);
    // zod's own types need esModuleInterop. All types of libraries are checked once, because it takes long.
    for (const module of [["commonjs"], ["esnext", "--skipLibCheck"]]) {
      const options = ["--noEmit", "--strict", "--esModuleInterop", "--target", "es2022", "--lib", "es2022,dom"];
      const resolution = ["--moduleResolution", "node10", "--module", ...module];
      const checked = tsc("typescript-5/bin/tsc", ...options, ...resolution, join(dir, "program.ts"));
      await checked.catch((error: { stdout?: string }) => expect.fail(String(error.stdout)));
    }
  } finally {
    await rm(dir, { recursive: true });
  }
}, 120_000);
