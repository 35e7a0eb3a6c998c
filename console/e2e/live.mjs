// Nodes, MCP servers, sessions and channels are shown live: changes elsewhere appear without a reload.
import { ask, assert, browse, setup, signedIn, visit } from "./browser.mjs";

await browse(async (open) => {
  const page = await signedIn(open);

  await visit(page, "nodes");
  const node = page.getByRole("region", { name: "forms", exact: true });
  await node.getByText("connected for").waitFor();
  await node.getByRole("link", { name: "forms_fill" }).waitFor();

  // A channel: messages of others appear, and typed messages are sent.
  await visit(page, "channels/lobby");
  await page.getByRole("log", { name: "Messages" }).waitFor();
  await page.getByLabel("Message to lobby").fill("from the page https://example.com/x");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "https://example.com/x" }).waitFor();
  const { messages } = await ask("/v1/channels/lobby/messages");
  assert.equal(messages.at(-1).payload.content, "from the page https://example.com/x");
  await ask("/v1/channels/lobby/messages", {
    method: "POST",
    body: { type: "message", payload: { id: crypto.randomUUID(), content: "from <i>elsewhere</i>" } },
  });
  await page.getByText("from <i>elsewhere</i>").waitFor();

  // A session that starts elsewhere appears, and can be ended here.
  await visit(page, "sessions");
  await ask("/v1/sessions", {
    method: "POST",
    body: { message: "hello", context: { caller_id: "app-1", caller_tools: [] } },
  });
  await page.getByRole("option", { name: /app-1/ }).click();
  await page.getByRole("button", { name: "End it" }).click();
  await page.getByRole("button", { name: "End the session?" }).click();
  await page.getByRole("article", { name: "Session" }).getByText("ended").first().waitFor();

  // An MCP server is added and removed here.
  await visit(page, "upstream");
  await page.getByLabel("Name").fill("other");
  await page.getByLabel("Command or address").fill(setup.server);
  await page.getByRole("button", { name: "Add" }).click();
  const server = page.getByRole("region", { name: "other" });
  await server.getByText("ready").waitFor();
  await visit(page, "tools");
  await page.getByRole("searchbox").fill("other__");
  await page
    .getByRole("option", { name: /other__/ })
    .first()
    .waitFor();
  await visit(page, "upstream");
  // Irreversible actions need a confirmation: a double click is one press, and Escape cancels.
  await server.getByRole("button", { name: "Remove" }).dblclick();
  await server.getByRole("button", { name: "Remove other?" }).press("Escape");
  await server.getByRole("button", { name: "Remove", exact: true }).click();
  await server.getByRole("button", { name: "Remove other?" }).click();
  await server.waitFor({ state: "detached" });

  // A disconnected gateway is reported, and known data stays.
  await visit(page, "nodes");
  await node.waitFor();
  console.log("STOP");
  await page.getByRole("alert").getByText("The gateway does not answer").waitFor();
  await node.waitFor();
});
