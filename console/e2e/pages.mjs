// Each page in light and dark mode, wide and at 320 pixels: no element overflows, axe has no serious finding, the
// layout does not shift after rendering, each part scrolls separately, and the page keeps its own policy.
import { accessible, assert, browse, fitsTheWindow, scrollsInPlace, setup, signedIn, visit } from "./browser.mjs";

await browse(async (open) => {
  for (const colorScheme of ["light", "dark"]) {
    for (const viewport of [
      { width: 1280, height: 800 },
      { width: 320, height: 640 },
    ]) {
      const page = await signedIn(open, { colorScheme, viewport });
      const dark = await page.evaluate(() => {
        const [red] = getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g).map(Number);
        return red < 128;
      });
      assert.equal(dark, colorScheme === "dark", "colours follow the system");
      await watchJumps(page);
      for (const [where, sign] of setup.pages) {
        const what = `${where} in ${colorScheme}, ${viewport.width} wide`;
        await visit(page, where);
        await page.getByText(sign, { exact: false }).locator("visible=true").first().waitFor();
        await holdsStill(page, what);
        await fitsTheWindow(page, what);
        await scrollsInPlace(page, what);
        await accessible(page, what);
      }
      await byHand(page, colorScheme, viewport);
      if (viewport.width === 320) {
        const menu = page.getByRole("button", { name: "Menu" });
        await menu.click();
        await fitsTheWindow(page, "the menu");
        await accessible(page, "the menu");
        await page.getByRole("link", { name: "Overview", exact: true }).click();
        assert.equal(await menu.getAttribute("aria-expanded"), "false");
      }
      await page.context().close();
    }
  }

  // The switch overrides the system's theme, and is remembered.
  const page = await signedIn(open, { colorScheme: "light" });
  await page.getByRole("button", { name: "Dark" }).click();
  await page.reload();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");

  // The layout does not shift when a page is loaded without any data either, however much arrives.
  for (const [where, sign] of setup.pages) {
    await page.goto(`${setup.url}/console/?${crypto.randomUUID()}#/${where}`);
    await page.getByText(sign, { exact: false }).locator("visible=true").first().waitFor();
    await watchJumps(page);
    await holdsStill(page, `${where}, loaded anew`);
  }
});

/** The chat without a model has no panes, and is as long as the form of the chosen tool. */
async function byHand(page, colorScheme, viewport) {
  const what = `a long form in the chat in ${colorScheme}, ${viewport.width} wide`;
  await visit(page, "chat");
  await page.getByLabel("Tool", { exact: true }).selectOption("forms_fill");
  await page.getByText("What it is about").waitFor();
  await fitsTheWindow(page, what);
  await scrollsInPlace(page, what);
  await accessible(page, what);
}

/** Records layout shifts without user input, from the start of the page. */
async function watchJumps(page) {
  await page.evaluate(() => {
    window.jumps = [];
    const box = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
    new PerformanceObserver((list) => {
      for (const { value, hadRecentInput, sources } of list.getEntries())
        if (!hadRecentInput)
          window.jumps.push({
            value,
            what: sources.map(
              ({ node, previousRect, currentRect }) =>
                `${node?.nodeName}.${node?.className ?? node?.textContent} ${box(previousRect)} to ${box(currentRect)}`,
            ),
          });
    }).observe({ type: "layout-shift", buffered: true });
  });
}

/** Asserts that the layout did not shift, by the browsers' measure; up to 0.1 counts as good. */
async function holdsStill(page, what) {
  const jumps = await page.evaluate(async () => {
    await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
    return window.jumps.splice(0);
  });
  const sum = jumps.reduce((all, { value }) => all + value, 0);
  if (process.env.CONSOLE_TALK) console.log(`${what}: ${sum}`, sum > 0.01 ? JSON.stringify(jumps) : "");
  assert.ok(sum < 0.1, `${what} jumps by ${sum}: ${JSON.stringify(jumps)}`);
}
