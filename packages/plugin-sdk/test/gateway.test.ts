// The gateway handlers forward the parts that a plugin call needs, and no credentials of the sender.
// @vitest-environment node

import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  createGatewayOnEdgeRuntime,
  createGatewayOnNodeRuntime,
  createSperaxChatPluginGateway,
  createSperaxPluginGateway,
} from "../src/gateway.js";

interface Seen {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingHttpHeaders;
  body: string;
}

let servers: Server[];
let seen: Seen[];
let url: string;

async function listen(server: Server): Promise<string> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

beforeEach(async () => {
  [servers, seen] = [[], []];
  url = await listen(
    createServer(async (request, response) => {
      let body = "";
      for await (const part of request) body += part;
      seen.push({ method: request.method, url: request.url, headers: request.headers, body });
      response
        .writeHead(422, { "content-type": "application/json", "set-cookie": "a=b" })
        .end('{"errorType":"PluginApiParamsError"}');
    }),
  );
});

afterEach(() => vi.unstubAllEnvs());
afterEach(() => Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve)))));

const BODY = '{"identifier":"w","apiName":"weather"}';
const SENT = {
  authorization: "Bearer the caller's",
  cookie: "session=secret",
  "content-type": "application/json",
  "sperax-plugin-settings": '{"apiKey":"k"}',
};

function expectForwarded(): void {
  expect(seen).toHaveLength(1);
  const [{ method, url: path, headers, body }] = seen as [Seen];
  expect({ method, path, body }).toEqual({ method: "POST", path: "/api/gateway", body: BODY });
  expect(headers.authorization).toBe("Bearer ours");
  expect(headers.cookie).toBeUndefined();
  expect(headers["sperax-plugin-settings"]).toBe('{"apiKey":"k"}');
}

test("a web request is passed on and its answer passed back", async () => {
  const handler = createSperaxChatPluginGateway({ url, token: "ours" });
  const response = await handler(
    new Request("http://app.example/api/gateway", { method: "POST", headers: SENT, body: BODY }),
  );
  expectForwarded();
  expect(response.status).toBe(422);
  expect(response.headers.get("set-cookie")).toBeNull();
  expect(response.headers.get("access-control-allow-origin")).toBe("*");
  expect(await response.json()).toEqual({ errorType: "PluginApiParamsError" });
});

test.each([false, true])("a Node request is, too (body parsed already: %s)", async (parsed) => {
  const handler = createGatewayOnNodeRuntime({ url, token: "ours" });
  const address = await listen(
    createServer((request, response) => {
      void handler(parsed ? Object.assign(request, { body: JSON.parse(BODY) as unknown }) : request, response);
    }),
  );
  const response = await fetch(address, { method: "POST", headers: SENT, body: BODY });
  expectForwarded();
  expect(response.status).toBe(422);
  expect(await response.json()).toEqual({ errorType: "PluginApiParamsError" });
});

test("a page is told what it may send", async () => {
  const handler = createSperaxChatPluginGateway({ url, allowOrigin: "https://chat.example" });
  const response = await handler(new Request("http://app.example/", { method: "OPTIONS" }));
  expect(response.status).toBe(204);
  expect(response.headers.get("access-control-allow-origin")).toBe("https://chat.example");
  expect(response.headers.get("access-control-allow-headers")).toContain("SperaxOS-Plugin-Settings");
});

test("only POST goes through", async () => {
  const response = await createSperaxChatPluginGateway({ url })(new Request("http://app.example/"));
  expect(response.status).toBe(405);
  expect(seen).toEqual([]);
});

test("what is too large stays here", async () => {
  const handler = createGatewayOnNodeRuntime({ url, maxBytes: 10 });
  const address = await listen(createServer((request, response) => void handler(request, response)));
  for (const response of [
    await createSperaxChatPluginGateway({ url, maxBytes: 10 })(
      new Request("http://app.example/", { method: "POST", body: BODY }),
    ),
    await fetch(address, { method: "POST", body: BODY }),
  ]) {
    expect(response.status).toBe(413);
  }
  expect(seen).toEqual([]);
});

test("templates know the web handler by other names", () => {
  expect([createSperaxPluginGateway, createGatewayOnEdgeRuntime]).toEqual([
    createSperaxChatPluginGateway,
    createSperaxChatPluginGateway,
  ]);
});

test("an empty SWITCHBOARD_URL counts as unset", async () => {
  vi.stubEnv("SWITCHBOARD_URL", "");
  const asked = vi.fn<typeof fetch>(async () => new Response("{}"));
  await createSperaxChatPluginGateway({ fetch: asked })(
    new Request("http://app.example/", { method: "POST", body: BODY }),
  );
  expect(String(asked.mock.calls[0]?.[0])).toBe("http://127.0.0.1:3210/api/gateway");
});

test("a gateway that is not there is a gateway error", async () => {
  const handler = createSperaxChatPluginGateway({ url: "http://127.0.0.1:1" });
  const response = await handler(new Request("http://app.example/", { method: "POST", body: BODY }));
  expect(response.status).toBe(502);
  expect(await response.json()).toMatchObject({ errorType: "PluginGatewayError" });
});

test("a request without an end is given up at the limit", async () => {
  let sent = 0;
  let cancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    pull(controller) {
      sent += 1024;
      controller.enqueue(new Uint8Array(1024));
    },
    cancel() {
      cancelled = true;
    },
  });
  const handler = createSperaxChatPluginGateway({ url, token: "ours", maxBytes: 10_000 });
  const init = { method: "POST", body: endless, duplex: "half" } as RequestInit;
  const response = await handler(new Request("http://gateway.example/", init));
  expect(response.status).toBe(413);
  expect(cancelled).toBe(true);
  expect(sent).toBeLessThan(20_000);
  expect(seen).toEqual([]);
});
