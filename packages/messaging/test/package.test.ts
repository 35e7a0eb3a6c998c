// The installed package: its size in a web page, its types for old compiler settings, and both versions of zod.
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "vite";
import { expect, test } from "vitest";
import { PlainServer } from "./server.js";

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

/** The packages under which the tests have each version of zod. */
const ZODS = ["zod", "zod-3"];

test("the version 3 that is tested is the minimum", async () => {
  const { peerDependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  expect(peerDependencies.zod).toBe(`^${require("zod-3/package.json").version} || ^4.0.0`);
});

test.each(ZODS)(
  "with %s as the only zod, types are found under node10 and a program runs",
  async (zod) => {
    const dir = await mkdtemp(join(tmpdir(), "messaging-"));
    const server = await PlainServer.start();
    try {
      await install(dir, zod);
      await writeFile(join(dir, "program.ts"), PROGRAM);
      await cp(join(root, "programs/quick-start.ts"), join(dir, "quick-start.ts"));
      const tsc = (...args: string[]) =>
        run(process.execPath, [require.resolve("typescript-5/bin/tsc"), ...args], { cwd: dir });
      // zod's own types need esModuleInterop. All types of libraries are checked once, because it takes long.
      const options = ["--strict", "--esModuleInterop", "--target", "es2022", "--lib", "es2022,dom"];
      const node = ["--types", "node", "--typeRoots", join(root, "../../node_modules/@types")];
      for (const more of [
        ["program.ts", "--noEmit", "--module", "commonjs"],
        ["quick-start.ts", "--module", "esnext", "--skipLibCheck", ...node],
      ]) {
        const checked = tsc(...options, "--moduleResolution", "node10", ...more);
        await checked.catch((error: { stdout?: string }) => expect.fail(String(error.stdout)));
      }
      const env = { ...process.env, SERVER_URL: server.url, WORKER_TOKEN: "worker", AGENT_TOKEN: "agent" };
      const { stdout } = await run(process.execPath, ["quick-start.js"], { cwd: dir, env });
      expect(stdout).toBe("Hello, world!\n");
    } finally {
      await server.stop();
      await rm(dir, { recursive: true });
    }
  },
  120_000,
);

/** Makes a project as npm would. Dependencies are copied, because a link would lead to the zod of the repository. */
async function install(dir: string, zod: string): Promise<void> {
  const modules = join(dir, "node_modules");
  const installed = join(modules, "@switchboard/messaging");
  await mkdir(installed, { recursive: true });
  await writeFile(join(dir, "package.json"), '{ "type": "module" }');
  await cp(join(root, "package.json"), join(installed, "package.json"));
  const found = { zod, "zod-to-json-schema": "zod-to-json-schema", ws: "ws" };
  for (const [name, source] of Object.entries(found))
    await cp(join(root, "../../node_modules", source), join(modules, name), { recursive: true });
  await run(join(root, "../../node_modules/.bin/tsc"), [
    ...["--project", join(root, "tsconfig.build.json"), "--outDir", join(installed, "dist")],
  ]);
}
