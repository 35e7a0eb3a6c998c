// Methods: found in the roster, called, streamed, cancelled; every call has one end.
import { getEventListeners } from "node:events";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { AgenticError, type CallOptions, type MethodExecutionContext } from "../src/index.js";
import { join, serve, take } from "./support.js";

const search = {
  description: "Search for files",
  parameters: z.object({
    pattern: z.string().describe("Glob pattern"),
    maxResults: z.number().int().positive().default(100),
  }),
  returns: z.array(z.string()),
  timeout: 30_000,
  streaming: true,
  async execute({ pattern, maxResults }: { pattern: string; maxResults: number }, context: MethodExecutionContext) {
    await context.stream({ found: pattern });
    await context.progress(50);
    return [pattern, String(maxResults), context.callerId];
  },
};

async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const seen: T[] = [];
  for await (const value of values) seen.push(value);
  return seen;
}

test("methods are found with their schemas", async () => {
  const server = await serve();
  await join(server, "worker", { name: "My Worker", methods: { search } });
  const ann = await join(server, "ann");
  expect(ann.discoverMethodDefs()).toEqual([
    {
      providerId: "worker",
      providerName: "My Worker",
      name: "search",
      description: "Search for files",
      parameters: {
        type: "object",
        properties: {
          pattern: { type: "string", description: "Glob pattern" },
          maxResults: { type: "integer", exclusiveMinimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 100 },
        },
        required: ["pattern"],
      },
      returns: { type: "array", items: { type: "string" } },
      streaming: true,
      timeout: 30_000,
    },
  ]);
  expect(ann.discoverMethodDefsFrom("worker")).toHaveLength(1);
  expect(ann.discoverMethodDefsFrom("nobody")).toEqual([]);
});

test("a call gives its parts and its result", async () => {
  const server = await serve();
  await join(server, "worker", { methods: { search } });
  const ann = await join(server, "ann");
  const call = ann.callMethod("worker", "search", { pattern: "*.ts" });
  expect([call.complete, call.isError]).toEqual([false, false]);
  expect((await call.result).content).toEqual(["*.ts", "100", "ann"]);
  expect([call.complete, call.isError]).toEqual([true, false]);
  expect(await all(call.stream)).toMatchObject([
    { content: { found: "*.ts" }, complete: false },
    { progress: 50, complete: false },
    { content: ["*.ts", "100", "ann"], complete: true, isError: false },
  ]);
});

test("attachments of parts and of the result", async () => {
  const server = await serve();
  const image = crypto.getRandomValues(new Uint8Array(5000));
  await join(server, "worker", {
    methods: {
      draw: {
        parameters: z.object({}),
        async execute(_: unknown, context: MethodExecutionContext) {
          await context.streamWithAttachments({ index: 0 }, [{ id: "p", data: image, mimeType: "image/png" }], {
            contentType: "x/part",
          });
          return context.resultWithAttachments({ width: 512 }, [{ id: "i", data: image, mimeType: "image/png" }]);
        },
      },
    },
  });
  const ann = await join(server, "ann");
  const call = ann.callMethod("worker", "draw", {});
  const value = await call.result;
  expect(value.content).toEqual({ width: 512 });
  expect(value.attachments?.[0]?.data).toEqual(image);
  for await (const chunk of call.stream) {
    expect(chunk.contentType).toBe("x/part");
    expect(chunk.attachments?.[0]?.data).toEqual(image);
    break;
  }
});

