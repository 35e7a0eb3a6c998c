// A gateway that stops and restarts: the page reports it, keeps its data, and reconnects without a new sign-in. Also an
// offline node, a thousand tools, and names that are too long.
import { WebSocket } from "ws";
import { accessible, ask, assert, browse, fitsTheWindow, setup, signedIn, visit } from "./browser.mjs";
import { endAll, endLast } from "./programs.mjs";
import { gateway } from "./site.mjs";

const LONG = `tool_${"with_a_very_long_name_".repeat(5)}`.slice(0, 120);

/** A node with these tools; it disconnects when its socket is closed. */
async function node(id, tools) {
  const socket = new WebSocket(`${setup.url.replace("http", "ws")}/v1/nodes/ws?node_id=${id}`);
  const hello = {
    type: "node_hello",
    protocol_version: 1,
    node: { id, name: id, node_type: "test", version: "1.0.0" },
    capabilities: [],
    tools,
  };
  socket.on("open", () => socket.send(JSON.stringify(hello)));
  await new Promise((welcomed, failed) => {
    socket.on("message", welcomed);
    socket.on("error", failed);
    socket.on("close", (code, reason) => failed(new Error(`the node was not let in: ${code} ${reason}`)));
  });
  return socket;
}

try {
  await gateway([]);
  await browse(async (open) => {
    const page = await signedIn(open);
    const many = Array.from({ length: 1_000 }, (_, at) => ({
      name: `many.tool_${String(at).padStart(4, "0")}`,
      description: "One of very many. ".repeat(at % 7),
    }));
    const socket = await node("many", [...many, { name: `many.${LONG}`, description: "d".repeat(2_000) }]);

    // A thousand tools: few are rendered, each can be found.
    await visit(page, "tools");
    await page.getByText(/^1\D?0\d\d tools/).waitFor();
    assert.ok((await page.locator(".item").count()) < 80);
    await page.getByRole("searchbox").fill("tool_0999");
    await page.getByRole("option", { name: /many_tool_0999/ }).click();
    await page.getByRole("heading", { name: "many_tool_0999" }).waitFor();
    await page.setViewportSize({ width: 320, height: 640 });
    for (const where of ["tools", `tools/many_${LONG}`, "nodes", "calls"]) {
      await visit(page, where);
      await page.waitForFunction(() => document.querySelector("h1, h2"));
      await fitsTheWindow(page, `${where} with long names`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });

    // A lost node is shown as lost, and so are its tools.
    await visit(page, "nodes");
    const card = page.getByRole("region", { name: "many" });
    await card.getByText("connected for").waitFor();
    socket.close();
    await card.getByText(/^lost \d+ s ago/).waitFor();
    await accessible(page, "a node that is gone");
    await visit(page, "tools/many_tool_0999");
    await page.getByText("Offline, node many").waitFor();
    await page.getByText(/Its node was lost \d+ s ago/).waitFor();

    // A node that says goodbye is shown as stopped.
    const again = await node("many", many);
    await page.getByText("Online, node many").waitFor();
    again.close(1000);
    await page.getByText(/Its node was stopped \d+ s ago/).waitFor();
    await visit(page, "nodes");
    await card.getByText(/^stopped \d+ s ago/).waitFor();
    await visit(page, "overview");
    await page.getByText("many stopped").waitFor();

    // The gateway stops and restarts.
    await visit(page, "overview");
    await page.getByText("Live,").waitFor();
    await ask("/v1/tools/demo_echo/call", { method: "POST", body: { args: { text: "before" } } });
    await visit(page, "calls");
    await page.locator(".item").first().waitFor();
    const listen = new URL(setup.url).host;
    await endLast();
    const lost = page.getByText("The gateway does not answer", { exact: false }).first();
    await lost.waitFor();
    await page.locator(".item").first().waitFor();
    await accessible(page, "a gateway that is away");
    await visit(page, "tools/demo_echo");
    await page.getByLabel("text").fill("while it is away");
    await page.getByRole("button", { name: "Call", exact: true }).click();
    await page.getByText("Failed", { exact: true }).waitFor();
    await gateway([], "", listen);
    await lost.waitFor({ state: "detached" });
    await page.getByText("Online, node demo").waitFor();
    await page.getByRole("button", { name: "Call", exact: true }).click();
    await page.getByText("Done").waitFor();
    await visit(page, "calls");
    await page.locator(".item").filter({ hasText: "demo_echo" }).nth(1).waitFor();
  });
} finally {
  await endAll();
}
