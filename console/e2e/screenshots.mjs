// Makes screenshots of each page, light and dark, for the documentation:
//   cargo build --package switchboard && node console/e2e/screenshots.mjs [target/debug/switchboard] [docs/screenshots] [PAGE]
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { serveModel } from "./model.mjs";
import { endAll, start } from "./programs.mjs";

const program = resolve(process.argv[2] ?? "target/debug/switchboard");
const out = resolve(process.argv[3] ?? "docs/screenshots");
mkdirSync(out, { recursive: true });
const home = mkdtempSync(join(tmpdir(), "console-"));
/** Only one page, for work on it. */
const only = process.argv[4];
const examples = join(dirname(fileURLToPath(import.meta.url)), "../../examples");
const model = await serveModel();

try {
  const config = join(home, "switchboard.toml");
  writeFileSync(config, `[models.demo]\nbase_url = "${model.url}"\n`);
  const url = await start(
    program,
    ["up", "--listen", "127.0.0.1:0", "--data-dir", join(home, "data"), "--config", config, "--examples", examples],
    "listening on ",
  );
  const operator = readFileSync(join(home, "data/operator.token"), "utf8").trim();
  process.env.CONSOLE_TEST = JSON.stringify({ url, operator });
  const { ask, browse, signedIn, visit } = await import("./browser.mjs");

  mkdirSync(join(home, "project"));
  void start(
    program,
    [
      "node",
      "--id",
      "laptop",
      "--workspace",
      join(home, "project"),
      "--gateway",
      `${url.replace("http", "ws")}/v1/nodes/ws`,
    ],
    "never",
  ).catch(() => {});
  const call = (tool, args) => ask(`/v1/tools/${tool}/call`, { method: "POST", body: { args } });
  for (let tries = 0; tries < 100 && !(await ask("/v1/nodes")).nodes.some(({ id }) => id === "laptop"); tries++)
    await new Promise((again) => setTimeout(again, 100));

  // Sample data: a working agent, messages of people, and a few failures.
  for (const text of ["Good morning", "The build is green", "Deploying 2.4.1 to staging", "Done, all checks pass"])
    await ask("/v1/channels/releases/messages", {
      method: "POST",
      body: { type: "message", payload: { id: crypto.randomUUID(), content: text } },
    });
  await ask("/v1/channels/lobby/messages", {
    method: "POST",
    body: { type: "message", payload: { id: crypto.randomUUID(), content: "hello" } },
  });
  await ask("/v1/sessions", {
    method: "POST",
    body: {
      message: "Remind me of the milk",
      context: {
        caller_id: "notes-app",
        caller_tools: [{ name: "send", description: "Sends a message", inputSchema: { type: "object" } }],
      },
    },
  });
  await ask("/v1/upstream", { method: "POST", body: { name: "weather", url: "http://127.0.0.1:9/mcp" } });
  await call("laptop__Bash", { command: "sleep 600", background: true });
  for (let second = 0; second < (only ? 3 : 14); second++) {
    for (let at = 0; at < 3 + ((second * 7) % 9); at++) await call("demo_echo", { text: `message ${second}.${at}` });
    await call("laptop__Bash", { command: "ls -la" });
    await call("laptop__Glob", { pattern: "**/*.md" });
    if (second % 4 === 1) await call("demo_countdown", { from: 0 });
    if (second % 5 === 2) await call("laptop__Read", { file_path: "missing.txt" });
    await new Promise((next) => setTimeout(next, 900));
  }
  void call("demo_countdown", { from: 60 });

  const shoot = async (open, name, prepare, options = {}) => {
    for (const scheme of ["light", "dark"]) {
      const page = await signedIn(open, { colorScheme: scheme, ...options });
      await prepare(page);
      await page.waitForTimeout(700);
      await page.screenshot({ path: join(out, `${name}-${scheme}.png`) });
      await page.context().close();
    }
  };
  const want = (name) => !only || name.includes(only);
  await browse(async (open) => {
    if (want("sign-in"))
      for (const scheme of ["light", "dark"]) {
        const page = await open({ colorScheme: scheme });
        await page.goto(`${url}/console/`);
        await page.getByRole("heading", { name: "Sign in" }).waitFor();
        await page.screenshot({ path: join(out, `sign-in-${scheme}.png`) });
      }
    if (want("overview")) await shoot(open, "overview", (page) => page.getByText("laptop").first().waitFor());
    if (want("tools"))
      await shoot(open, "tools", async (page) => {
        await visit(page, "tools/demo_countdown");
        await page.getByLabel("from").fill("12");
        await page.getByRole("button", { name: "Call", exact: true }).click();
        await page.getByText(/^\d+ to go/).waitFor();
      });
    if (want("calls"))
      await shoot(open, "calls", async (page) => {
        await visit(page, "calls");
        await page.locator(".item").nth(4).click();
      });
    if (want("upstream")) await shoot(open, "upstream", (page) => visit(page, "upstream"));
    if (want("nodes"))
      await shoot(open, "nodes", async (page) => {
        await visit(page, "nodes");
        await page.getByRole("button", { name: "Look" }).click();
        await page.getByText("sleep 600").first().waitFor();
      });
    if (want("sessions"))
      await shoot(open, "sessions", async (page) => {
        await visit(page, "sessions");
        await page.locator(".item").first().click();
      });
    if (want("channels")) await shoot(open, "channels", (page) => visit(page, "channels/releases"));
    if (want("plugins"))
      await shoot(open, "plugins", async (page) => {
        await visit(page, "plugins");
        await page.getByText("Settings").first().click();
      });
    if (want("chat"))
      await shoot(open, "chat", async (page) => {
        await visit(page, "chat");
        const say = async (text) => {
          await page.getByLabel("Message", { exact: true }).fill(text);
          await page.keyboard.press("Enter");
        };
        await say("Can you echo something for me?");
        await page.locator("strong", { hasText: "all" }).waitFor();
        await say("Make a checklist for my trip");
        await page.frameLocator("iframe").getByLabel("Passport").check();
      });
    if (want("narrow")) {
      const narrow = { viewport: { width: 320, height: 640 } };
      await shoot(open, "narrow-overview", async () => {}, narrow);
      await shoot(open, "narrow-tool", (page) => visit(page, "tools/demo_countdown"), narrow);
      await shoot(open, "narrow-calls", (page) => visit(page, "calls"), narrow);
    }
  });
} finally {
  model.close();
  await endAll();
  rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
}
