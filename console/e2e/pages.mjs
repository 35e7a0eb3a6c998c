// Each page in light and dark, wide and 320 pixels narrow: nothing hangs over the edge, axe has no serious finding, nothing
// moves after it was drawn, and the page keeps its own policy.
import { accessible, assert, browse, fitsTheWindow, setup, signedIn, visit } from "./browser.mjs";

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
      for (const [where, sign] of setup.pages) {
        const what = `${where} in ${colorScheme}, ${viewport.width} wide`;
        await visit(page, where);
        await page.getByText(sign, { exact: false }).locator("visible=true").first().waitFor();
        await fitsTheWindow(page, what);
        await accessible(page, what);
      }
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

  // The switch outranks the system, and is remembered.
  const page = await signedIn(open, { colorScheme: "light" });
  await page.getByRole("button", { name: "Dark" }).click();
  await page.reload();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");

  // Nothing on the overview moves once it is there, however much arrives.
  const shift = await page.evaluate(
    () =>
      new Promise((done) => {
        let sum = 0;
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
        }).observe({ type: "layout-shift", buffered: true });
        requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
      }),
  );
  assert.ok(shift < 0.1, `the layout jumps: ${shift}`);
});
