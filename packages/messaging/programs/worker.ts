// Provides methods, until a call of the method `stop`.
import { connect, createPauseMethodDefinition } from "@natstack/agentic-messaging";
import { z } from "zod";
import { channel, pattern, serverUrl, setting } from "./support.js";

const files = ["a.ts", "b.ts", "c.rs"];

const client = await connect({
  serverUrl,
  token: setting("TOKEN_WORKER"),
  channel,
  handle: "method-provider",
  name: "Method Provider",
  type: "worker",
  reconnect: { delayMs: 20, maxDelayMs: 100 },
  methods: {
    search: {
      description: "Search for files",
      parameters: z.object({
        pattern: z.string().describe("End of the name"),
        maxResults: z.number().int().positive().default(100),
      }),
      returns: z.array(z.string()),
      timeout: 30000,
      streaming: true,

      async execute(args, context) {
        const { signal } = context;
        const found = files.filter((file) => file.endsWith(args.pattern)).slice(0, args.maxResults);
        for (const [at, file] of found.entries()) {
          if (signal.aborted) break;
          await context.stream({ file, found: true });
          await context.progress(Math.round(((at + 1) / found.length) * 100));
        }
        return found;
      },
    },

    screenshot: {
      description: "Take a screenshot",
      parameters: z.object({ bytes: z.number() }),
      async execute(args, ctx) {
        return ctx.resultWithAttachments({ width: 1920, height: 1080, format: "png" }, [
          { id: "img_a", data: pattern(args.bytes), mimeType: "image/png", name: "screen.png" },
        ]);
      },
    },

    streamImages: {
      description: "Generate images progressively",
      parameters: z.object({ prompts: z.array(z.string()) }),
      streaming: true,
      async execute(args, ctx) {
        for (const [index, prompt] of args.prompts.entries()) {
          await ctx.streamWithAttachments({ prompt, index }, [
            { id: `img_${index + 1}`, data: pattern(1000 + index), mimeType: "image/png" },
          ]);
        }
        return { generated: args.prompts.length };
      },
    },

    longRunning: {
      description: "A cancellable long-running task",
      parameters: z.object({}),
      streaming: true,
      async execute(_args, ctx) {
        await ctx.progress(1);
        if (!ctx.signal.aborted) await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
        console.log("aborted");
        return { cancelled: true };
      },
    },

    broken: {
      parameters: z.object({}),
      execute: async () => {
        throw new Error("this one never works");
      },
    },

    huge: {
      description: "Returns more than a message may have",
      parameters: z.object({}),
      execute: async () => "x".repeat(2 << 20),
    },

    pause: createPauseMethodDefinition(async () => {
      console.log("pause requested");
    }),

    stop: {
      parameters: z.object({}),
      execute: async () => {
        setTimeout(() => void client.close(), 0);
        return "stopping";
      },
    },
  },
});

client.onError((error) => console.error(`Error: ${error.message}`));
console.log(`ready as ${client.clientId}`);
