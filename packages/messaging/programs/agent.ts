// Finds the methods of the worker and calls them in all possible ways. Exits by itself.
import assert from "node:assert/strict";
import { AgenticError, connect, createToolsForAgentSDK, type MethodResultChunk } from "@natstack/agentic-messaging";
import { z } from "zod";
import { channel, pattern, serverUrl, setting, until } from "./support.js";

const client = await connect({
  serverUrl,
  token: setting("TOKEN_AGENT"),
  channel,
  handle: "my-agent",
  name: "My Agent",
  type: "agent",
});

// The roster and its methods.
const worker = Object.values(client.roster).find(({ metadata }) => metadata.handle === "method-provider");
assert.ok(worker);
assert.equal(worker.metadata.name, "Method Provider");
assert.equal(client.roster[client.clientId]?.metadata.type, "agent");
const search = client.discoverMethodDefs().find(({ name }) => name === "search");
assert.equal(search?.providerId, worker.id);
assert.deepEqual([search?.providerName, search?.streaming, search?.timeout], ["Method Provider", true, 30000]);
assert.equal(client.discoverMethodDefsFrom(worker.id).length, 8);

// A result, with its parts.
const result = client.callMethod(
  worker.id,
  "search",
  { pattern: ".ts" },
  { timeoutMs: 20000, validateArgs: z.object({ pattern: z.string() }) },
);
const chunks: MethodResultChunk[] = [];
for await (const chunk of result.stream) chunks.push(chunk);
assert.deepEqual((await result.result).content, ["a.ts", "b.ts"]);
assert.deepEqual(
  chunks.map(({ content, progress, complete }) => content ?? progress ?? complete),
  [{ file: "a.ts", found: true }, 50, { file: "b.ts", found: true }, 100, ["a.ts", "b.ts"]],
);
assert.deepEqual([result.complete, result.isError], [true, false]);

// Attachments of several megabytes, compared byte for byte.
const megabytes = 8 << 20;
const shot = await client.callMethod(worker.id, "screenshot", { bytes: megabytes }).result;
assert.deepEqual(shot.content, { width: 1920, height: 1080, format: "png" });
const [image] = shot.attachments ?? [];
assert.deepEqual(
  [image?.id, image?.mimeType, image?.name, image?.size],
  ["img_a", "image/png", "screen.png", megabytes],
);
assert.ok(Buffer.from(image?.data ?? []).equals(pattern(megabytes)));
const images = client.callMethod(worker.id, "streamImages", { prompts: ["one", "two"] });
const parts: MethodResultChunk[] = [];
for await (const chunk of images.stream) parts.push(chunk);
assert.deepEqual(
  parts.map(({ attachments }) => attachments?.[0]?.data.byteLength),
  [1000, 1001, undefined],
);

// A cancel reaches the worker, which reports it in its last result.
const events = client.events();
const long = client.callMethod(worker.id, "longRunning", {});
for await (const chunk of long.stream) {
  assert.equal(chunk.progress, 1);
  break;
}
await long.cancel();
await assert.rejects(long.result, { code: "cancelled" });
const last = await until(
  events,
  (event) => event.type === "method-result" && event.callId === long.callId && event.complete,
);
assert.deepEqual(last.type === "method-result" && last.content, { cancelled: true });

// A timeout does so too.
const late = client.callMethod(worker.id, "longRunning", {}, { timeoutMs: 50 });
await assert.rejects(late.result, { code: "timeout" });
await until(events, (event) => event.type === "method-result" && event.callId === late.callId && event.complete);

// Each error has a code.
const failures: [string, string, unknown, string][] = [
  ["nobody", "search", {}, "provider-not-found"],
  [worker.id, "dance", {}, "method-not-found"],
  [worker.id, "search", { pattern: 7 }, "validation-error"],
  [worker.id, "broken", {}, "execution-error"],
  [worker.id, "huge", {}, "execution-error"],
];
for (const [provider, method, args, code] of failures) {
  try {
    await client.callMethod(provider, method, args).result;
    assert.fail(`${method} should have failed`);
  } catch (error) {
    assert.ok(error instanceof AgenticError, String(error));
    assert.equal(error.code, code);
  }
}

// The same methods as tool definitions for a model.
const { definitions, execute } = createToolsForAgentSDK(client, { namePrefix: "pubsub" });
const tool = definitions.find(({ name }) => name === `pubsub_${worker.id}_search`);
assert.ok(tool);
assert.deepEqual(await execute(tool.name, { pattern: ".rs" }), ["c.rs"]);
const paused = await execute(`pubsub_${worker.id}_pause`, { reason: "look" });
assert.deepEqual(paused, { paused: true, reason: "look" });

// The gateway's own tools are methods of the gateway.
await assert.rejects(client.callMethod("switchboard", "no_such_tool", {}).result, { code: "method-not-found" });

await client.callMethod(worker.id, "stop", {}).result;
await until(events, (event) => event.type === "presence" && event.senderId === worker.id && event.action === "leave");
await assert.rejects(client.callMethod(worker.id, "search", {}).result, { code: "provider-not-found" });
client.close();
console.log("all well");
