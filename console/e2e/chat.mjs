// A conversation with a model: its tool calls, its text as Markdown without HTML, a plugin's page next to its message,
// and the plugin's settings. It starts the other programs: a model's server, a plugin's server and the gateway.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { accessible, ask, assert, browse, fitsTheWindow, setup, signedIn, visit } from "./browser.mjs";
import { serveModel } from "./model.mjs";
import { endAll, start } from "./programs.mjs";

const examples = join(dirname(fileURLToPath(import.meta.url)), "../../examples");
const model = await serveModel();
try {
  const plugin = await start(process.execPath, [join(examples, "checklist/server.mjs"), "0"], "listening on ");
  mkdirSync(setup.dir, { recursive: true });
  const config = join(setup.dir, "switchboard.toml");
  writeFileSync(
    config,
    `[models.demo]\nbase_url = "${model.url}"\n\n[plugins]\nallow_private = ["${new URL(plugin).host}"]\n`,
  );
  const data = join(setup.dir, "data");
  setup.url = await start(
    setup.program,
    ["up", "--listen", "127.0.0.1:0", "--data-dir", data, "--config", config],
    "listening on ",
  );
  setup.operator = readFileSync(join(data, "operator.token"), "utf8").trim();

  await browse(async (open) => {
    const page = await signedIn(open);

    // A plugin is added by its address, and configured in its own form; a stored secret is not shown again.
    await visit(page, "plugins");
    await page.getByText("No plugins yet").waitFor();
    await page.getByLabel("Address of its manifest").fill(`${plugin}/manifest.json`);
    await page.getByRole("button", { name: "Add" }).click();
    const card = page.getByRole("region", { name: "Checklist" });
    await card.getByText("Settings").click();
    await card.getByLabel("Colour").selectOption("violet");
    assert.equal(await card.getByLabel("Sync token").getAttribute("type"), "password");
    await card.getByLabel("Sync token").fill("hunter2");
    assert.equal(
      await card.getByRole("link", { name: "grant it" }).getAttribute("href"),
      "https://en.wikipedia.org/wiki/Principle_of_least_privilege",
    );
    await card.getByRole("button", { name: "Save" }).click();
    await card.getByText("Saved.").waitFor();
    await page.reload();
    await card.getByText("Settings").click();
    assert.equal(await card.getByLabel("Sync token").inputValue(), "***");
    assert.equal(await card.getByLabel("Colour").inputValue(), "2");
    await accessible(page, "plugins");

    // A tool of the gateway.
    await visit(page, "chat");
    await page.getByLabel("Message", { exact: true }).fill("Please echo something");
    await page.keyboard.press("Enter");
    const log = page.getByRole("log", { name: "Conversation" });
    await log.getByText("demo_echo").click();
    await log.getByRole("region", { name: "Arguments" }).getByText("hello from the model").waitFor();
    await log.locator("strong", { hasText: "all" }).waitFor();
    const { calls } = await ask("/v1/calls?tool=demo_echo");
    assert.equal(calls[0].surface, "chat");
    await page.getByLabel("Message", { exact: true }).fill("<b>bold?</b>");
    await page.keyboard.press("Enter");
    await log.getByText("<img src=x onerror=alert(1)> is only text here.", { exact: false }).waitFor();
    assert.equal(await log.locator("img, b").count(), 0);

    // The page of a plugin, in a frame without our origin, next to its message.
    await page.getByLabel("Message", { exact: true }).fill("Make a checklist");
    await page.keyboard.press("Enter");
    const frame = page.frameLocator("iframe");
    await frame.getByRole("heading", { name: "For the trip" }).waitFor();
    assert.equal(await frame.getByLabel("Colour").inputValue(), "violet");
    assert.ok(!(await page.locator("iframe").getAttribute("sandbox")).includes("allow-top-navigation"));
    // The page does not get the secret that was set above.
    await log.getByText("The page asks to see a secret: Sync token").waitFor();
    await frame.getByLabel("Passport").check();
    await accessible(page, "chat");
    await frame.getByRole("button", { name: "I am done" }).click();
    await log
      .getByText(/"ticked":\["Passport"\]/)
      .first()
      .waitFor();
    await frame.getByRole("button", { name: "Leave a note" }).click();
    await log.getByText("1 of 3 done.").waitFor();
    // At the assistant's position, but not in its name.
    await log.getByText("Checklist, a plugin").waitFor();

    // The conversation survives a visit to another page and a reload, and so does the state of the plugin's page.
    await visit(page, "calls");
    await visit(page, "chat");
    await frame.getByLabel("Passport").waitFor();
    assert.ok(await frame.getByLabel("Passport").isChecked());
    await page.reload();
    await log.getByText("Make a checklist").waitFor();
    await frame.getByRole("heading", { name: "For the trip" }).waitFor();
    await frame.locator("input[type=checkbox]:checked").waitFor();
    assert.ok(await frame.getByLabel("Passport").isChecked());
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.locator("iframe").waitFor({ state: "detached" });
    assert.deepEqual(
      await page.evaluate(() => Object.keys(sessionStorage)),
      ["switchboard.session"],
      "nothing of it is left",
    );

    await page.setViewportSize({ width: 320, height: 640 });
    await fitsTheWindow(page, "chat");
    await page.getByLabel("Message", { exact: true }).fill("Make a checklist");
    await page.keyboard.press("Enter");
    await frame.getByRole("heading", { name: "For the trip" }).waitFor();
    assert.ok(
      await log.evaluate((box) => box.scrollWidth <= box.clientWidth),
      "the conversation is wider than the window",
    );
    await visit(page, "plugins");
    await card.waitFor();
    await fitsTheWindow(page, "plugins");
  });
} finally {
  model.close();
  await endAll();
}
