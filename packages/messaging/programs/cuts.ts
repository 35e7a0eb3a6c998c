// Sends messages through a connection that is cut repeatedly, at any byte. Exits by itself.
import assert from "node:assert/strict";
import { createServer, connect as dial, type Socket } from "node:net";
import { z } from "zod";
import { join, serverUrl, setting } from "./support.js";

const rounds = Number(setting("ROUNDS"));

// A proxy to the gateway that breaks the connection after a number of bytes, each time a different one.
const { hostname, port } = new URL(serverUrl);
const sockets = new Set<Socket>();
let random = 7;
let cuts = 0;
let isCutting = false;
const proxy = createServer((near) => {
  const far = dial(Number(port), hostname);
  random = (Math.imul(random, 48_271) >>> 0) % 2_147_483_647;
  let left = 2_000 + (random % 15_000);
  const cut = () => {
    near.destroy();
    far.destroy();
  };
  const pass = (from: Socket, to: Socket) => {
    sockets.add(from);
    from.on("close", () => {
      sockets.delete(from);
      cut();
    });
    from.on("error", cut);
    from.on("data", (bytes) => {
      left -= isCutting ? bytes.length : 0;
      if (left > 0) return void to.write(bytes);
      cuts += 1;
      // Bytes before the cut still arrive, and may be half a frame.
      if (bytes.length + left > 0) to.write(bytes.subarray(0, bytes.length + left), cut);
      else cut();
    });
  };
  // The request reaches the gateway with the gateway's host name, because it accepts no other.
  near.on("error", cut);
  near.once("data", (head) => {
    far.write(head.toString("latin1").replace(/^host: .*$/im, `Host: ${hostname}:${port}`), "latin1");
    pass(near, far);
  });
  pass(far, near);
});
await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const address = proxy.address();
assert.ok(address !== null && typeof address === "object");
const through = { serverUrl: `ws://127.0.0.1:${address.port}`, reconnect: { delayMs: 1, maxDelayMs: 10 } };

let runs = 0;
const provider = await join("provider", {
  methods: {
    twice: {
      parameters: z.object({ n: z.number() }),
      async execute({ n }, context) {
        runs += 1;
        await context.stream(n);
        return 2 * n;
      },
    },
  },
});
const [writer, reader] = [await join("writer", through), await join("reader", through)];
const problems: Error[] = [];
for (const client of [provider, writer, reader]) client.onError((error) => problems.push(error));
isCutting = true;

const heard = reader.events();
const talk = async (lane: number) => {
  for (let round = 0; round < rounds; round += 1) {
    const { messageId } = await writer.send(`${lane}.${round}:`);
    await writer.update(messageId, "a");
    await writer.update(messageId, "b", { complete: true });
    const call = writer.callMethod(provider.clientId, "twice", { n: round });
    assert.equal((await call.result).content, 2 * round);
    const parts: unknown[] = [];
    for await (const chunk of call.stream) parts.push(chunk.content);
    assert.deepEqual(parts, [round, 2 * round]);
  }
};
const lanes = [0, 1, 2, 3];
const talking = Promise.all(lanes.map(talk));

// Each message with its updates, once, in the order of sending.
const whole = new Map<string, string>();
let [done, lastId] = [0, 0];
for await (const event of heard) {
  assert.ok(event.pubsubId !== undefined && event.pubsubId > lastId, `${event.pubsubId} after ${lastId}`);
  lastId = event.pubsubId;
  if (event.type === "message") whole.set(event.id, event.content);
  if (event.type !== "update-message") continue;
  whole.set(event.id, `${whole.get(event.id)}${event.content}`);
  if (event.complete) done += 1;
  if (event.complete && done % 20 === 0) console.log(`${done} through, ${cuts} cuts`);
  if (done === lanes.length * rounds) break;
}
await talking;
const expected = lanes.flatMap((lane) => Array.from({ length: rounds }, (_, round) => `${lane}.${round}:ab`));
assert.deepEqual([...whole.values()].sort(), expected.sort());
assert.equal(runs, lanes.length * rounds, "every call was run once");
assert.deepEqual(problems, []);
assert.ok(cuts >= 5, `only ${cuts} cuts`);
isCutting = false;
await Promise.all([writer.close(), reader.close(), provider.close()]);
proxy.close();
for (const socket of sockets) socket.destroy();
console.log("all well");
