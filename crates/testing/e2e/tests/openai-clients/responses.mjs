// A conversation over the Responses API with OpenAI's JavaScript client: where it is installed, URL, TOKEN, MODE (whole
// or stream) and BARRED, a token that may not use it, are its arguments.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [place, baseURL, apiKey, mode, barred] = process.argv.slice(2);
const entry = createRequire(`${place}/`).resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(entry).href);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const parameters = { type: "object", properties: { zone: { type: "string" } } };
const settings = {
  model: "scripted",
  instructions: "Be short.",
  max_output_tokens: 500,
  store: false,
  tools: [{ type: "function", name: "get_time", strict: false, parameters }],
};

async function ask(input) {
  if (mode === "whole") return client.responses.create({ input, ...settings });
  if (input.length === 1) for await (const _ of await client.responses.create({ input, stream: true, ...settings }));
  let text = "";
  const stream = client.responses.stream({ input, ...settings });
  stream.on("response.output_text.delta", ({ delta }) => (text += delta));
  const response = await stream.finalResponse();
  if (text !== response.output_text) throw new Error(`${text} is not ${response.output_text}`);
  return response;
}

const failure = (request) =>
  request.then(
    () => [],
    (error) => [error.status, error.code, error.param, Boolean(error.error.message)],
  );

const items = [{ role: "user", content: "What time is it?" }];
const first = await ask(items);
if (!(first.usage.total_tokens > 0)) throw new Error("no usage");
const calls = first.output.filter(({ type }) => type === "function_call");
const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "12:00" }));
const second = await ask([...items, ...first.output, ...results]);
if (second.status !== "completed" || second.instructions !== "Be short.") throw new Error(JSON.stringify(second));
const stranger = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
const errors = [
  await failure(client.responses.create({ model: "other", input: "x" })),
  await failure(client.responses.create({ model: "scripted", input: "x", previous_response_id: "resp_1" })),
  await failure(client.responses.retrieve("resp_1")),
  await failure(stranger.responses.create({ model: "scripted", input: "x" })),
  await failure(client.withOptions({ apiKey: barred }).responses.create({ model: "scripted", input: "x" })),
];
const functions = calls.map(({ name, arguments: text }) => ({ name, arguments: text }));
console.log(JSON.stringify({ text: first.output_text, calls: functions, answer: second.output_text, errors }));
