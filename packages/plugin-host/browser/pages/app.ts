// An MCP App made with the protocol's official SDK.

import { App } from "@modelcontextprotocol/ext-apps";

const show = (id: string, text: string): void => {
  document.body.append(Object.assign(document.createElement("p"), { id, textContent: text }));
};
const attempt = async (id: string, action: () => unknown): Promise<void> => {
  try {
    await action();
    show(id, "done");
  } catch (error) {
    show(id, `refused: ${(error as Error).name}`);
  }
};

const app = new App({ name: "forecast", version: "1.0.0" }, {});
app.ontoolinput = ({ arguments: args }: { arguments?: Record<string, unknown> }) => show("input", JSON.stringify(args));
app.ontoolresult = async ({ content }: { content: unknown }) => {
  show("result", JSON.stringify(content));
  show("theme", String(app.getHostContext()?.theme));
  const answer = await app.callServerTool({ name: "forecast", arguments: { city: "Bergen" } });
  show("called", JSON.stringify(answer.content));
  await attempt("foreign", () => app.callServerTool({ name: "another" }));
  await attempt("host", () => window.top?.document.body);
  await attempt("parent", () => window.parent.document.body);
  await attempt("storage", () => localStorage.length);
  const { elsewhere, allowed } = document.documentElement.dataset;
  await attempt("undeclared", () => fetch(String(elsewhere)));
  await attempt("declared", () => fetch(String(allowed)));
  show("finished", "yes");
};
await app.connect();
