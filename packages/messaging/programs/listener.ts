// Prints its events and errors, until a message says "stop". Exits by itself.
import { ValidationError } from "@natstack/agentic-messaging";
import { join } from "./support.js";

const client = await join("listener");
client.onError((error) => {
  const direction = error instanceof ValidationError ? error.direction : "none";
  console.log(`error ${direction}: ${error.name}`);
});
const events = client.events();
console.log("listening");
for await (const event of events) {
  if (event.type !== "message") continue;
  console.log(`heard ${event.content} from ${event.senderId}`);
  if (event.content === "stop") break;
}
client.close();
