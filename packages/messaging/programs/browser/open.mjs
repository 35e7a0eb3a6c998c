// Opens an address in Chromium and prints the page's text line by line, until SIGTERM.
import { chromium } from "playwright-core";

const [address, profile] = process.argv.slice(2);
const context = await chromium.launchPersistentContext(profile, {
  executablePath: "/usr/bin/chromium",
  // Tests may run as root, and Chromium's own sandbox refuses that. The page is trusted.
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
