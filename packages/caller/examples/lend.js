// A caller for the tests of the gateway: offers a few functions, and prints its events.
import { startSession } from "../index.js";

const [gateway, token] = process.argv.slice(2);
const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
const session = await startSession({
  gateway,
  token,
  callerId: "ant",
  message: "work",
  tools: {
    double: { description: "Doubles", inputSchema: schema, run: ({ n }) => n * 2 },
    fail: {
      run: async () => {
        throw new Error("it failed");
      },
    },
    hang: {
      run: (_, signal) => {
        console.log("hanging");
        return new Promise((_, reject) => {
          signal.addEventListener("abort", () => {
            console.log("aborted");
            reject(new Error("aborted"));
          });
        });
      },
    },
  },
});
console.log(JSON.stringify(session.about));
await session.ended;
console.log("ended");
