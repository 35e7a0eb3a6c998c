// The inspector: live calls, their arguments, filters, cancel, replay, and ten thousand rows.
import { ask, assert, browse, setup, signedIn, visit } from "./browser.mjs";

await browse(async (open) => {
  const page = await signedIn(open);
  await visit(page, "calls");
  const rows = page.locator(".item");
  await rows.first().waitFor();

  const list = page.getByRole("listbox", { name: "Calls" });
  const few = await scrolling(page, list, 0);

  // More than ten thousand rows: all are reachable, few are rendered, none is blank.
  const size = async () => Number(await rows.first().getAttribute("aria-setsize"));
  for (let before = 0; (await size()) < setup.calls; ) {
    const now = await size();
    assert.ok(now > before || now >= setup.calls, `no more than ${now} calls are loaded`);
    before = now;
    await list.evaluate((box) => {
      box.scrollTop = box.scrollHeight;
    });
    await page.waitForFunction(
      (known) => Number(document.querySelector(".item")?.getAttribute("aria-setsize")) > known,
      now,
    );
  }
  assert.ok((await size()) >= setup.calls);
  for (const part of [0.1, 0.5, 0.77, 1]) {
    const drawn = await list.evaluate(async (box, where) => {
      box.scrollTop = (box.scrollHeight - box.clientHeight) * where;
      await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
      const frame = box.getBoundingClientRect();
      const tops = [...box.querySelectorAll(".item")].map((row) => row.getBoundingClientRect());
      const middle = frame.top + frame.height / 2;
      return { count: tops.length, covered: tops.some(({ top, bottom }) => top <= middle && bottom >= middle) };
    }, part);
    assert.ok(drawn.count < 80, `${drawn.count} rows are drawn`);
    assert.ok(drawn.covered, `nothing is drawn at ${part}`);
  }

  // Scrolling costs the same in ten thousand rows as in the first few hundred, and little more than scrolling static
  // rows. The measure is CPU time, so that other load on the machine has no effect.
  const many = await scrolling(page, list, 34 * 5_000);
  const plain = await scrollingPlainRows(page);
  const numbers = JSON.stringify({ few, many, plain });
  assert.ok(many.whole < few.whole * 2, `scrolling gets slower with the number of rows: ${numbers}`);
  assert.ok(many.whole < plain.whole * 15, `scrolling costs too much: ${numbers}`);
  assert.ok(many.worst < (many.whole / 10) * 5, `some rows cost far more than others: ${numbers}`);
  assert.ok(many.nodes < few.nodes * 1.5, `scrolling leaves something behind: ${numbers}`);
  assert.deepEqual(many.jumps, [], `something jumps while it is scrolled: ${numbers}`);

  // A user who reads further down keeps the position when calls arrive.
  const reading = async () =>
    (
      await rows.evaluateAll(
        (all) =>
          all.find(
            (row) =>
              row.getBoundingClientRect().top >= row.parentElement.parentElement.getBoundingClientRect().top + 40,
          )?.id ?? "",
      )
    ).length;
  await list.evaluate((box) => {
    box.scrollTop = 34 * 400;
  });
  await page.waitForFunction(() =>
    [...document.querySelectorAll(".item")].some((row) => row.getAttribute("aria-posinset") === "405"),
  );
  const text = await page.locator('.item[aria-posinset="405"]').innerText();
  const known = await size();
  for (let at = 0; at < 5; at++)
    await ask("/v1/tools/forms_fill/call", { method: "POST", body: { args: { title: `new ${at}` } } });
  await page.waitForFunction(
    (count) => Number(document.querySelector(".item")?.getAttribute("aria-setsize")) >= count,
    known + 5,
  );
  assert.ok(await reading());
  assert.equal(await page.locator('.item[aria-posinset="410"]').innerText(), text);

  // A running call appears at once, and can be cancelled.
  await list.evaluate((box) => {
    box.scrollTop = 0;
  });
  const running = ask("/v1/tools/demo_countdown/call", { method: "POST", body: { args: { from: 100 } } });
  const row = rows.filter({ hasText: "running" });
  await row.first().click();
  // Its arguments, its provider and its time per step are visible while it runs, with secrets masked.
  const detail = page.getByRole("article", { name: "Call" });
  await detail.getByRole("region", { name: "Arguments" }).getByText('"from"').waitFor();
  await detail.getByText("node demo").waitFor();
  const timing = detail.getByRole("region", { name: "Timing" });
  await timing.getByText("Works").waitFor();
  const before = await timing.innerText();
  await page.waitForFunction(
    (then) => document.querySelector(".phases")?.innerText !== then && document.querySelector(".phases .busy"),
    before,
  );
  await timing.getByText(/updates? so far/).waitFor();
  await detail.getByRole("button", { name: "Cancel" }).click();
  assert.equal((await running).kind, "cancelled");
  await page.getByRole("article", { name: "Call" }).getByText("cancelled").first().waitFor();

  // Arguments and result with masked secrets, so that such a call is filled in again instead of repeated.
  await ask("/v1/tools/forms_fill/call", {
    method: "POST",
    body: { args: { title: "with a secret", secret: "hunter2" } },
  });
  await page.waitForFunction(() =>
    document.querySelector('.item[aria-posinset="1"]')?.textContent.includes("forms_fill"),
  );
  await page.locator('.item[aria-posinset="1"]').click();
  await detail.getByRole("region", { name: "Arguments" }).getByText('"with a secret"').waitFor();
  assert.match(await detail.innerText(), /\*\*\*/);
  assert.doesNotMatch(await page.content(), /hunter2/);
  assert.equal(await detail.getByRole("button", { name: "Replay" }).count(), 0);
  await detail.getByRole("link", { name: "Change and call" }).click();
  await page.getByRole("heading", { name: "forms_fill" }).waitFor();
  assert.equal(await page.getByLabel("title").inputValue(), "with a secret");

  // Replay.
  const again = await ask("/v1/tools/forms_fill/call", { method: "POST", body: { args: { title: "again" } } });
  await visit(page, `calls/${again.call_id}`);
  await detail.getByRole("region", { name: "Arguments" }).getByText('"again"').waitFor();
  await detail.getByRole("button", { name: "Replay" }).click();
  await detail.getByText("Done").waitFor();

  // Filters.
  await page.getByRole("searchbox").fill("");
  await page.getByRole("combobox", { name: "Outcome" }).selectOption("error");
  await page.waitForFunction(() =>
    [...document.querySelectorAll(".item")].every((found) => !/\bok\b/.test(found.textContent)),
  );
  await page.getByRole("searchbox").fill("no such tool anywhere");
  await page.getByText("No matching calls").waitFor();
  await page.getByRole("button", { name: "Show all calls" }).click();
  await rows.first().waitFor();
});

