// A model's server for tests and screenshots: it answers by the last message, in small chunks, like real servers.
import { createServer } from "node:http";

const piece = (delta, finish_reason = null) => ({
  id: "chat-1",
  object: "chat.completion.chunk",
  created: 0,
  model: "demo",
  choices: [{ index: 0, delta, finish_reason }],
});

function* answer(messages, tools) {
  const last = messages.at(-1);
  const names = tools.map((tool) => tool.function.name);
  const call = (name, args) =>
    piece({
      role: "assistant",
      tool_calls: [
        {
          index: 0,
          id: `call_${messages.length}`,
          type: "function",
          function: { name, arguments: JSON.stringify(args) },
        },
      ],
    });
  const text = typeof last.content === "string" ? last.content : JSON.stringify(last.content);
  if (last.role === "user" && text.includes("checklist") && names.includes("checklist__makeChecklist")) {
    yield call("checklist__makeChecklist", { title: "For the trip", items: ["Passport", "Charger", "Book"] });
    yield piece({}, "tool_calls");
    return;
  }
  if (last.role === "user" && text.includes("echo")) {
    yield call("demo_echo", { text: "hello from the model" });
    yield piece({}, "tool_calls");
    return;
  }
  if (last.role === "user" && text.includes("dice")) {
    yield call("dice__roll", { sides: 20 });
    yield piece({}, "tool_calls");
    return;
  }
  const words =
    last.role === "tool"
      ? `The tool said:\n\n> ${text.slice(0, 200)}\n\nThat is **all** of it.`
      : `You said “${text}”. <img src=x onerror=alert(1)> is only text here.`;
  yield piece({ role: "assistant", content: "" });
  for (const part of words.match(/.{1,7}/gs)) yield piece({ content: part });
  yield piece({}, "stop");
}

/** Starts it on a free port; `close` stops it. */
export async function serveModel() {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { messages, tools = [] } = JSON.parse(body);
    response.setHeader("content-type", "text/event-stream");
    for (const event of answer(messages, tools)) response.write(`data: ${JSON.stringify(event)}\n\n`);
    response.end("data: [DONE]\n\n");
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, close: () => server.close() };
}
