// `events()` gives each reader the requested events, from the moment of the call.
import { expect, test } from "vitest";
import { join, serve, take } from "./support.js";

test("only messages that name this participant, by id or handle", async () => {
  const server = await serve();
  const [ann, bob] = [await join(server, "ann"), await join(server, "bob", { handle: "robert" })];
  const events = bob.events({ targetedOnly: true });
  await ann.send("to all");
  await ann.send("to somebody else", { at: ["carol"] });
  await ann.send("by id", { at: ["bob"] });
  await ann.send("by handle", { at: ["@robert", "carol"] });
  const seen = [await events.next(), await events.next()];
  expect(seen.map(({ value }) => value.content)).toEqual(["by id", "by handle"]);
});

test("own messages are left out on demand", async () => {
  const server = await serve();
  const ann = await join(server, "ann", { skipOwnMessages: true });
  const bob = await join(server, "bob");
  const [anns, bobs] = [ann.events(), bob.events()];
  await ann.send("mine");
  await bob.send("yours");
  expect((await take(anns, "message"))[0]?.content).toBe("yours");
  expect((await take(bobs, "message", 2)).map(({ content }) => content)).toEqual(["mine", "yours"]);
});

test("a reader that leaves is forgotten, and all end with the client", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const [left, stays] = [ann.events(), ann.events()];
  for await (const event of left) {
    expect(event.type).toBe("presence");
    break;
  }
  expect(await left.next()).toEqual({ done: true, value: undefined });
  await ann.send("x");
  await take(stays, "message");
  await ann.close();
  expect(await stays.next()).toEqual({ done: true, value: undefined });
  expect(await ann.events().next()).toEqual({ done: true, value: undefined });
  await expect(ann.send("too late")).rejects.toMatchObject({ code: "connection-error" });
});

test("what comes right after connecting is not missed", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  server.say("eve", "message", { id: "1", content: "first" });
  const events = ann.events();
  expect((await take(events, "message"))[0]?.content).toBe("first");
});

test("presence, and the roster that it makes", async () => {
  const server = await serve();
  const ann = await join(server, "ann");
  const events = ann.events();
  const updates: string[][] = [];
  const stop = ann.onRoster(({ participants }) => updates.push(Object.keys(participants)));
  const bob = await join(server, "bob", { extraMetadata: { mood: "good" } });
  expect(bob.clientId).toBe("bob");
  expect(Object.keys(bob.roster)).toEqual(["ann", "bob"]);
  const [join1, update] = (await take(events, "presence", 4)).slice(-2);
  expect(join1).toMatchObject({ senderId: "bob", action: "join" });
  expect(update).toMatchObject({ senderId: "bob", action: "update", metadata: { handle: "bob", mood: "good" } });
  expect(ann.roster.bob?.metadata).toMatchObject({ name: "bob", type: "test", handle: "bob", methods: [] });
  await bob.close();
  const [left] = await take(events, "presence");
  expect(left).toMatchObject({ action: "leave", leaveReason: "disconnect" });
  expect(ann.roster.bob).toBeUndefined();
  expect(updates.at(-1)).toEqual(["ann"]);
  stop();
  const before = updates.length;
  await join(server, "carol");
  expect(updates.length).toBe(before);
});
