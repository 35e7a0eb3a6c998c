// The program in the README is compiled and run.
import { readFile } from "node:fs/promises";
import { afterEach, expect, test, vi } from "vitest";
import { serve } from "./support.js";

const file = (name: string) => readFile(new URL(`../${name}`, import.meta.url), "utf8");

afterEach(() => vi.unstubAllEnvs());

test("the README shows the program as it is", async () => {
  const [readme, program] = await Promise.all([file("README.md"), file("programs/quick-start.ts")]);
  expect(readme).toContain(`\`\`\`ts\n${program}\`\`\``);
});

test("the program does what the README says", async () => {
  const server = await serve();
  vi.stubEnv("SERVER_URL", server.url);
  vi.stubEnv("WORKER_TOKEN", "worker");
  vi.stubEnv("AGENT_TOKEN", "agent");
  const log = vi.spyOn(console, "log").mockImplementation(() => {});
  await import("../programs/quick-start.js");
  expect(log.mock.calls).toEqual([["Hello, world!"]]);
  log.mockRestore();
});

test("everything that the package exports has a place in the README", async () => {
  const exported = Object.keys(await import("../src/index.js"));
  const readme = await file("README.md");
  const named = exported.filter((name) => name !== "MethodResultWithAttachments");
  for (const name of named) expect(readme).toContain(name);
});
