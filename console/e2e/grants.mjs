// A plugin's page sees a secret setting only with the user's grant: for this plugin, this origin and this manifest,
// until it is revoked. The gateway's stored secrets are never shown, whatever is granted.
import { accessible, ask, assert, browse, fitsTheWindow, signedIn, visit } from "./browser.mjs";
import { endAll } from "./programs.mjs";
import { gateway, json, serve } from "./site.mjs";

const STORED = "stored-5f0c71";
const TYPED = "typed-81aa0e";

/** A page that records every message, and requests its settings on command. */
const PAGE = `<!doctype html><title>Vault</title><h1>Vault</h1><pre id="seen"></pre>
<button id="ask">Ask</button><button id="set">Set</button><button id="echo">Echo</button>
<script>
  let last = {};
  const seen = document.getElementById("seen");
  addEventListener("message", ({ data }) => {
    if (data.type === "speraxos:render-plugin-settings") last = data.value;
    const said = data.settings ?? data.value;
    if (said) seen.textContent += JSON.stringify(said) + "\\n";
  });
  const tell = (channel, body = {}) => parent.postMessage({ type: "speraxos:" + channel, ...body }, "*");
  document.getElementById("ask").onclick = () => tell("fetch-plugin-settings");
  document.getElementById("set").onclick = () => tell("update-plugin-settings", { value: { theme: "dark", apiKey: "by-the-page" } });
  document.getElementById("echo").onclick = () => tell("update-plugin-settings", { value: { ...last, theme: "blue" } });
  tell("plugin-ready-for-render");
</script>`;

const api = [{ name: "open", description: "Opens it.", parameters: { type: "object", properties: {} } }];
const settings = {
  type: "object",
  properties: {
    theme: { type: "string" },
    apiKey: { title: "API key", description: "From https://keys.example/me", type: "string", format: "password" },
  },
};
const other = await serve({ "/page": PAGE });
const site = await serve({ "/page": PAGE });
const manifest = { identifier: "vault", type: "standalone", meta: { title: "Vault" }, api, settings };
manifest.ui = { url: `${site.origin}/page`, height: 300 };
site.pages["/manifest.json"] = (...both) => json(manifest)(...both);

/** Opens the plugin's page by hand, and waits for its first message. */
async function open(page) {
  await visit(page, "overview");
  await visit(page, "chat");
  await page.getByLabel("Tool", { exact: true }).selectOption("vault__open");
  await page.getByRole("button", { name: "Open", exact: true }).click();
  const frame = page.frameLocator("iframe");
  await frame.getByText('{"theme":"light"').first().waitFor();
  return frame;
}

