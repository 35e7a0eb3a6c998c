// An MCP App of an upstream server next to the result of its tool, called by hand and by a model. It gets the call, may
// call only its own server's tools for apps, opens links and sends messages with the user's permission, and cannot
// access the console.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sandboxPage, sandboxPageHeaders } from "@switchboard/plugin-host/sandbox";
import { accessible, ask, assert, browse, fitsTheWindow, setup, signedIn, visit } from "./browser.mjs";
import { serveModel } from "./model.mjs";
import { endAll, start } from "./programs.mjs";
import { serve } from "./site.mjs";

const model = await serveModel();
const elsewhere = await serve({
  "/there": `<p></p><script>document.querySelector("p").textContent = "opener: " + opener + ", referrer: " + (document.referrer || "none");</script>`,
});
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
    // The sandbox page of apps is served with exactly these headers.
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

    // A link opens with the user's permission, in a separate tab, and only if it is a web link.
    const dialog = page.getByRole("dialog");
    const wished = async (address) => {
      await app.getByLabel("Address").fill(address);
      await app.getByRole("button", { name: "Link" }).click();
    };
    await app.getByText("openLinks sandbox serverResources serverTools").waitFor();
    await wished("javascript:alert(1)");
    await app.getByText("refused: only https: and http:").waitFor();
    await wished(`${elsewhere.origin}/there?from=app`);
    const question = await dialog.innerText();
    for (const word of ["dice__roll", "dice", `${elsewhere.origin}/there?from=app`])
      assert.ok(question.includes(word), word);
    await accessible(page, "the question about a link");
    // A user who is typing answers "no" by default.
    await page.keyboard.press("Enter");
    await app.getByText("refused: Link opening denied by user").waitFor();
    await dialog.waitFor({ state: "detached" });
    await wished(`${elsewhere.origin}/there`);
    await dialog.waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await app.getByText("refused: Link opening denied by user").waitFor();
    await wished(`${elsewhere.origin}/there`);
    const opened = page.context().waitForEvent("page");
    await dialog.getByRole("link", { name: `Open ${elsewhere.host}` }).click();
    const tab = await opened;
    await tab.getByText("opener: null, referrer: none").waitFor();
    await tab.close();
    await app.getByText("granted").waitFor();
    // When its tool's page is closed, the app's question is removed.
    await wished(`${elsewhere.origin}/there`);
    await dialog.waitFor();
    await visit(page, "calls");
    await dialog.waitFor({ state: "detached" });

    await visit(page, "chat");
    await page.getByLabel("Message", { exact: true }).fill("Roll the dice");
    await page.keyboard.press("Enter");
    await app.getByText("asked for 20").waitFor();
    await app.getByText("rolled 20", { exact: true }).waitFor();
    // An app's message in the user's name is sent with the user's permission, and marked as the app's.
    await app.getByText("message openLinks").waitFor();
    const log = page.getByRole("log", { name: "Conversation" });
    const say = async (words) => {
      await app.getByLabel("Words").fill(words);
      await app.getByRole("button", { name: "Say" }).click();
    };
    await say("");
    await app.getByText("refused: The message is empty.").waitFor();
    await say("Send me all the <b>money</b>");
    await dialog.getByText("Send me all the <b>money</b>").waitFor();
    await dialog.getByRole("button", { name: "Do not send it" }).click();
    await app.getByText("refused: Message sending denied").waitFor();
    assert.equal(await log.getByText("money").count(), 0);
    await say("Thank you");
    await dialog.getByRole("button", { name: "Send it", exact: true }).click();
    await log.getByText("The app of dice__roll, with your yes").waitFor();
    await log.getByText("You said “Thank you”", { exact: false }).waitFor();

    await page.setViewportSize({ width: 320, height: 640 });
    await fitsTheWindow(page, "an app in the chat");
  });
} finally {
  model.close();
  elsewhere.close();
  await endAll();
}
