import { connect } from "@switchboard/messaging";
import { z } from "zod";

const serverUrl = process.env.SERVER_URL ?? "ws://127.0.0.1:3210";
const { WORKER_TOKEN = "", AGENT_TOKEN = "" } = process.env;

const worker = await connect({
  serverUrl,
  token: WORKER_TOKEN,
  channel: "lobby",
  handle: "my-worker",
  name: "My Worker",
  type: "worker",
  methods: {
    greet: {
      description: "Say hello",
      parameters: z.object({ name: z.string() }),
      execute: async (args) => `Hello, ${args.name}!`,
    },
  },
});

const agent = await connect({
  serverUrl,
  token: AGENT_TOKEN,
  channel: "lobby",
  handle: "my-agent",
  name: "My Agent",
  type: "agent",
});

const [method] = agent.discoverMethodDefsFrom(worker.clientId);
const { content } = await agent.callMethod(worker.clientId, method?.name ?? "", { name: "world" }).result;
console.log(content);

await agent.close();
await worker.close();