try {
  await gateway([site.host, other.host]);
  await ask("/v1/plugins", { method: "POST", body: { url: `${site.origin}/manifest.json` } });
  const path = "/v1/plugins/vault/settings";
  await ask(path, { method: "PUT", body: { settings: { theme: "light", apiKey: STORED } } });
  const stored = async () => (await ask(path)).settings;

  await browse(async (openPage) => {
    const page = await signedIn(openPage);
    let frame = await open(page);
    const seen = () => frame.locator("#seen").innerText();
    const dialog = page.getByRole("dialog");

    // The answer has no secret, and no dialog opens by itself.
    await frame.getByRole("button", { name: "Ask" }).click();
    const asks = page.getByText("The page asks to see a secret: API key");
    await asks.waitFor();
    assert.equal(await dialog.count(), 0);
    assert.doesNotMatch(await seen(), /apiKey|\*\*\*/);

    // The question names the plugin, its origin and the field in the user's words.
    await page.getByRole("button", { name: "Decide…" }).click();
    const question = await dialog.innerText();
    for (const word of ["Vault", site.origin, "API key", "stores it encrypted"])
      assert.ok(question.includes(word), `${word}: ${question}`);
    assert.equal(await page.evaluate(() => document.activeElement.type), "password");
    await accessible(page, "the question about a secret");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await asks.waitFor();
    await page.getByRole("button", { name: "Decide…" }).click();
    await dialog.getByRole("button", { name: "Let the page see it" }).click();
    await dialog.getByText("is empty").waitFor();
    await dialog.getByLabel("API key").fill(TYPED);
    await page.setViewportSize({ width: 320, height: 640 });
    await fitsTheWindow(page, "the question about a secret");
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.keyboard.press("Enter");
    await frame.getByText(`"apiKey":"${TYPED}"`).first().waitFor();
    assert.doesNotMatch(await seen(), new RegExp(`${STORED}|\\*\\*\\*`));

    // A page that sends all settings back changes only the changed ones; the user is not asked.
    await frame.getByRole("button", { name: "Echo" }).click();
    await frame.getByRole("button", { name: "Ask" }).click();
    await frame.getByText('{"theme":"blue"').first().waitFor();
    assert.deepEqual(await stored(), { theme: "blue", apiKey: "***" });
    assert.equal(await page.getByRole("button", { name: "Decide…" }).count(), 0);
    await ask(path, { method: "PUT", body: { settings: { theme: "light", apiKey: "***" } } });

    // The grant is remembered for the next view and after a reload, and applies to the first answer there.
    await page.reload();
    await page.getByRole("heading", { name: "Chat" }).waitFor();
    frame = await open(page);
    await frame.getByText(`"apiKey":"${TYPED}"`).first().waitFor();
    // The typed value is only in this tab.
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie + location.href);
    assert.ok(!kept.includes(TYPED));

    // It is revoked on the plugins page, and the page starts again without it.
    await visit(page, "plugins");
    const card = page.getByRole("region", { name: "Vault" });
    await card.getByText(`at ${site.origin}`).waitFor();
    await accessible(page, "what was granted");
    await card.getByRole("button", { name: "Revoke" }).click();
    await card.getByRole("button", { name: "Revoke" }).waitFor({ state: "detached" });
    frame = await open(page);
    await frame.getByRole("button", { name: "Ask" }).click();
    await asks.waitFor();
    assert.doesNotMatch(await seen(), /apiKey/);

    // A refusal is also remembered, and can be changed.
    await page.getByRole("button", { name: "Decide…" }).click();
    await dialog.getByRole("button", { name: "Refuse" }).click();
    await page.getByText("Not given to the page: API key").waitFor();
    frame = await open(page);
    await frame.getByRole("button", { name: "Ask" }).click();
    await page.getByText("Not given to the page: API key").waitFor();
    assert.equal(await asks.count(), 0, "nobody is asked again");
    await page.getByRole("button", { name: "Change…" }).click();
    await dialog.getByLabel("API key").fill(TYPED);
    await dialog.getByRole("button", { name: "Let the page see it" }).click();
    await frame.getByText(`"apiKey":"${TYPED}"`).first().waitFor();
    // It can also be revoked next to the page.
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.waitForFunction(() => document.querySelectorAll("iframe").length === 1);
    await frame.getByText('{"theme":"light"').first().waitFor();
    assert.doesNotMatch(await seen(), /apiKey/);

    // Changing a secret needs a separate permission, which does not permit reading it.
    await frame.getByRole("button", { name: "Set" }).click();
    await page.getByText("The page wants to change a secret: API key").waitFor();
    assert.deepEqual(await stored(), { theme: "dark", apiKey: "***" });
    await page.getByRole("button", { name: "Decide…" }).click();
    await dialog.getByRole("button", { name: "Let it change this" }).click();
    await dialog.waitFor({ state: "detached" });
    await frame.getByRole("button", { name: "Ask" }).click();
    await asks.waitFor();
    assert.doesNotMatch(await seen(), /apiKey/);
    await ask(path, { method: "PUT", body: { settings: { theme: "light", apiKey: "***" } } });

    // A grant applies to one origin and one manifest: the same plugin from another origin gets nothing.
    await page.getByRole("button", { name: "Decide…" }).click();
    await dialog.getByLabel("API key").fill(TYPED);
    await dialog.getByRole("button", { name: "Let the page see it" }).click();
    await frame.getByText(TYPED).first().waitFor();
    manifest.ui.url = `${other.origin}/page`;
    await ask("/v1/plugins", { method: "POST", body: { url: `${site.origin}/manifest.json`, replace: true } });
    await page.waitForFunction((origin) => document.querySelector("iframe")?.src.startsWith(origin), other.origin);
    await frame.getByText('{"theme":"light"').first().waitFor();
    await frame.getByRole("button", { name: "Ask" }).click();
    await asks.waitFor();
    assert.doesNotMatch(await seen(), /apiKey/);
    manifest.ui.url = `${site.origin}/page`;
    manifest.settings.properties.endpoint = { type: "string" };
    await ask("/v1/plugins", { method: "POST", body: { url: `${site.origin}/manifest.json`, replace: true } });
    await page.waitForFunction((origin) => document.querySelector("iframe")?.src.startsWith(origin), site.origin);
    await frame.getByText('{"theme":"light"').first().waitFor();
    await frame.getByRole("button", { name: "Ask" }).click();
    await asks.waitFor();
    assert.doesNotMatch(await seen(), /apiKey/);

    // Signing out ends every grant.
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    assert.ok(!(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).includes(TYPED));
  });
  // No answer of the gateway has the secret, and the typed value was never sent to it.
  for (const where of [path, "/v1/plugins", "/v1/audit", "/v1/calls"]) {
    const said = JSON.stringify(await ask(where));
    assert.ok(!said.includes(STORED) && !said.includes(TYPED), where);
  }
} finally {
  site.close();
  other.close();
  await endAll();
}