test("what goes wrong has a code", async () => {
  const server = await serve();
  await join(server, "worker", {
    methods: {
      search,
      fails: { parameters: z.object({}), execute: () => Promise.reject(new Error("no luck")) },
      lies: { parameters: z.any(), returns: z.string(), execute: async () => 7 },
      unwritable: { parameters: z.any(), execute: async () => 7n },
      declines: {
        parameters: z.any(),
        execute: () => {
          throw new AgenticError("not here", "provider-offline");
        },
      },
    },
  });
  const ann = await join(server, "ann");
  const check = async (provider: string, method: string, args: unknown, code: string, options = {}) => {
    const call = ann.callMethod(provider, method, args, options);
    await expect(call.result).rejects.toMatchObject({ name: "AgenticError", code });
    expect([call.complete, call.isError]).toEqual([true, true]);
    return call;
  };
  /** The provider has not answered, so readers of the parts get the error. */
  const silent = async (...what: Parameters<typeof check>) => {
    await expect(all((await check(...what)).stream)).rejects.toMatchObject({ code: what[3] });
  };
  /** The answer is the last of the parts. */
  const told = async (...what: Parameters<typeof check>) => {
    const parts = await all((await check(...what)).stream);
    expect(parts.at(-1)).toMatchObject({ complete: true, isError: true, content: { code: what[3] } });
  };
  await silent("nobody", "search", {}, "provider-not-found");
  await silent("worker", "dance", {}, "method-not-found");
  await told("worker", "search", { pattern: 3 }, "validation-error");
  await silent("worker", "search", { pattern: 3 }, "validation-error", { validateArgs: search.parameters });
  await told("worker", "fails", {}, "execution-error");
  await told("worker", "lies", {}, "validation-error");
  await told("worker", "unwritable", {}, "execution-error");
  await told("worker", "declines", {}, "provider-offline");
  const cancelled = await check("worker", "search", { pattern: "x" }, "cancelled", { signal: AbortSignal.abort() });
  expect(await all(cancelled.stream), "who has cancelled it knows").toEqual([]);
});

test("a method that throws an AbortError was cancelled", async () => {
  const server = await serve();
  const execute = () => fetch("http://127.0.0.1:1", { signal: AbortSignal.abort() });
  await join(server, "worker", { methods: { fetches: { execute } } });
  const ann = await join(server, "ann");
  await expect(ann.callMethod("worker", "fetches").result).rejects.toMatchObject({ code: "cancelled" });
});

/** A method that runs until it is aborted. */
function endless() {
  let begin: (context: MethodExecutionContext) => void = () => {};
  const started = new Promise<MethodExecutionContext>((resolve) => {
    begin = resolve;
  });
  const execute = vi.fn(async (_: unknown, context: MethodExecutionContext) => {
    begin(context);
    await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
    return { cancelled: true };
  });
  return { started, execute, parameters: z.object({}) };
}

test("a cancel reaches the method, and the caller does not wait for it", async () => {
  const server = await serve();
  const wait = endless();
  await join(server, "worker", { methods: { wait } });
  const ann = await join(server, "ann");
  const results = ann.events();
  const call = ann.callMethod("worker", "wait", {});
  const { signal } = await wait.started;
  await call.cancel();
  await call.cancel();
  await expect(call.result).rejects.toMatchObject({ code: "cancelled" });
  expect(await all(call.stream)).toEqual([]);
  const [late] = await take(results, "method-result");
  expect(signal.aborted).toBe(true);
  expect(late).toMatchObject({ callId: call.callId, content: { cancelled: true }, complete: true });
});

test("an abort signal and a timeout cancel, too", async () => {
  const server = await serve();
  const [first, second] = [endless(), endless()];
  await join(server, "worker", { methods: { first, second: { ...second, timeout: 20 } } });
  const ann = await join(server, "ann");
  const abort = new AbortController();
  const aborted = ann.callMethod("worker", "first", {}, { signal: abort.signal });
  const one = await first.started;
  abort.abort();
  await expect(aborted.result).rejects.toMatchObject({ code: "cancelled" });
  const kept = new AbortController();
  await expect(ann.callMethod("worker", "none", {}, { signal: kept.signal }).result).rejects.toThrow();
  expect([abort, kept].flatMap(({ signal }) => getEventListeners(signal, "abort"))).toEqual([]);
  const late = ann.callMethod("worker", "second", {});
  const two = await second.started;
  await expect(late.result).rejects.toMatchObject({ code: "timeout" });
  await vi.waitFor(() => expect([one.signal.aborted, two.signal.aborted]).toEqual([true, true]));
});

