// A hostile plugin author and a hostile website: their pages, manifests and texts get no settings, no session and no
// access to the console, and their content is shown as text.
import { accessible, ask, assert, browse, fitsTheWindow, setup, signedIn, visit } from "./browser.mjs";
import { endAll } from "./programs.mjs";
import { gateway, json, serve } from "./site.mjs";

const SECRET = "canary-3be1";
const BIDI = "\u202egpj.exe\u2066\u200b";
const HTML = `<img src=x onerror="alert(1)"><script>alert(2)</script>`;

/** Requests everything from the page above it, under both prefixes, and records the answers. */
const GREEDY = `
  window.got = [];
  addEventListener("message", (event) => window.got.push(JSON.stringify(event.data)));
  window.greed = () => {
    for (const target of new Set([parent, top, opener, opener?.parent].filter((target) => target && target !== window)))
      for (const prefix of ["speraxos", "lobe-chat"]) {
        for (const channel of ["plugin-ready-for-render", "fetch-plugin-message", "fetch-plugin-settings"])
          target.postMessage({ type: prefix + ":" + channel }, "*");
        target.postMessage({ type: prefix + ":fetch-plugin-state", key: "k" }, "*");
        target.postMessage({ type: prefix + ":create-assistant-message", content: "stolen words" }, "*");
        target.postMessage({ type: prefix + ":update-plugin-settings", value: { theme: "stolen" } }, "*");
      }
    window.asked = true;
  };`;
const greedyPage = `<!doctype html><title>stranger</title><script>${GREEDY} greed();</script>`;
const pluginPage = `<!doctype html><title>plugin</title><p id="state"></p><script>
  const tell = (channel, body = {}) => parent.postMessage({ type: "speraxos:" + channel, ...body }, "*");
  window.heard = [];
  addEventListener("message", ({ data }) => {
    window.heard.push(data);
    document.getElementById("state").textContent = "heard " + data.type;
  });
  tell("plugin-ready-for-render");
</script>`;

const stranger = await serve({ "/": greedyPage });
const site = await serve({ "/page": pluginPage });
const parameters = { type: "object", properties: {} };
const settings = {
  type: "object",
  properties: {
    theme: {
      type: "string",
      title: `Theme ${BIDI}`,
      description: `[https://good.example](${stranger.origin}/) [x](javascript:alert(1)) ${HTML}`,
    },
    key: { type: "string", format: "password" },
  },
};
const manifests = {
  plain: { ui: { url: `${site.origin}/page` } },
  script: { ui: { url: "javascript:alert(1)" } },
  data: { ui: { url: `data:text/html,${encodeURIComponent(greedyPage)}` } },
  blob: { ui: { url: "blob:http://127.0.0.1/1" } },
  own: { ui: { url: "OWN/console/sandbox.html" } },
  console: { ui: { url: "OWN/console/" } },
};
const manifestOf = (name) => ({
  identifier: `evil-${name}`,
  type: "standalone",
  meta: { title: `Evil ${BIDI} ${HTML}`, description: `${HTML} javascript:alert(1)`, avatar: "javascript:alert(1)" },
  homepage: "javascript:alert(1)",
  api: [{ name: "open", description: HTML, parameters }],
  settings,
  ui: { ...manifests[name].ui, url: manifests[name].ui.url.replace("OWN", setup.url) },
});

/** A tool with a hostile name, description and result; and one that answers with Markdown. */
site.pages["/tell"] = (_, response) => {
  response.setHeader("content-type", "text/markdown");
  response.end(
    `${HTML}\n\n[click](javascript:alert(1)) [data](data:text/html,x) ![pixel](${stranger.origin}/pixel) [https://good.example](${stranger.origin}/x) ${BIDI}`,
  );
};
const teller = {
  identifier: "evil-teller",
  type: "markdown",
  meta: { title: "Teller" },
  api: [{ name: "tell", description: "Tells.", url: `${site.origin}/tell`, parameters }],
};

