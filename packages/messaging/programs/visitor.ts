// Uses the methods of a participant in another language, and the tools behind the gateway. Exits by itself.
import assert from "node:assert/strict";
import {
  AgenticError,
  createToolsForAgentSDK,
  type IncomingEvent,
  type MethodResultChunk,
} from "@natstack/agentic-messaging";
import { join, pattern, until } from "./support.js";

const client = await join("visitor");
const provider = "native";
const events = client.events({ includeEphemeral: true });

// Its metadata.
const described = client.discoverMethodDefsFrom(provider);
assert.deepEqual(described.map(({ name }) => name).sort(), ["broken", "images", "picture", "wait", "word"]);
const images = described.find(({ name }) => name === "images");
assert.deepEqual([images?.streaming, images?.timeout], [true, 20000]);
const { count } = (images?.parameters.properties ?? {}) as { count?: { type: string } };
assert.equal(count?.type, "integer");

// A result with unchanged bytes.
const picture = await client.callMethod(provider, "picture", { bytes: 3 << 20 }).result;
assert.deepEqual(picture.content, { size: 3 << 20 });
assert.equal(picture.contentType, "application/x-picture");
const [image] = picture.attachments ?? [];
assert.deepEqual([image?.id, image?.mimeType, image?.name], ["pic", "image/png", "picture.png"]);
assert.ok(Buffer.from(image?.data ?? []).equals(pattern(3 << 20)));

// Parts, with bytes and with progress, in order.
const parts: MethodResultChunk[] = [];
const streaming = client.callMethod(provider, "images", { count: 3 });
for await (const part of streaming.stream) parts.push(part);
assert.deepEqual((await streaming.result).content, { sent: 3 });
assert.deepEqual(
  parts.map(({ content, progress, complete }) => content ?? progress ?? complete),
  [{ index: 0 }, 33, { index: 1 }, 67, { index: 2 }, 100, { sent: 3 }],
);
for (const [index, { attachments }] of parts.filter((part) => part.attachments).entries()) {
  assert.ok(Buffer.from(attachments?.[0]?.data ?? []).equals(pattern(1000 + index)));
}

// A cancel reaches the provider, and every listener gets its last result.
const waiting = client.callMethod(provider, "wait", {});
for await (const part of waiting.stream) {
  assert.equal(part.content, "waiting");
  break;
}
await waiting.cancel();
await assert.rejects(waiting.result, { code: "cancelled" });
const isLast = (id: string) => (event: IncomingEvent) =>
  event.type === "method-result" && event.callId === id && event.complete;
const last = await until(events, isLast(waiting.callId));
assert.equal(last.type === "method-result" && last.content, "stopped");
const abort = new AbortController();
const aborted = client.callMethod(provider, "wait", {}, { signal: abort.signal });
for await (const _ of aborted.stream) break;
abort.abort();
await assert.rejects(aborted.result, { code: "cancelled" });
await until(events, isLast(aborted.callId));

// Each error has a code.
const failures: [string, string, unknown, string][] = [
  [provider, "broken", {}, "execution-error"],
  [provider, "picture", { bytes: "many" }, "validation-error"],
  [provider, "dance", {}, "method-not-found"],
  ["toString", "dance", {}, "provider-not-found"],
  ["__proto__", "dance", {}, "provider-not-found"],
  ["switchboard", "demo.nothing.here", {}, "method-not-found"],
];
for (const [who, method, args, code] of failures) {
  await assert.rejects(client.callMethod(who, method, args).result, (error) => {
    assert.ok(error instanceof AgenticError);
    assert.equal(error.code, code, `${who} ${method}: ${error.message}`);
    return true;
  });
}

// The same as tools for a model, and a tool on a node.
const { definitions, execute } = createToolsForAgentSDK(client);
assert.ok(definitions.some(({ name }) => name === "pubsub_native_word"));
assert.equal(await execute("pubsub_native_word", {}), "wörd \u{1f44b}");
const withBytes = (await execute("pubsub_native_picture", { bytes: 5 })) as { attachments: { data: Uint8Array }[] };
assert.deepEqual(withBytes.attachments[0]?.data, pattern(5));
const ofGateway = client.discoverMethodDefs().filter(({ providerId }) => providerId === "switchboard");
assert.deepEqual(
  ofGateway.map(({ name }) => name),
  ["demo_echo"],
);
assert.equal(ofGateway[0]?.parameters.type, "object");
assert.deepEqual(client.discoverMethodDefsFrom("switchboard"), ofGateway);
const echo = definitions.find(({ name }) => name === "pubsub_switchboard_demo_echo");
assert.ok(echo?.description?.startsWith("["), echo?.description);
assert.deepEqual(await execute("pubsub_switchboard_demo_echo", { n: 7 }), { n: 7 });
const echoed = await client.callMethod("switchboard", "demo.echo", { "__proto__ ": [1, null, "é"] }).result;
assert.deepEqual(echoed.content, { "__proto__ ": [1, null, "é"] });

// Bytes in a message, in both directions.
await client.send("take this", {
  at: [provider],
  attachments: [{ id: "all", data: pattern(70_000), mimeType: "application/octet-stream" }],
});
const back = await until(events, (event) => event.type === "message" && event.senderId === provider);
assert.equal(back.type === "message" && back.content, "got it");
assert.ok(Buffer.from(back.attachments?.[0]?.data ?? []).equals(pattern(70_000).reverse()));
await client.close();
console.log("all well");
