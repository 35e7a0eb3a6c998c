import { WebSocket, WebSocketServer } from "ws";

/** A message as the server stores it. */
interface Stored {
  id?: number;
  type: string;
  payload: unknown;
  senderId: string;
  ts: number;
  senderMetadata: unknown;
  bytes?: Buffer;
  attachmentMeta?: unknown;
}

export interface ServerOptions {
  /** Whether publishes are dropped after they are stored and before they are answered: only the answer is lost. */
  loseAnswers?: (frame: { type: string; payload: unknown }) => boolean;
  /** Whether an introduction is answered with its reference. */
  answersIntroductions?: boolean;
}

/**
 * A server of the protocol's first version, without extensions: the package must also work without a gateway. The token
 * is the name of the participant.
 */
export class PlainServer {
  readonly log: Stored[] = [];
  /** Every received frame, in order. */
  readonly received: Record<string, unknown>[] = [];
  readonly #server: WebSocketServer;
  readonly #present = new Map<WebSocket, { id: string; metadata: unknown }>();
  readonly #options: ServerOptions;

  static async start(options: ServerOptions = {}): Promise<PlainServer> {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
    await new Promise((resolve) => server.once("listening", resolve));
    return new PlainServer(server, options);
  }

  private constructor(server: WebSocketServer, options: ServerOptions) {
    this.#server = server;
    this.#options = options;
    server.on("connection", (socket, request) => this.#welcome(socket, new URL(request.url ?? "/", "ws://x")));
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("it does not listen");
    return `ws://127.0.0.1:${address.port}`;
  }

  get connections(): number {
    return this.#server.clients.size;
  }

  /** Cuts every connection of this participant, without a close frame. */
  cut(id: string): void {
    for (const [socket, { id: other }] of this.#present) if (other === id) socket.terminate();
  }

  /** Sends a frame unchanged to all participants. */
  raw(data: string | Buffer): void {
    for (const socket of this.#server.clients) socket.send(data);
  }

  /** Sends a message in the name of any participant. */
  say(senderId: string, type: string, payload: unknown, persist = true): void {
    this.#spread({ type, payload, senderId, ts: Date.now(), senderMetadata: {} }, persist);
  }

  async stop(): Promise<void> {
    for (const socket of this.#server.clients) socket.terminate();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #welcome(socket: WebSocket, url: URL): void {
    const [id, since] = [url.searchParams.get("token") ?? "", url.searchParams.get("sinceId")];
    if (id === "refused") {
      socket.close(4001, "unauthorized");
      return;
    }
    for (const message of this.log) {
      const wanted = message.type === "presence" || (since !== null && (message.id ?? 0) > Number(since));
      if (wanted) socket.send(encode("replay", message));
    }
    socket.send(JSON.stringify({ kind: "ready" }));
    this.#present.set(socket, { id, metadata: {} });
    this.say(id, "presence", { action: "join", metadata: {} });
    socket.on("message", (data: Buffer, isBinary) => this.#take(socket, data, isBinary));
    socket.on("close", () => {
      const metadata = this.#present.get(socket)?.metadata;
      this.#present.delete(socket);
      this.say(id, "presence", { action: "leave", metadata, leaveReason: "disconnect" });
    });
  }

  #take(socket: WebSocket, data: Buffer, isBinary: boolean): void {
    const length = isBinary ? data.readUInt32LE(1) : 0;
    const frame = JSON.parse(String(isBinary ? data.subarray(5, 5 + length) : data));
    this.received.push(frame);
    const who = this.#present.get(socket);
    if (!who) return;
    const base = { senderId: who.id, ts: Date.now(), senderMetadata: who.metadata };
    if (frame.action === "close") {
      socket.close(1000);
      return;
    }
    if (frame.action === "update-metadata") {
      who.metadata = frame.payload;
      const payload = { action: "update", metadata: frame.payload };
      const ref = this.#options.answersIntroductions === false ? undefined : frame.ref;
      this.#spread({ ...base, type: "presence", payload }, true, socket, ref);
      return;
    }
    const { type, payload, persist, ref, attachmentMeta } = frame;
    const bytes = isBinary ? data.subarray(5 + length) : undefined;
    const message = { ...base, type, payload, ...(bytes ? { bytes, attachmentMeta } : {}) };
    if (this.#options.loseAnswers?.(frame)) {
      if (persist) this.log.push({ ...message, id: this.log.length + 1 });
      socket.terminate();
      return;
    }
    this.#spread(message, persist, socket, ref);
  }

  #spread(message: Stored, persist: boolean, from?: WebSocket, ref?: number): void {
    const entry = persist ? { ...message, id: this.log.length + 1 } : message;
    if (persist) this.log.push(entry);
    const kind = persist ? "persisted" : "ephemeral";
    for (const socket of this.#present.keys()) {
      if (socket.readyState === WebSocket.OPEN) socket.send(encode(kind, entry, socket === from ? ref : undefined));
    }
  }
}

function encode(kind: string, { bytes, ...message }: Stored, ref?: number): string | Buffer {
  const json = JSON.stringify({ kind, ...message, ref });
  if (!bytes) return json;
  const head = Buffer.alloc(5);
  head.writeUInt32LE(Buffer.byteLength(json), 1);
  return Buffer.concat([head, Buffer.from(json), bytes]);
}
