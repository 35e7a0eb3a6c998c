// Every mouse action is possible with the keyboard, and the focus is visible.
import { assert, browse, setup } from "./browser.mjs";

await browse(async (open) => {
  const page = await open();
  const focused = () =>
    page.evaluate(() => {
      const element = document.activeElement;
      const style = getComputedStyle(element);
      return {
        tag: element.tagName,
        text: element.textContent.trim().slice(0, 40),
        label: element.getAttribute("aria-label") ?? "",
        outline: style.outlineStyle !== "none" && style.outlineWidth !== "0px",
      };
    });
  /** Presses Tab until this element has the focus, which must be visible. */
  const tabTo = async (wanted) => {
    for (let steps = 0; steps < 60; steps++) {
      await page.keyboard.press("Tab");
      const now = await focused();
      if (wanted(now)) {
        assert.ok(now.outline, `the focus on ${JSON.stringify(now)} is not visible`);
        return;
      }
    }
    assert.fail(`no way there by Tab: ${wanted}`);
  };

  await page.goto(`${setup.url}/console/`);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await tabTo(({ tag }) => tag === "INPUT");
  await page.keyboard.type(setup.operator);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Overview" }).waitFor();

  await tabTo(({ text }) => text.startsWith("Tools"));
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Tools", exact: true }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("fill");
  await page.getByText(/^1 of/).waitFor();
  await tabTo(({ label }) => label === "Tools");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "forms_fill" }).waitFor();

  // An error moves the focus to its field, and shows the message.
  await tabTo(({ tag, text }) => tag === "BUTTON" && text === "Call");
  await page.keyboard.press("Enter");
  await page.getByText("title is required").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-invalid")), "true");
  await page.keyboard.type("Milk");
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "Result" }).getByText('"Milk"').waitFor();

  // The list of calls by arrow keys.
  await page.evaluate(() => document.activeElement.blur());
  await tabTo(({ text }) => text.startsWith("Calls"));
  await page.keyboard.press("Enter");
  await tabTo(({ label }) => label === "Calls");
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "Call" }).getByRole("heading", { name: "forms_fill" }).waitFor();
});
