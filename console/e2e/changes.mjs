// A tool with a changed definition: the overview shows the change, and one click accepts it.
import { accessible, ask, assert, browse, fitsTheWindow, setup, signedIn } from "./browser.mjs";

await browse(async (open) => {
  const page = await signedIn(open);
  const change = page.getByRole("region", { name: "A change of notes_read" });
  await change.locator("del", { hasText: "Reads a note." }).waitFor();
  await change.locator("ins", { hasText: "Sends <b>it</b>." }).waitFor();
  await change.getByText("Calls of it fail until you accept the change.").waitFor();
  await accessible(page, "a tool that has changed");
  await fitsTheWindow(page, "a tool that has changed");
  if (setup.shot) await page.screenshot({ path: setup.shot });
  await change.getByRole("button", { name: "Accept" }).click();
  await change.waitFor({ state: "detached" });
  assert.deepEqual((await ask("/v1/tool-changes")).changes, []);
});
