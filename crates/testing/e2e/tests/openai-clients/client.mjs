// A conversation with OpenAI's JavaScript client: where it is installed, URL, TOKEN and MODE (whole or stream) are its
// arguments.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [place, baseURL, apiKey, mode] = process.argv.slice(2);
const entry = createRequire(`${place}/`).resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(entry).href);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = "scripted";
const parameters = { type: "object", properties: { zone: { type: "string" } } };
const tools = [{ type: "function", function: { name: "get_time", parameters } }];

async function ask(messages) {
  if (mode === "whole") {
    const completion = await client.chat.completions.create({ model, messages, tools });
    return completion.choices[0].message;
  }
  const stream = client.chat.completions.stream({ model, messages, tools, stream_options: { include_usage: true } });
  for await (const _ of stream);
  const completion = await stream.finalChatCompletion();
  if (!(completion.usage.total_tokens > 0)) throw new Error("no usage");
  return completion.choices[0].message;
}

const messages = [{ role: "user", content: "What time is it?" }];
const message = await ask(messages);
messages.push(message);
for (const call of message.tool_calls) messages.push({ role: "tool", tool_call_id: call.id, content: "12:00" });
const answer = (await ask(messages)).content;
const error = await client.chat.completions.create({ model: "other", messages }).then(
  () => null,
  (failure) => [failure.status, failure.code],
);
const models = [];
for await (const listed of client.models.list()) models.push(listed.id);
const calls = message.tool_calls.map(({ function: { name, arguments: text } }) => ({ name, arguments: text }));
console.log(JSON.stringify({ models, calls, answer, error }));