/**
 * Scrolls a hundred steps of ten rows from here, and returns the CPU time in total and at its maximum, and the layout shifts.
 */
async function scrolling(page, list, from) {
  await list.evaluate(async (box, top) => {
    box.scrollTop = top;
    await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  }, from);
  const tenSteps = (at) =>
    list.evaluate(
      async (box, top) => {
        for (let step = 1; step <= 10; step++) {
          box.scrollTop = top + step * 340;
          await new Promise((next) => requestAnimationFrame(next));
        }
      },
      from + at * 3_400,
    );
  return measured(
    page,
    Array.from({ length: 10 }, (_, at) => () => tenSteps(at)),
  );
}

/** The same with rows that are all rendered already, in a page without other work. */
async function scrollingPlainRows(page) {
  const bare = await page.context().newPage();
  await bare.setContent(
    `<div id="box" style="height:600px;overflow:auto">${Array.from({ length: 2_000 }, (_, at) => `<div style="height:34px">row ${at}</div>`).join("")}</div>`,
  );
  const result = await scrolling(bare, bare.locator("#box"), 0);
  await bare.close();
  return result;
}

async function measured(page, parts) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const read = async (name) =>
    (await session.send("Performance.getMetrics")).metrics.find((metric) => metric.name === name).value;
  await page.evaluate(() => {
    window.jumps = [];
    window.watcher = new PerformanceObserver((entries) => {
      for (const { node, previousRect, currentRect } of entries.getEntries().flatMap(({ sources }) => sources))
        window.jumps.push(
          `${node?.nodeName}.${node?.className} ${previousRect.x} ${previousRect.y} to ${currentRect.x} ${currentRect.y}`,
        );
    });
    window.watcher.observe({ type: "layout-shift" });
  });
  const took = [];
  for (const part of parts) {
    const before = await read("TaskDuration");
    await part();
    took.push(((await read("TaskDuration")) - before) * 1_000);
  }
  await session.send("HeapProfiler.collectGarbage");
  const nodes = await read("Nodes");
  const jumps = await page.evaluate(() => {
    window.watcher.disconnect();
    return window.jumps.slice(0, 3);
  });
  await session.detach();
  const whole = took.reduce((sum, each) => sum + each, 0);
  return { whole, worst: Math.max(...took), nodes, jumps };
}
