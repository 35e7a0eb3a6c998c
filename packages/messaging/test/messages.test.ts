// Messages are validated when they are sent and received, and arrive complete and in order.
import { expect, test } from "vitest";
import { AgenticError, ValidationError } from "../src/index.js";
import { join, serve, take } from "./support.js";

test("a message, its updates, its end", async () => {
  const server = await serve();
  const [ann, bob] = [await join(server, "ann"), await join(server, "bob")];
  const events = bob.events();
  const { messageId, pubsubId } = await ann.send("Thinking", { replyTo: "earlier", at: ["bob"] });
  expect(pubsubId).toBeTypeOf("number");
  expect(messageId).toMatch(/^[0-9a-f-]{36}$/);
  expect(await ann.update(messageId, "...")).toBeGreaterThan(pubsubId as number);
  await ann.complete(messageId);
  await ann.error(messageId, "Something went wrong", "internal-error");
  const [message] = await take(events, "message");
  expect(message).toMatchObject({
    id: messageId,
    content: "Thinking",
    replyTo: "earlier",
    at: ["bob"],
    senderId: "ann",
  });
  expect(message).toMatchObject({ kind: "persisted", pubsubId, senderMetadata: { handle: "ann" } });
  const updates = await take(events, "update-message", 2);
  expect(updates).toMatchObject([{ content: "..." }, { complete: true }]);
  const [error] = await take(events, "error");
  expect(error).toMatchObject({ id: messageId, error: "Something went wrong", code: "internal-error" });
});

test("what is not stored has no id, and is only for those who want it", async () => {
  const server = await serve();
  const [ann, bob] = [await join(server, "ann"), await join(server, "bob")];
  const [stored, all] = [bob.events(), bob.events({ includeEphemeral: true })];
  const { messageId, pubsubId } = await ann.send("passing", { persist: false });
  expect(pubsubId).toBeUndefined();
  expect(await ann.update(messageId, "!", { persist: false })).toBeUndefined();
  await ann.send("stored");
  expect((await take(stored, "message"))[0]?.content).toBe("stored");
  expect((await take(all, "message", 2)).map(({ content, kind }) => [content, kind])).toEqual([
    ["passing", "ephemeral"],
    ["stored", "persisted"],
  ]);
});

test("attachments arrive byte for byte", async () => {
  const server = await serve();
  const [ann, bob] = [await join(server, "ann"), await join(server, "bob")];
  const events = bob.events();
  const data = crypto.getRandomValues(new Uint8Array(60_000));
  await ann.send("look", {
    attachments: [
      { id: "img_1", data, mimeType: "image/png", name: "a.png" },
      { id: "none", data: new ArrayBuffer(0), mimeType: "text/plain" },
    ],
  });
  const [message] = await take(events, "message");
  expect(message?.attachments).toEqual([
    { id: "img_1", data, mimeType: "image/png", name: "a.png", size: 60_000 },
    { id: "none", data: new Uint8Array(0), mimeType: "text/plain", size: 0 },
  ]);
});

test("what does not fit the protocol is not sent", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const errors: Error[] = [];
  ann.onError((error) => errors.push(error));
  const before = server.received.length;
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  for (const send of [
    ann.send(42 as unknown as string),
    ann.send("x", { at: "bob" as unknown as string[] }),
    ann.update("", "x"),
    ann.send("x", { metadata: circular }),
    ann.send("x", { attachments: [{ data: "text" as unknown as Uint8Array, mimeType: "text/plain" }] }),
  ]) {
    await expect(send).rejects.toBeInstanceOf(ValidationError);
  }
  expect(server.received.length).toBe(before);
  expect(errors).toHaveLength(5);
  for (const error of errors) expect(error).toMatchObject({ direction: "send", code: "validation-error" });
  expect(errors[0]).toBeInstanceOf(AgenticError);
});

test("what comes and does not fit is reported and left out", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const events = ann.events({ includeEphemeral: true });
  const errors: Error[] = [];
  ann.onError((error) => errors.push(error));
  server.raw("{ not json");
  server.raw('["a list"]');
  server.raw('{"kind":"persisted","type":"message"}');
  server.raw('{"kind":"something-new"}');
  server.raw(Buffer.from([7, 1, 2, 3]));
  server.raw(Buffer.from([0, 255, 255, 255, 255, 1]));
  server.say("eve", "message", { id: "1", content: { not: "text" } });
  server.say("eve", "method-result", { content: "for no call" });
  server.say("eve", "presence", "nonsense");
  server.say("eve", "custom", { any: "thing" });
  server.say("eve", "message", { id: "2", content: "fine", more: true });
  const [message] = await take(events, "message");
  expect(message).toMatchObject({ id: "2", content: "fine" });
  expect(errors.map((error) => (error as ValidationError).direction)).toEqual(Array(7).fill("receive"));
  for (const error of errors) expect(error).toBeInstanceOf(ValidationError);
  expect((errors.at(-1) as ValidationError).details).toMatchObject([{ path: ["callId"] }]);
});

test("other types go through the transport", async () => {
  const server = await serve();
  const [ann, bob] = [await join(server, "ann"), await join(server, "bob")];
  const custom = new Promise((resolve) => {
    bob.pubsub.onMessage((message) => message.type === "custom-type" && resolve(message.payload));
  });
  expect(await ann.pubsub.publish("custom-type", { data: "raw" })).toBeTypeOf("number");
  expect(await custom).toEqual({ data: "raw" });
});
