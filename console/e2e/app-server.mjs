// An MCP server over stdio with a tool that has an app, in plain Node.js.
import { createInterface } from "node:readline";

const APP = `<!doctype html><html lang="en"><title>Dice</title><body>
<h1>Dice</h1><p id="input"></p><p id="result"></p><button id="again">Again</button><p id="called"></p><p id="foreign"></p><p id="reach"></p>
<p><input id="address" aria-label="Address"><button id="link">Link</button><input id="words" aria-label="Words"><button id="say">Say</button></p><p id="wish"></p><p id="offered"></p>
<script>
let next = 1;
const waiting = new Map();
const ask = (method, params) => new Promise((found, failed) => {
  waiting.set(next, { found, failed });
  parent.postMessage({ jsonrpc: "2.0", id: next++, method, params }, "*");
});
const show = (id, text) => { document.getElementById(id).textContent = text; };
addEventListener("message", ({ data }) => {
  if (data.method === "ui/notifications/tool-input") show("input", "asked for " + data.params.arguments.sides);
  if (data.method === "ui/notifications/tool-result") show("result", "rolled " + data.params.structuredContent.value);
  const { found, failed } = waiting.get(data.id) ?? {};
  if (data.error) failed?.(new Error(data.error.message)); else found?.(data.result);
});
document.getElementById("again").onclick = async () => {
  const { structuredContent } = await ask("tools/call", { name: "roll", arguments: { sides: 100 } });
  show("called", "then rolled " + structuredContent.value);
  await ask("tools/call", { name: "hidden", arguments: {} }).catch((error) => show("foreign", "refused: " + error.message));
  try { show("reach", String(top.document.title)); } catch (error) { show("reach", error.name); }
};
const wish = (method, params) => ask(method, params).then(() => show("wish", "granted"), (error) => show("wish", "refused: " + error.message));
document.getElementById("link").onclick = () => wish("ui/open-link", { url: document.getElementById("address").value });
document.getElementById("say").onclick = () => wish("ui/message", { role: "user", content: [{ type: "text", text: document.getElementById("words").value }] });
(async () => {
  const { hostCapabilities } = await ask("ui/initialize", { protocolVersion: "2026-01-26", appInfo: { name: "dice", version: "1" }, appCapabilities: {} });
  show("offered", Object.keys(hostCapabilities).sort().join(" "));
  parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/initialized" }, "*");
})();
</script></body></html>`;

const schema = { type: "object", properties: { sides: { type: "integer" } }, required: ["sides"] };
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {}, resources: {} },
    serverInfo: { name: "dice", version: "1.0.0" },
  }),
  ping: () => ({}),
  "tools/list": () => ({
    tools: [
      { name: "roll", description: "Rolls a die.", inputSchema: schema, _meta: { ui: { resourceUri: "ui://dice" } } },
      { name: "hidden", inputSchema: { type: "object" }, _meta: { ui: { visibility: ["model"] } } },
    ],
  }),
  "tools/call": ({ name, arguments: args }) => {
    const value = name === "roll" ? args.sides : 0;
    return { content: [{ type: "text", text: `It is a ${value}.` }], structuredContent: { value } };
  },
  "resources/list": () => ({ resources: [{ uri: "ui://dice", name: "dice", mimeType: "text/html;profile=mcp-app" }] }),
  "resources/templates/list": () => ({ resourceTemplates: [] }),
  "resources/read": ({ uri }) => ({ contents: [{ uri, mimeType: "text/html;profile=mcp-app", text: APP }] }),
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  const said = answer ? { result: answer(params ?? {}) } : { error: { code: -32601, message: `no ${method}` } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...said }));
});
