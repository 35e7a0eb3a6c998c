// From the gateway's printed link to the first call of a tool, and the rules of signing in.
import { accessible, ask, assert, browse, setup } from "./browser.mjs";

await browse(async (open) => {
  const page = await open();
  await page.goto(setup.link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.ok(!page.url().includes("code"), "the code is out of the address");
  assert.deepEqual(await page.context().cookies(), [], "there are no cookies");

  await page.getByRole("link", { name: "Tools" }).first().click();
  await page.getByRole("option", { name: /demo_echo/ }).click();
  await page.getByLabel("text").fill("<b>hello</b>\u202e \u001b[31m");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  const result = page.getByRole("region", { name: "Result" });
  await result.waitFor();
  // External text is shown as text, and invisible control characters are shown.
  assert.match(await result.innerText(), /<b>hello<\/b>\\u\{202e\} \\u001b\[31m/);
  await page.getByText("Done").waitFor();

  await page.reload();
  await page.getByRole("heading", { name: "demo_echo" }).waitFor();

  // The code works once.
  const other = await open();
  await other.goto(setup.link);
  await other
    .getByText("The sign-in link was already used", { exact: false })
    .or(other.getByText("the sign-in link was already used", { exact: false }))
    .waitFor();
  await accessible(other, "sign-in");
  assert.equal(await other.getByRole("heading", { name: "Overview" }).count(), 0);
  await other.getByLabel("Or by an operator’s token").fill("sb_wrong");
  await other.getByRole("button", { name: "Sign in" }).click();
  await other.getByRole("alert").waitFor();

  // Signing out ends the token, not only the tab.
  const token = await page.evaluate(() => JSON.parse(sessionStorage.getItem("switchboard.session")).token);
  assert.notEqual(token, setup.operator);
  const status = async () =>
    (await fetch(`${setup.url}/v1/tools`, { headers: { authorization: `Bearer ${token}` } })).status;
  assert.equal(await status(), 200);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  assert.equal(await status(), 401);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);

  // A session that an operator revokes also ends on the page.
  await page.getByLabel("Or by an operator’s token").fill(setup.operator);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "demo_echo" }).waitFor();
  const { tokens } = await ask("/v1/tokens");
  const session = tokens.find(({ name, revoked_ms }) => name === "console" && revoked_ms === undefined);
  await ask(`/v1/tokens/${session.id}`, { method: "DELETE" });
  await page.getByText("Your session has ended.").waitFor();
});
