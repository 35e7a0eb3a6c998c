// Shared code of all scripts: a browser, a page that must not violate its own policy, and assertions.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

/** The gateway under test, as the Rust test describes it. */
export const setup = JSON.parse(process.env.CONSOLE_TEST ?? "{}");

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * Runs a script in its own browser; a policy violation or a failed assertion ends it with the reason. `expected` lists
 * the expected violations.
 */
export async function browse(script, expected = []) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  const offences = [];
  const open = async (options = {}) => {
    const context = await browser.newContext({
      viewport: { width: 1280, height: 800 },
      reducedMotion: "reduce",
      ...options,
    });
    context.setDefaultTimeout(20_000);
    const page = await context.newPage();
    await page.addInitScript(() =>
      addEventListener("securitypolicyviolation", (event) =>
        console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`),
      ),
    );
    page.on("pageerror", (error) => offences.push(`error: ${error.stack ?? error}`));
    page.on("console", (message) => {
      const broken = /CSP:|Content Security Policy|TrustedHTML|Trusted Type/.test(message.text());
      if (broken && !expected.some((known) => known.test(message.text()))) offences.push(message.text());
      if (process.env.CONSOLE_TALK) console.log(`[page] ${message.text()}`);
    });
    if (process.env.CONSOLE_DIST) await fromDisk(page, process.env.CONSOLE_DIST);
    return page;
  };
  try {
    await script(open);
    assert.deepEqual(offences, []);
  } catch (error) {
    const pages = browser.contexts().flatMap((context) => context.pages());
    const shown = await Promise.all(
      pages.map((page) =>
        page
          .locator("body")
          .innerText({ timeout: 1_000 })
          .catch(() => ""),
      ),
    );
    for (const frame of pages.flatMap((page) => page.frames().slice(1)))
      shown.push(
        `${frame.url()}: ${await frame
          .locator("body")
          .innerText({ timeout: 1_000 })
          .catch(() => "")}`,
      );
    if (process.env.CONSOLE_SHOT) await pages.at(-1)?.screenshot({ path: process.env.CONSOLE_SHOT });
    throw new Error(
      `${error.stack ?? error}\nOffences: ${offences.join("\n")}\nOn the pages:\n${shown.join("\n---\n")}`,
    );
  } finally {
    await browser.close();
  }
}

/** For development of the console: its files from the disk, under the policy of the running gateway. */
async function fromDisk(page, dist) {
  await page.route(
    (url) => url.pathname.startsWith("/console/"),
    async (route) => {
      const path = new URL(route.request().url()).pathname.replace("/console/", "") || "index.html";
      const type = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" }[
        path.split(".").pop()
      ];
      const policy = path === "index.html" ? (await route.fetch()).headers()["content-security-policy"] : undefined;
      const headers = { "content-type": type, ...(policy ? { "content-security-policy": policy } : {}) };
      await route.fulfill({ headers, body: readFileSync(`${dist}/${path}`) });
    },
  );
}

/** Signs in with the operator's token, as a user who pastes it. */
export async function signedIn(open, options) {
  const page = await open(options);
  await page.goto(`${setup.url}/console/`);
  await page.getByLabel("Or by an operator’s token").fill(setup.operator);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  return page;
}

export async function visit(page, name) {
  await page.evaluate((target) => {
    location.hash = target;
  }, `#/${name}`);
}

/** Asserts that no element overflows the window. */
export async function fitsTheWindow(page, what) {
  const over = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("body *")]
      .filter((element) => element.getBoundingClientRect().right > width + 1)
      .map((element) => `${element.tagName}.${element.className}`);
  });
  assert.deepEqual(over, [], `${what} is wider than the window`);
}

/**
 * Asserts that each part scrolls separately: panes in the page, a long page in the window, while the menu stays in
 * view.
 */
export async function scrollsInPlace(page, what) {
  const found = await page.evaluate(() => {
    const root = document.scrollingElement;
    const before = root.scrollTop;
    root.scrollTop = root.scrollHeight;
    const { top } = document.querySelector(".side").getBoundingClientRect();
    const { height } = document.querySelector(".app").getBoundingClientRect();
    root.scrollTop = before;
    return {
      top,
      panes: document.querySelector(".split, .chat") !== null,
      scrolls: root.scrollHeight - innerHeight,
      beyond: root.scrollHeight - Math.max(innerHeight, Math.ceil(height)),
    };
  });
  assert.ok(found.beyond <= 0, `the window scrolls ${found.beyond} pixels beyond the end of ${what}`);
  assert.ok(!found.panes || found.scrolls <= 0, `${what} has panes, and the window scrolls ${found.scrolls} pixels`);
  // A page may end between two pixels.
  assert.ok(Math.abs(found.top) < 1, `the menu leaves with ${what}: ${found.top}`);
}

/**
 * Asserts that axe has no serious finding. The debugger injects axe, because the page's policy does not apply to it.
 */
export async function accessible(page, what) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axeSource });
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    expression: `axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => JSON.stringify(violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => ({ id, nodes: nodes.slice(0, 4).map(({ html, failureSummary }) => html + " " + failureSummary) }))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  await session.detach();
  assert.equal(exceptionDetails, undefined, `${what}: ${JSON.stringify(exceptionDetails)}`);
  assert.deepEqual(JSON.parse(result.value), [], what);
}

/** Returns the gateway's answer to a call. */
export async function ask(path, options = {}) {
  const response = await fetch(`${setup.url}${path}`, {
    ...options,
    headers: { authorization: `Bearer ${setup.operator}`, "content-type": "application/json" },
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
  });
  return response.status === 204 ? undefined : response.json();
}

export { assert };
