// A web page that is a participant of a channel. Its address has the parameters.
import { connect } from "@switchboard/messaging";
import { z } from "zod";

const query = new URLSearchParams(location.search);
const said = document.body.appendChild(document.createElement("ul"));
const say = (text: string) => {
  said.appendChild(document.createElement("li")).textContent = text;
};

const client = await connect({
  serverUrl: query.get("server") ?? "",
  token: query.get("token") ?? "",
  channel: query.get("channel") ?? "",
  handle: "web-page",
  name: document.title,
  type: "panel",
  reconnect: { delayMs: 20, maxDelayMs: 100 },
  methods: {
    read: {
      description: "Reads what the page shows",
      parameters: z.object({ selector: z.string() }),
      execute: async ({ selector }) => document.querySelector(selector)?.textContent ?? null,
    },
    draw: {
      description: "Draws a square, and gives back its picture",
      parameters: z.object({ size: z.number().int().max(512), color: z.string() }),
      streaming: true,
      async execute({ size, color }, context) {
        const canvas = new OffscreenCanvas(size, size);
        const pen = canvas.getContext("2d");
        if (!pen) throw new Error("this browser cannot draw");
        pen.fillStyle = color;
        pen.fillRect(0, 0, size, size);
        await context.progress(50);
        const data = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
        return context.resultWithAttachments({ size, bytes: data.length }, [
          { id: "square", data, mimeType: "image/png" },
        ]);
      },
    },
  },
});
client.onReconnect(() => say("reconnected"));
say(`joined as ${client.clientId}`);
for await (const event of client.events()) {
  if (event.type === "message") say(`${event.senderId}: ${event.content}`);
}
