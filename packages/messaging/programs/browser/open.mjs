// Opens an address in Chromium and tells what the page shows, line by line, until it is ended by SIGTERM.
import { chromium } from "playwright-core";

const [address, profile] = process.argv.slice(2);
const context = await chromium.launchPersistentContext(profile, {
  executablePath: "/usr/bin/chromium",
  // Tests may run as root, which Chromium's own sandbox refuses; the page is ours.
  chromiumSandbox: false,
});
process.once("SIGTERM", () => void context.close());
const [page] = context.pages();
page.on("console", (message) => console.error(`console: ${message.text()}`));
page.on("pageerror", (error) => console.error(`error: ${error}`));
await page.exposeFunction("told", (text) => console.log(text));
await page.addInitScript(() => {
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const node of addedNodes) if (node.nodeName === "LI") window.told(node.textContent);
  }).observe(document, { childList: true, subtree: true });
});
await page.goto(address);
