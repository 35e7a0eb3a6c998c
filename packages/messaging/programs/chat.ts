// Two participants exchange messages; others join later and read the history. Exits by itself.
import assert from "node:assert/strict";
import { createInterruptHandler, type IncomingEvent, isMessageTargetedAt } from "@natstack/agentic-messaging";
import { join, pattern, setting, until } from "./support.js";

const isMessage = (event: IncomingEvent) => event.type === "message";
const [ann, bob] = [await join("ann", { skipOwnMessages: true }), await join("bob", { handle: "robert" })];
const [all, targeted, passing] = [
  bob.events(),
  bob.events({ targetedOnly: true }),
  bob.events({ includeEphemeral: true }),
];

// A message that grows.
const { messageId, pubsubId } = await ann.send("Thinking", { persist: false });
assert.equal(pubsubId, undefined);
assert.equal(typeof (await ann.update(messageId, "...")), "number");
await ann.update(messageId, " more content");
await ann.complete(messageId);
const failing = await ann.send("Half a");
await ann.error(failing.messageId, "Something went wrong", "internal-error");
const begun = await until(passing, isMessage);
assert.deepEqual([begun.kind, begun.type === "message" && begun.content], ["ephemeral", "Thinking"]);
const whole: string[] = [];
for await (const event of all) {
  if (event.type === "update-message" && event.id === messageId) {
    whole.push(event.content ?? "");
    if (event.complete) break;
  }
}
assert.equal(whole.join(""), "... more content");

// Attachments and targets.
const data = pattern(3 << 20);
await ann.send("Check this out", {
  replyTo: failing.messageId,
  at: ["robert"],
  attachments: [
    { data, mimeType: "image/png" },
    { id: "small", data: new Uint8Array([1, 2]), mimeType: "a/b", name: "b" },
  ],
});
const forBob = (await targeted.next()).value;
assert.equal(forBob.content, "Check this out");
assert.ok(isMessageTargetedAt(forBob, bob.clientId, "robert"));
assert.ok(!isMessageTargetedAt(forBob, ann.clientId, "ann"));
assert.ok(Buffer.from(forBob.attachments[0].data).equals(data));
assert.equal(forBob.attachments[0].id, "img_1", "numbered by the server");
assert.deepEqual(forBob.attachments[1], {
  id: "small",
  data: new Uint8Array([1, 2]),
  mimeType: "a/b",
  name: "b",
  size: 2,
});

// Only the author may continue a message; the other participant gets an error.
await assert.rejects(bob.update(messageId, "mine now"), { name: "AgenticError" });

// Paused by a message of the protocol, through the transport.
const reason = new Promise<string>((resolve) => {
  const handler = createInterruptHandler({
    client: ann,
    messageId: failing.messageId,
    onPause: async (why) => resolve(why),
  });
  void handler.monitor();
});
await bob.pubsub.publish("execution-pause", { messageId: failing.messageId, status: "paused", reason: "dinner" });
assert.equal(await reason, "dinner");

// Participants that join later.
const replay = async (mode: "collect" | "stream" | "skip") => {
  const carol = await join("carol", { replayMode: mode });
  const seen: IncomingEvent[] = [];
  const events = carol.events({ includeReplay: true });
  await carol.send("I am here");
  for await (const event of events) {
    if (event.type === "message" && event.kind === "persisted") break;
    if (event.type !== "presence") seen.push(event);
  }
  await carol.close();
  return seen;
};
const collected = await replay("collect");
assert.deepEqual(
  collected.flatMap((event) => (event.type === "message" ? [[event.content, event.complete, event.error]] : [])),
  [
    ["... more content", true, undefined],
    ["Half a", false, "Something went wrong"],
    ["Check this out", false, undefined],
  ],
);
assert.ok(Buffer.from(collected.find((event) => event.attachments)?.attachments?.[0]?.data ?? []).equals(data));
assert.deepEqual((await replay("skip")).length, 0);
const streamed = await replay("stream");
assert.deepEqual(streamed.map(({ type }) => type).slice(0, 6), [
  ...["update-message", "update-message", "update-message", "message", "error", "message"],
]);
assert.ok(streamed.every(({ kind }) => kind === "replay"));

// History in pages.
const newest = await bob.pubsub.getMessagesBefore(Number.MAX_SAFE_INTEGER, 5);
assert.deepEqual([newest.messages.length, newest.hasMore], [5, true]);
const older = await bob.pubsub.getMessagesBefore(newest.messages[0]?.id ?? 0, 500);
assert.equal(older.hasMore, false);
assert.ok(older.messages.every(({ id }, at, page) => at === 0 || (page[at - 1]?.id ?? 0) < (id ?? 0)));

// A handle belongs to one participant.
await assert.rejects(join("carol", { handle: "robert" }), { name: "AgenticError", code: "handle-conflict" });
await assert.rejects(join("bob", { channel: "somewhere else", replayMode: "skip" }), { code: "connection-error" });
process.env.TOKEN_EVE = `${setting("TOKEN_BOB")}x`;
await assert.rejects(join("eve"), { code: "connection-error" });

await Promise.all([ann.close(), bob.close()]);
console.log("all well");
