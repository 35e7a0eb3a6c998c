// The types that a program's compiler sees.
import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import { z as z3 } from "zod/v3";
import {
  type AgenticClient,
  type AgenticErrorCode,
  type AgenticParticipantMetadata,
  type Attachment,
  type ConnectOptions,
  connect,
  createPauseMethodDefinition,
  createToolsForAgentSDK,
  type DiscoveredMethod,
  type IncomingEvent,
  type IncomingMessage,
  jsonSchemaToZod,
  jsonSchemaToZodRawShape,
  type MethodCallHandle,
  type MethodDefinition,
  type MethodExecutionContext,
  type MethodResultChunk,
  type MethodResultValue,
  type MethodResultWithAttachments,
} from "../src/index.js";

const base = { serverUrl: "ws://x", token: "t", channel: "c", handle: "h", name: "n", type: "agent" };

test("the arguments of each method are those of its schema", () => {
  void (() =>
    connect({
      ...base,
      methods: {
        greet: {
          parameters: z.object({ name: z.string(), times: z.number().default(1) }),
          execute: async (args, context) => {
            expectTypeOf(args).toEqualTypeOf<{ name: string; times: number }>();
            expectTypeOf(context).toEqualTypeOf<MethodExecutionContext>();
            return `Hello, ${args.name}!`;
          },
        },
        count: {
          parameters: z.object({ n: z.number() }),
          async execute(args, context) {
            expectTypeOf(args.n).toBeNumber();
            return context.resultWithAttachments({ n: args.n }, []);
          },
        },
        old: {
          parameters: z3.object({ name: z3.string() }),
          returns: z3.string(),
          execute: async (args) => {
            expectTypeOf(args).toEqualTypeOf<{ name: string }>();
            return args.name;
          },
        },
        plain: {
          parameters: { type: "object", properties: { n: { type: "number" } } },
          execute: async (args) => args.n,
        },
        bare: { execute: async () => 1 },
        pause: createPauseMethodDefinition(async () => {}),
      },
    }));
  expectTypeOf<MethodExecutionContext["resultWithAttachments"]>().returns.toEqualTypeOf<
    MethodResultWithAttachments<unknown>
  >();
});

test("a table of methods can be written beforehand, and metadata have a type of their own", () => {
  interface Mine extends AgenticParticipantMetadata {
    mood?: string;
  }
  const methods: Record<string, MethodDefinition> = {
    any: { parameters: z.object({}), execute: async (args) => args.whatever },
  };
  expectTypeOf(connect<Mine>({ ...base, methods })).resolves.toEqualTypeOf<AgenticClient<Mine>>();
  expectTypeOf<AgenticClient<Mine>["roster"][string]["metadata"]["mood"]>().toEqualTypeOf<string | undefined>();
});

test("what is required and what is not", () => {
  // @ts-expect-error: a participant has a handle.
  void (() => connect({ serverUrl: "ws://x", token: "t", channel: "c", name: "n", type: "agent" }));
  const parameters = z.object({ a: z.string() });
  // @ts-expect-error: there is no such argument.
  void (() => connect({ ...base, methods: { m: { parameters, execute: (args) => args.b } } }));
  expectTypeOf<typeof base>().toExtend<ConnectOptions>();
  expectTypeOf<Omit<typeof base, "handle">>().not.toExtend<ConnectOptions>();
  expectTypeOf<ConnectOptions["replayMode"]>().toEqualTypeOf<"collect" | "stream" | "skip" | undefined>();
});

test("events are told apart by their type", () => {
  const read = (event: IncomingEvent) => {
    if (event.type === "message") expectTypeOf(event.attachments).toEqualTypeOf<Attachment[] | undefined>();
    if (event.type === "update-message") expectTypeOf(event.complete).toEqualTypeOf<boolean | undefined>();
    if (event.type === "method-call") expectTypeOf(event.methodName).toBeString();
    if (event.type === "method-result") expectTypeOf(event.isError).toBeBoolean();
    if (event.type === "presence") expectTypeOf(event.action).toEqualTypeOf<"join" | "update" | "leave">();
  };
  expectTypeOf(read).parameter(0).toEqualTypeOf<IncomingEvent>();
  expectTypeOf<IncomingMessage["type"]>().toEqualTypeOf<"message" | "update-message" | "error">();
  expectTypeOf<AgenticClient["events"]>().returns.toEqualTypeOf<AsyncIterableIterator<IncomingEvent>>();
});

test("calls, tools, schemas, codes", () => {
  expectTypeOf<AgenticClient["callMethod"]>().returns.toEqualTypeOf<MethodCallHandle>();
  expectTypeOf<MethodCallHandle["result"]>().resolves.toEqualTypeOf<MethodResultValue>();
  expectTypeOf<MethodCallHandle["stream"]>().toEqualTypeOf<AsyncIterable<MethodResultChunk>>();
  expectTypeOf<MethodResultChunk["progress"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<DiscoveredMethod["streaming"]>().toBeBoolean();
  expectTypeOf(createToolsForAgentSDK)
    .parameter(1)
    .toEqualTypeOf<{ namePrefix?: string; filter?: (method: DiscoveredMethod) => boolean } | undefined>();
  expectTypeOf(jsonSchemaToZod({})).toExtend<z.ZodType>();
  expectTypeOf(z.object(jsonSchemaToZodRawShape({}))).toExtend<z.ZodObject>();
  expectTypeOf<"connection-error" | "provider-offline" | "timeout">().toExtend<AgenticErrorCode>();
});