test("progress restarts the method's own timeout, and not the caller's", async () => {
  const server = await serve();
  type Started = { context: MethodExecutionContext; end(result: string): void };
  let begin: (started: Started) => void = () => {};
  const execute = (_: unknown, context: MethodExecutionContext) =>
    new Promise<string>((end) => begin({ context, end }));
  await join(server, "worker", { methods: { short: { execute, timeout: 400 }, plain: { execute } } });
  const ann = await join(server, "ann");
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    /** Makes a call that reports progress every 300 ms, and ends after the third report. */
    const outcome = async (method: string, options?: CallOptions) => {
      const started = new Promise<Started>((resolve) => {
        begin = resolve;
      });
      const call = ann.callMethod("worker", method, {}, options);
      const { context, end } = await started;
      const parts = call.stream[Symbol.asyncIterator]();
      for (const percent of [25, 50, 75]) {
        vi.advanceTimersByTime(300);
        if (call.complete) break;
        await context.progress(percent);
        await parts.next();
      }
      end("done");
      return call.result.then(
        ({ content }) => content,
        (error: AgenticError) => error.code,
      );
    };
    expect(await outcome("short")).toBe("done");
    expect(await outcome("plain", { idleTimeoutMs: 400 })).toBe("done");
    expect(await outcome("short", { timeoutMs: 1000 })).toBe("done");
    expect(await outcome("short", { timeoutMs: 400 })).toBe("timeout");
    expect(await outcome("plain", { timeoutMs: 400, idleTimeoutMs: 1000 })).toBe("timeout");
    expect(await outcome("plain", { timeoutMs: 1000, idleTimeoutMs: 200 })).toBe("timeout");
  } finally {
    vi.useRealTimers();
  }
});

test("nobody else can answer a call or cancel it", async () => {
  const server = await serve();
  const wait = endless();
  await join(server, "worker", { methods: { wait } });
  const ann = await join(server, "ann");
  const call = ann.callMethod("worker", "wait", {});
  const { signal } = await wait.started;
  const events = ann.events();
  server.say("eve", "method-cancel", { callId: call.callId });
  server.say("eve", "method-result", { callId: call.callId, content: "forged", complete: true });
  await take(events, "method-result");
  expect([signal.aborted, call.complete]).toEqual([false, false]);
  await call.cancel();
});

test("a provider that leaves fails its calls", async () => {
  const server = await serve();
  const wait = endless();
  const worker = await join(server, "worker", { methods: { wait } });
  const ann = await join(server, "ann");
  const call = ann.callMethod("worker", "wait", {});
  const { signal } = await wait.started;
  await worker.close();
  await expect(call.result).rejects.toMatchObject({ code: "provider-offline" });
  expect(signal.aborted).toBe(true);
});

test("a closed client fails its calls", async () => {
  const server = await serve();
  const wait = endless();
  await join(server, "worker", { methods: { wait } });
  const ann = await join(server, "ann");
  const call = ann.callMethod("worker", "wait", {});
  await wait.started;
  await ann.close();
  await expect(call.result).rejects.toMatchObject({ code: "connection-error" });
});

test("calls run beside each other", async () => {
  const server = await serve();
  await join(server, "worker", {
    methods: { twice: { parameters: z.object({ n: z.number() }), execute: async ({ n }: { n: number }) => 2 * n } },
  });
  const ann = await join(server, "ann");
  const values = await Promise.all(
    Array.from({ length: 50 }, async (_, n) => (await ann.callMethod("worker", "twice", { n }).result).content),
  );
  expect(values).toEqual(Array.from({ length: 50 }, (_, n) => 2 * n));
});
