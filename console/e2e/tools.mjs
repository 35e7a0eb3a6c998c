// A form from any schema; a call with progress, parts, images and cancel; the same call as a snippet; the list of
// tools.
import { execFileSync } from "node:child_process";
import { assert, browse, setup, signedIn, visit } from "./browser.mjs";

await browse(async (open) => {
  const page = await signedIn(open);
  const cancels = [];
  page.on("request", (request) => request.method() === "DELETE" && cancels.push(request.url()));
  const result = async () => JSON.parse(await page.getByRole("region", { name: "Result" }).innerText());
  const call = async () => {
    await page.getByRole("button", { name: "Call", exact: true }).click();
    await page.getByText("Done").waitFor();
  };

  // Every kind of field.
  await visit(page, "tools/forms_fill");
  await page.getByLabel("title").fill("Milk");
  await page.getByLabel("count").fill("3");
  await page.getByLabel("urgent").selectOption("true");
  await page.getByLabel("level").selectOption("high");
  await page.getByRole("button", { name: "Set where" }).click();
  await page.getByLabel("street").fill("Main");
  await page.getByRole("button", { name: "Set labels" }).click();
  await page.getByRole("button", { name: "Add to labels" }).click();
  await page.getByLabel("1 required").fill("a");
  await page.getByLabel("anything").fill('{"deep":[1,null]}');
  assert.equal(await page.getByLabel("secret").getAttribute("type"), "password");
  await page.getByLabel("secret").fill("s3cret");
  // Optional lists and objects as Python servers describe them. They are absent until they are set.
  const group = (name) => page.getByRole("group", { name, exact: true });
  await page.getByRole("button", { name: "Set tags" }).click();
  await page.getByRole("button", { name: "Add to tags" }).click();
  await group("tags").getByRole("textbox").fill("t");
  await page.getByRole("button", { name: "Set home" }).click();
  await group("home").getByLabel("Town").fill("Bonn");
  await page.getByRole("button", { name: "Set lines" }).click();
  await page.getByRole("button", { name: "Set stops" }).click();
  await page.getByRole("button", { name: "Add to stops" }).click();
  await group("Stops").getByLabel("Town").fill("Köln");
  await page.getByRole("button", { name: "Set work" }).click();
  await page.getByRole("button", { name: "Leave work out" }).click();
  await call();
  const filled = {
    title: "Milk",
    count: 3,
    urgent: true,
    level: "high",
    where: { street: "Main" },
    labels: ["a"],
    anything: { deep: [1, null] },
    secret: "s3cret",
    tags: ["t"],
    home: { town: "Bonn", lines: [] },
    stops: [{ town: "Köln" }],
  };
  assert.deepEqual(await result(), filled, "optional parameters that are empty are left out");
  if (process.env.CONSOLE_SHOT) await page.screenshot({ path: process.env.CONSOLE_SHOT, fullPage: true });

  // The form and its JSON are two views of the same value.
  await page.getByRole("button", { name: "JSON" }).click();
  assert.deepEqual(JSON.parse(await page.getByLabel("Arguments as JSON").inputValue()), filled);
  await page.getByLabel("Arguments as JSON").fill('{"title":"Eggs","extra":1}');
  await page.getByRole("button", { name: "Form" }).click();
  await page.getByText('the form has no field "extra"').waitFor();
  await page.getByLabel("Arguments as JSON").fill('{"title":"Eggs"}');
  await page.getByRole("button", { name: "Form" }).click();
  assert.equal(await page.getByLabel("title").inputValue(), "Eggs");

  // Each of the three copied snippets works unchanged in a shell.
  for (const label of ["curl", "CLI", "MCP"]) {
    await page.getByRole("button", { name: label, exact: true }).click();
    const text = await page.locator(".command pre").last().innerText();
    const env = {
      ...process.env,
      PATH: `${setup.programs}:${process.env.PATH}`,
      SWITCHBOARD_URL: setup.url,
      SWITCHBOARD_TOKEN: setup.operator,
    };
    assert.match(execFileSync("bash", ["-c", text], { encoding: "utf8", env }), /Eggs/, label);
  }

  // An image is shown.
  await visit(page, "tools/forms_picture");
  await page.getByRole("heading", { name: "forms_picture" }).waitFor();
  await call();
  const image = page.locator(".images img");
  await image.waitFor();
  assert.ok(await image.evaluate((picture) => picture.complete && picture.naturalWidth > 0), "the picture is drawn");

  // Progress and parts appear live, until the call is cancelled.
  await visit(page, "tools/demo_countdown");
  await page.getByLabel("from").fill("100");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page
    .getByRole("log")
    .getByText(/^100\n99\n/)
    .waitFor();
  await page.getByText(/^\d+ to go/).waitFor();
  assert.ok(Number(await page.getByRole("progressbar").getAttribute("aria-valuenow")) > 0);
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("Cancelled", { exact: true }).waitFor();
  assert.equal(cancels.length, 1, `calls that had ended were left alone: ${cancels}`);

  // An error shows its cause and a suggested action.
  await visit(page, "tools/forms_break");
  await page.getByRole("heading", { name: "forms_break" }).waitFor();
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByRole("alert").getByText("it broke").waitFor();

  await theList(open);
});

/** The list, in a window with only a few visible tools. */
async function theList(open) {
  const page = await signedIn(open, { viewport: { width: 1280, height: 400 } });
  await visit(page, "tools");
  const list = page.getByRole("listbox", { name: "Tools" });
  const last = list.getByRole("option").last();
  const size = () => last.getAttribute("aria-setsize");
  const marked = () => list.locator("[aria-selected=true] .name").allInnerTexts();
  await last.waitFor();

  // A mouse press moves the focus to the list without scrolling it. This also holds before the page gets the scroll
  // event, which arrives with the next frame.
  await list.hover();
  await list.evaluate((box) => {
    const scroll = () => box.scrollTo(0, box.scrollHeight);
    addEventListener("mousedown", scroll, { capture: true, once: true });
  });
  await page.mouse.down();
  assert.ok((await list.evaluate((box) => box.scrollTop)) > 0, "the press has moved the list");
  await page.mouse.up();
  await last.and(list.locator(`[aria-posinset="${await size()}"]`)).waitFor();
  const name = await last.locator(".name").innerText();
  await last.click();
  await page.getByRole("heading", { name }).waitFor();
  assert.deepEqual(await marked(), [name]);

  // The tool in the address is marked and visible.
  await visit(page, "tools/demo_echo");
  await page.getByRole("heading", { name: "demo_echo" }).waitFor();
  assert.deepEqual(await marked(), ["demo_echo"]);
  await visit(page, `tools/${name}`);
  await page.getByRole("heading", { name }).waitFor();
  assert.deepEqual(await marked(), [name]);
  await page.reload();
  await page.getByRole("heading", { name }).waitFor();
  await list.getByText(name, { exact: true }).waitFor();
  const below = await last.evaluate((row) => row.getBoundingClientRect().bottom - innerHeight);
  assert.ok(below < 1, `${name} is ${below} pixels below the edge`);

  // A search without a match shows a message.
  await page.getByRole("searchbox").fill("no such thing");
  await page.getByText("No matching tools").waitFor();
  await page.getByRole("button", { name: "Show all tools" }).click();
  await list.getByText("demo_echo").waitFor();
  await page.context().close();
}
