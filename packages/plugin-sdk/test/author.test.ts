// A plugin with the package names of its hosts' documentation compiles and runs when those names resolve to this
// package.
// The parts without React work if React is not installed.
// @vitest-environment node

import { execFile } from "node:child_process";
import { access, cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";

const run = promisify(execFile);
const sdk = fileURLToPath(new URL("..", import.meta.url));
const modules = join(sdk, "../../node_modules");
let project: string;

beforeEach(async () => {
  project = await mkdtemp(join(tmpdir(), "plugin-author-"));
  await writeFile(join(project, "package.json"), '{"type":"module"}');
});

afterEach(() => rm(project, { recursive: true, force: true }));

/** Installs the published files, as `npm install NAME@npm:@switchboard/plugin-sdk` does. */
async function installAs(name: string): Promise<void> {
  const place = join(project, "node_modules", name);
  await cp(join(sdk, "dist"), join(place, "dist"), { recursive: true });
  await cp(join(sdk, "package.json"), join(place, "package.json"));
}

async function install(...names: string[]): Promise<void> {
  for (const name of names) {
    const place = join(project, "node_modules", name);
    await mkdir(dirname(place), { recursive: true });
    await symlink(join(modules, name), place);
  }
}

test("the documentation's programs compile strictly, and the server answers", async () => {
  await installAs("@sperax/plugin-sdk");
  await installAs("@sperax/chat-plugins-gateway");
  await install("zod", "react", "react-dom", "@types/react", "@types/react-dom", "csstype");
  await cp(join(sdk, "test/author"), join(project, "src"), { recursive: true });
  const compilerOptions = {
    target: "ES2022",
    module: "NodeNext",
    lib: ["ES2023", "DOM", "DOM.Iterable"],
    jsx: "react-jsx",
    strict: true,
    types: [],
    outDir: "out",
    rootDir: "src",
  };
  await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["src"] }));
  const compiler = await run(process.execPath, [join(modules, "typescript/bin/tsc"), "--project", project]).catch(
    (error) => error,
  );
  expect(compiler.stdout).toBe("");
  const program = `
    import handle from "./out/server.js";
    import { POST, api } from "./out/gateway.js";
    const ask = (headers) => handle(new Request("http://x/", { method: "POST", headers, body: '{"query":"hi"}' }));
    const answers = [await ask({}), await ask({ "Sperax-Plugin-Settings": '{"apiKey":"four"}' })];
    console.log(JSON.stringify([answers[0].status, await answers[1].json(), typeof POST, typeof api]));`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: project });
  expect(JSON.parse(stdout)).toEqual([400, { answer: "HI", signedWith: 4 }, "function", "function"]);
}, 60_000);

test("the programs compile under moduleResolution node10", async () => {
  await installAs("@sperax/plugin-sdk");
  await installAs("@sperax/chat-plugins-gateway");
  await install("zod", "react", "react-dom", "@types/react", "@types/react-dom", "csstype");
  await cp(join(sdk, "test/author"), join(project, "src"), { recursive: true });
  for (const module of ["CommonJS", "ESNext"]) {
    const compilerOptions = {
      target: "ES2022",
      module,
      moduleResolution: "node10",
      // Under this resolution, TypeScript takes React for a module with one export.
      esModuleInterop: true,
      lib: ["ES2023", "DOM", "DOM.Iterable"],
      jsx: "react-jsx",
      strict: true,
      noEmit: true,
      types: [],
    };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["src"] }));
    const compiler = join(modules, "typescript-5/bin/tsc");
    const compiled = await run(process.execPath, [compiler, "--project", project]).catch((error) => error);
    expect(compiled.stdout, module).toBe("");
  }
}, 120_000);

test("old resolution finds every entry without the field exports", async () => {
  const { main, types, typesVersions, exports } = JSON.parse(await readFile(join(sdk, "package.json"), "utf8"));
  expect({ types, default: main }).toEqual(exports["."]);
  const entries = Object.entries<{ types: string }>(exports).filter(([name]) => name !== ".");
  const expected = entries.map(([name, entry]) => [name.replace("./", ""), [entry.types]]);
  expect(typesVersions["*"]).toEqual(Object.fromEntries(expected));
  for (const file of [main, types, ...expected.flatMap(([, files]) => files)]) await access(join(sdk, file));
});

test("without React the client works and its hooks say what is missing", async () => {
  await installAs("@sperax/plugin-sdk");
  const program = `
    import { speraxOS, usePluginState } from "@sperax/plugin-sdk/client";
    const getter = await speraxOS.getPluginMessage().catch((error) => error.code);
    await new Promise((resolve) => setImmediate(resolve));
    let hook;
    try { usePluginState("a", 1) } catch (error) { hook = error.message }
    console.log(JSON.stringify([getter, hook]));`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: project });
  expect(JSON.parse(stdout)).toEqual(["no-window", expect.stringContaining("install the package react")]);
});
