/** One WebSocket, of any implementation. */
export interface Socket {
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
}

export interface SocketHandlers {
  message(data: string | Uint8Array): void;
  /** Called once, after the socket was open. */
  closed(code: number, reason: string): void;
}

/** The timeout of opening a connection. */
const OPEN_WITHIN_MS = 30_000;

/** Opens a WebSocket; rejects if it cannot be opened. */
export async function openSocket(url: string, handlers: SocketHandlers): Promise<Socket> {
  const Implementation = await implementation();
  const socket = new Implementation(url);
  socket.binaryType = "arraybuffer";
  return await new Promise((resolve, reject) => {
    let opened = false;
    let ended = false;
    let why = "";
    const timer = setTimeout(() => fail(`it did not open within ${OPEN_WITHIN_MS / 1000} s`), OPEN_WITHIN_MS);
    const end = (code: number, reason: string) => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      if (opened) handlers.closed(code, reason);
      else reject(new Error(`the connection could not be opened: ${reason || why || `it was closed (code ${code})`}`));
    };
    const fail = (reason: string) => {
      end(1006, reason);
      close(socket, 1000, "");
    };
    socket.addEventListener("open", () => {
      clearTimeout(timer);
      if (ended) return;
      opened = true;
      resolve({
        send: (data) => socket.send(data),
        close: (code = 1000, reason = "") => {
          close(socket, code, reason);
          end(code, reason);
        },
      });
    });
    socket.addEventListener("message", (event: MessageEvent) => {
      if (ended) return;
      const data: unknown = event.data;
      handlers.message(typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer));
    });
    // A close always follows; browsers give no reason.
    socket.addEventListener("error", (event: Event) => {
      why = (event as Event & { message?: string }).message ?? "";
    });
    socket.addEventListener("close", (event: CloseEvent) => end(event.code, event.reason));
  });
}

function close(socket: WebSocket, code: number, reason: string): void {
  try {
    socket.close(code, reason);
  } catch {
    // The socket is not open yet, or is closed.
  }
}

async function implementation(): Promise<typeof WebSocket> {
  if (typeof globalThis.WebSocket === "function") return globalThis.WebSocket;
  // Node.js has no WebSocket before 22. The name is not a literal, so that no bundler includes the package in a web
  // page.
  const name = "ws";
  const module = (await import(/* @vite-ignore */ /* webpackIgnore: true */ name)) as { WebSocket: typeof WebSocket };
  return module.WebSocket;
}
