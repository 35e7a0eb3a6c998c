// An MCP App of an upstream server beside the result of its tool, called by hand and by a model: it gets the call, may call its own
// server's tools for apps and no others, and reaches nothing of the console.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sandboxPage, sandboxPageHeaders } from "@switchboard/plugin-host/sandbox";
import { accessible, ask, assert, browse, fitsTheWindow, setup, signedIn, visit } from "./browser.mjs";
import { serveModel } from "./model.mjs";
import { endAll, start } from "./programs.mjs";

const model = await serveModel();
try {
  mkdirSync(setup.dir, { recursive: true });
  const config = join(setup.dir, "switchboard.toml");
  const command = JSON.stringify([process.execPath, fileURLToPath(new URL("app-server.mjs", import.meta.url))]);
  writeFileSync(config, `[models.demo]\nbase_url = "${model.url}"\n\n[upstream.dice]\ncommand = ${command}\n`);
  const data = join(setup.dir, "data");
  const args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data, "--config", config];
  setup.url = await start(setup.program, args, "listening on ");
  setup.operator = readFileSync(join(data, "operator.token"), "utf8").trim();

  await browse(async (open) => {
    // The page that apps are in is the one that belongs to these headers, and to no others.
    const sandbox = await fetch(`${setup.url}/console/sandbox.html`);
    for (const [name, value] of Object.entries(sandboxPageHeaders))
      assert.equal(sandbox.headers.get(name), value, name);
    assert.equal(sandbox.headers.get("x-frame-options"), null);
    assert.equal(await sandbox.text(), sandboxPage);

    const page = await signedIn(open);
    await visit(page, "tools/dice__roll");
    await page.getByLabel("sides").fill("6");
    await page.getByRole("button", { name: "Call", exact: true }).click();
    const outer = page.getByRole("region", { name: "The tool’s app" }).locator("iframe");
    const app = outer.contentFrame().frameLocator("iframe");
    await app.getByText("asked for 6").waitFor();
    await app.getByText("rolled 6", { exact: true }).waitFor();
    assert.ok(!(await outer.getAttribute("sandbox")).includes("allow-same-origin"));
    await app.getByRole("button", { name: "Again" }).click();
    await app.getByText("then rolled 100").waitFor();
    await app.getByText("refused:").waitFor();
    await app.getByText("SecurityError").waitFor();
    assert.equal((await ask("/v1/calls?tool=dice__roll")).calls.length, 2);
    assert.equal((await ask("/v1/calls?tool=dice__hidden")).calls.length, 0);
    await accessible(page, "a tool with an app");

    await visit(page, "chat");
    await page.getByLabel("Message", { exact: true }).fill("Roll the dice");
    await page.keyboard.press("Enter");
    await app.getByText("asked for 20").waitFor();
    await app.getByText("rolled 20", { exact: true }).waitFor();
    await page.setViewportSize({ width: 320, height: 640 });
    await fitsTheWindow(page, "an app in the chat");
  });
} finally {
  model.close();
  await endAll();
}
