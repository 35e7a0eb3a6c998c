// A writer and a reader, while the gateway is killed and restarted. Exits by itself when all numbers have arrived.
import assert from "node:assert/strict";
import { z } from "zod";
import { join, setting } from "./support.js";

const total = Number(setting("TOTAL"));
const inFlight = 8;
let finishWork: () => void = () => {};
let workStarted: () => void = () => {};
const working = new Promise<void>((resolve) => {
  workStarted = resolve;
});

const writer = await join("writer");
const reader = await join("reader", {
  methods: {
    work: {
      description: "Takes until the last number is through",
      parameters: z.object({}),
      execute: () =>
        new Promise((resolve) => {
          finishWork = () => resolve("done");
          workStarted();
        }),
    },
  },
});
for (const [name, client] of Object.entries({ writer, reader })) {
  client.onDisconnect(() => console.log(`${name} disconnected`));
  client.onReconnect(() => console.log(`${name} reconnected`));
  client.onError((error) => console.error(`${name}: ${error.message}`));
}

const events = reader.events();
const call = writer.callMethod(reader.clientId, "work", {}, { timeoutMs: 120_000 });
await working;

const acknowledged = new Map<string, number>();
let next = 0;
const write = async () => {
  while (next < total) {
    const content = String(next++);
    const { pubsubId } = await writer.send(content);
    assert.equal(typeof pubsubId, "number");
    acknowledged.set(content, pubsubId as number);
    if (acknowledged.size % 50 === 0) console.log(`acknowledged ${acknowledged.size}`);
  }
};
const writing = Promise.all(Array.from({ length: inFlight }, write));

const read = new Map<string, number>();
let lastId = 0;
for await (const event of events) {
  assert.ok(event.pubsubId !== undefined && event.pubsubId > lastId, `${event.pubsubId} after ${lastId}`);
  lastId = event.pubsubId;
  if (event.type !== "message") continue;
  assert.ok(!read.has(event.content), `${event.content} came twice`);
  read.set(event.content, event.pubsubId);
  if (read.size === total) break;
}
await writing;
assert.deepEqual([...acknowledged].sort(), [...read].sort(), "what was acknowledged is what was read");

// The call was made before the first kill.
finishWork();
assert.equal((await call.result).content, "done");
// The gateway is in the roster of a token that includes tools.
assert.deepEqual(Object.keys(writer.roster).sort(), [writer.clientId, reader.clientId, "switchboard"].sort());
await Promise.all([writer.close(), reader.close()]);
console.log("all well");