try {
  await gateway([site.host]);
  for (const name of Object.keys(manifests)) {
    site.pages[`/${name}.json`] = json(manifestOf(name));
    const added = await ask("/v1/plugins", { method: "POST", body: { url: `${site.origin}/${name}.json` } });
    manifests[name].added = added.plugins?.length === 1;
    const path = `/v1/plugins/evil-${name}/settings`;
    if (manifests[name].added) await ask(path, { method: "PUT", body: { settings: { theme: "light", key: SECRET } } });
  }
  await ask("/v1/plugins", { method: "POST", body: { manifest: teller } });

  await browse(
    async (open) => {
      const page = await signedIn(open);
      let dialogs = 0;
      page.on("dialog", (dialog) => {
        dialogs += 1;
        void dialog.dismiss();
      });
      const requests = [];
      page.on("request", (request) => requests.push(request.url()));
      const session = await page.evaluate(() => sessionStorage.getItem("switchboard.session"));
      const openPlugin = async (name) => {
        await visit(page, "overview");
        await visit(page, "chat");
        await page.getByLabel("Tool", { exact: true }).selectOption(`evil-${name}__open`);
        await page.getByRole("button", { name: "Open", exact: true }).click();
      };
      const frameOf = async (wanted) => {
        const found = () => page.frames().find((frame) => frame !== page.mainFrame() && wanted(frame.url()));
        for (let tries = 0; tries < 200 && !found(); tries++) await page.waitForTimeout(50);
        assert.ok(
          found(),
          page
            .frames()
            .map((frame) => frame.url())
            .join(" "),
        );
        return found();
      };
      /** Asserts that a page has requested everything and got no answer, after all possible effects have happened. */
      const gotNothing = async (frame) => {
        await frame.waitForFunction(() => window.asked);
        await page.evaluate(() =>
          fetch("/v1/plugins/evil-plain/settings").then(() => new Promise((next) => setTimeout(next, 0))),
        );
        assert.deepEqual(await frame.evaluate(() => window.got), []);
        assert.equal(await page.getByText("stolen words").count(), 0);
      };

      // Addresses that are not web addresses are not shown as pages.
      const known = (await ask("/v1/plugins")).plugins;
      for (const name of ["script", "data", "blob"])
        assert.equal(known.find(({ identifier }) => identifier === `evil-${name}`)?.ui, undefined, name);

      // A page of the gateway's own origin has no origin in its frame, and no other page may frame the console.
      await openPlugin("own");
      assert.ok(!(await page.locator("iframe").getAttribute("sandbox")).includes("allow-same-origin"));
      await openPlugin("console");
      await frameOf((url) => url.startsWith("chrome-error:"));
      assert.equal(await page.frameLocator("iframe").getByText("Sign in").count(), 0);

      // The plugin's page itself is accepted. Pages that it creates or navigates to are not: another frame, a popup, a
      // frame without an origin.
      await openPlugin("plain");
      const plugin = await frameOf((url) => url === `${site.origin}/page`);
      await plugin.waitForFunction(() => window.heard.length > 0);
      const inside = (html) =>
        plugin.evaluate((text) => {
          const frame = document.createElement("iframe");
          Object.assign(frame, text);
          document.body.append(frame);
        }, html);
      await inside({ src: `${stranger.origin}/` });
      await gotNothing(await frameOf((url) => url === `${stranger.origin}/`));
      await inside({ srcdoc: greedyPage });
      await gotNothing(await frameOf((url) => url === "about:srcdoc"));
      await plugin.evaluate((html) => {
        const frame = document.createElement("iframe");
        frame.setAttribute("sandbox", "allow-scripts");
        frame.src = `data:text/html,${encodeURIComponent(html)}`;
        document.body.append(frame);
      }, greedyPage);
      await gotNothing(await frameOf((url) => url.startsWith("data:")));
      await plugin.evaluate(() => {
        for (const frame of document.querySelectorAll("iframe")) frame.remove();
      });

      // State is stored unchanged, whatever its keys are, up to its size limit.
      await plugin.evaluate((text) => {
        const tell = (channel, body) => parent.postMessage({ type: `speraxos:${channel}`, ...body }, "*");
        for (const key of ["__proto__", "constructor", "prototype"])
          tell("update-plugin-state", { key, value: { polluted: true } });
        tell("update-plugin-state", { key: "giant", value: text });
        window.heard = [];
        for (const key of ["__proto__", "giant"]) tell("fetch-plugin-state", { key });
      }, "x".repeat(600_000));
      await plugin.waitForFunction(() => window.heard.filter(({ type }) => type.endsWith("plugin-state")).length === 2);
      const states = await plugin.evaluate(() =>
        window.heard.filter(({ type }) => type.endsWith("plugin-state")).map(({ value }) => value),
      );
      assert.deepEqual(states, [{ polluted: true }, undefined]);
      assert.equal(await page.evaluate(() => ({}).polluted), undefined);
      await page.getByText("the state was rejected (too-large)", { exact: false }).waitFor();

      // A setting that is not in the manifest is refused.
      await plugin.evaluate(() => {
        const value = JSON.parse('{"__proto__":{"polluted":true}}');
        parent.postMessage({ type: "speraxos:update-plugin-settings", value }, "*");
      });
      await page.getByText("has no setting", { exact: false }).waitFor();
      assert.equal(await page.evaluate(() => ({}).polluted), undefined);

      // A plugin's page cannot navigate the tab, and messages of its popup are not accepted either.
      await plugin.evaluate((address) => {
        for (const way of [
          () => {
            top.location.href = address;
          },
          () => parent.location.replace(address),
          () => open(address, "_top"),
        ])
          try {
            way();
          } catch {}
        const form = Object.assign(document.createElement("form"), { action: address, target: "_top" });
        document.body.append(form);
        form.submit();
      }, `${stranger.origin}/`);
      assert.ok(page.url().startsWith(setup.url));
      await plugin.evaluate((address) => {
        document.body.insertAdjacentHTML(
          "beforeend",
          `<a id="out" target="_blank" rel="opener" href="${address}">out</a>`,
        );
      }, `${stranger.origin}/`);
      const popup = page.context().waitForEvent("page");
      await page.frameLocator("iframe").locator("#out").click();
      const tab = await popup;
      await tab.waitForLoadState();
      if (await tab.evaluate(() => window.asked ?? false)) await gotNothing(tab.mainFrame());
      await tab.close();

      // Messages of the page that it navigates to are not accepted, although it is in the same frame.
      await plugin.evaluate((address) => {
        location.href = address;
      }, `${stranger.origin}/`);
      await gotNothing(await frameOf((url) => url === `${stranger.origin}/`));
      await page.getByText("came from a different origin", { exact: false }).waitFor();

      // A page that floods the console is removed, and the console continues to work.
      await openPlugin("plain");
      const flood = await frameOf((url) => url === `${site.origin}/page`);
      await flood
        .evaluate(() => {
          for (let at = 0; at < 5_000; at++) parent.postMessage({ type: "speraxos:fetch-plugin-settings" }, "*");
        })
        .catch(() => {});
      await page.getByText("it sent too many messages").waitFor();
      assert.equal(await page.locator("iframe").count(), 0);

      // Names, descriptions and results are text; invisible control characters are made visible; links show their
      // target.
      await visit(page, "plugins");
      await page.getByText("\\u{202e}gpj.exe\\u{2066}\\u{200b}").first().waitFor();
      await page.locator("summary", { hasText: "Settings" }).first().click();
      const link = page.getByRole("link", { name: `https://good.example (${stranger.host})` }).first();
      assert.equal(await link.getAttribute("rel"), "noopener noreferrer nofollow");
      assert.deepEqual(
        await page.evaluate(() =>
          [...document.querySelectorAll("a[href]")].map(({ href }) => href).filter((href) => !/^https?:/.test(href)),
        ),
        [],
      );
      await accessible(page, "hostile plugins");
      await page.setViewportSize({ width: 320, height: 640 });
      await fitsTheWindow(page, "hostile plugins");
      await page.setViewportSize({ width: 1280, height: 800 });

      await visit(page, "chat");
      await page.getByLabel("Tool", { exact: true }).selectOption("evil-teller__tell");
      await page.getByRole("button", { name: "Call", exact: true }).click();
      const said = page.locator(".switchboard-markdown");
      await said.getByText("<script>alert(2)</script>", { exact: false }).waitFor();
      await said.getByText("\\u{202e}gpj.exe", { exact: false }).waitFor();
      assert.deepEqual(
        await said.locator("a").evaluateAll((all) => all.map(({ href, textContent }) => [href, textContent])),
        [
          [`${stranger.origin}/pixel`, "pixel"],
          [`${stranger.origin}/x`, `https://good.example (${stranger.host})`],
        ],
      );
      assert.equal(await page.locator("img, script[src*=pixel]").count(), 0);
      assert.ok(!requests.some((url) => url.includes("/pixel")), "nothing is loaded from a stranger");
      await ask("/v1/tools/demo_echo/call", { method: "POST", body: { args: { text: `${HTML}${BIDI}` } } });
      await visit(page, "calls");
      await page.locator(".item").filter({ hasText: "demo_echo" }).first().click();
      await page.getByRole("region", { name: "Arguments" }).getByText("\\u{202e}gpj.exe", { exact: false }).waitFor();

      // The hostile website's page cannot frame the console, read from it, send requests to it, or end the user's
      // session.
      assert.equal(await page.evaluate(() => document.cookie), "");
      const neighbour = await page.context().newPage();
      await neighbour.goto(stranger.origin);
      const tried = await neighbour.evaluate(async (url) => {
        const read = (path, options) =>
          fetch(url + path, options).then(
            (response) => response.text(),
            (error) => error.name,
          );
        const framed = await new Promise((done) => {
          const frame = document.createElement("iframe");
          frame.onload = () => {
            try {
              done(String(frame.contentDocument?.body?.innerText ?? "closed"));
            } catch {
              done("closed");
            }
          };
          frame.src = `${url}/console/`;
          document.body.append(frame);
        });
        return [
          framed,
          await read("/console/"),
          await read("/v1/status"),
          await read("/v1/console/sign-in", { method: "POST", body: '{"code":"x"}' }),
          await read("/v1/console/sign-in", { method: "POST", body: '{"code":"x"}', mode: "no-cors" }),
          await read("/v1/tools/demo_echo/call", {
            method: "POST",
            body: "{}",
            mode: "no-cors",
            credentials: "include",
          }),
        ];
      }, setup.url);
      assert.deepEqual(tried, ["closed", "TypeError", "TypeError", "TypeError", "", ""]);
      const before = (await ask("/v1/calls?tool=demo_echo")).calls.length;
      assert.equal(before, 1, "the neighbour's call did not happen");
      await neighbour.close();

      // A link with an invented code does not sign the user out; a valid one works in a tab with the console open.
      await page.goto(`${stranger.origin}/`);
      await page.goto(`${setup.url}/console/#code=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA`);
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      assert.equal(await page.evaluate(() => location.hash), "");
      assert.equal(await page.evaluate(() => sessionStorage.getItem("switchboard.session")), session);
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
      const { path } = await ask("/v1/console/links", { method: "POST" });
      await page.goto(`${setup.url}${path}`);
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      assert.ok(!page.url().includes("code="));
      assert.notEqual(
        await page.evaluate(() => sessionStorage.getItem("switchboard.session")),
        session,
        "a session of its own",
      );
      const other = await open();
      await other.goto(`${setup.url}${path}`);
      await other.getByText("was already used").waitFor();

      assert.equal(dialogs, 0, "nothing ran");
    },
    [/^Framing .* violates .* "frame-ancestors 'none'"/],
  );

  // Every route of the console has a policy, and forbids other pages to frame it.
  const html = await (await fetch(`${setup.url}/console/`)).text();
  for (const path of [
    "/console/",
    "/console/sandbox.html",
    ...[...html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, file]) => `/console/${file}`),
  ]) {
    const { headers, status } = await fetch(`${setup.url}${path}`);
    assert.equal(status, 200, path);
    assert.match(
      headers.get("content-security-policy") ?? "",
      /default-src 'none'.*frame-ancestors '(none|self)'/,
      path,
    );
    assert.equal(headers.get("x-content-type-options"), "nosniff", path);
    assert.equal(headers.get("set-cookie"), null, path);
  }
} finally {
  site.close();
  stranger.close();
  await endAll();
}
