import { api, Problem, segment, stream } from "../lib/api";
import type { Json } from "../lib/schema";

export interface Attachment {
  mime_type: string;
  name?: string;
  /** Base64. */
  data?: string;
}

export interface Block {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
}

/** The current state of a call that was made from this page. */
export interface Run {
  state: "running" | "done" | "failed" | "cancelled";
  callId?: string;
  startedAt: number;
  progress?: { progress: number; total?: number; message?: string };
  /** Parts that arrived while it ran, oldest first. */
  chunks: Json[];
  /** The number of dropped parts before those. */
  dropped: number;
  images: { src: string; name: string }[];
  result?: Json;
  /** The result as shown to a person or a model. */
  blocks?: Block[];
  durationMs?: number;
  problem?: Problem;
}

const MAX_CHUNKS = 500;

/** Runs a tool and reports its state. The returned function cancels it. */
export function run(tool: string, args: Json, report: (run: Run) => void): () => void {
  const abort = new AbortController();
  let current: Run = { state: "running", startedAt: Date.now(), chunks: [], dropped: 0, images: [] };
  let due: ReturnType<typeof setTimeout> | undefined;
  const show = () => {
    due = undefined;
    report(current);
  };
  const change = (next: Partial<Run>) => {
    current = { ...current, ...next };
    // A tool may send more parts per second than a page can render.
    due ??= setTimeout(show, 40);
  };
  const end = (next: Partial<Run>) => {
    current = { ...current, ...next };
    clearTimeout(due);
    show();
  };
  show();
  stream(
    `/v1/tools/${segment(tool)}/call`,
    { method: "POST", body: { args }, signal: abort.signal },
    ({ event, data }) => {
      const body = JSON.parse(data);
      if (event === "progress") change({ progress: body });
      else if (event === "chunk") {
        const chunks =
          body.content === undefined || body.content === null
            ? current.chunks
            : [...current.chunks, body.content as Json];
        const over = Math.max(0, chunks.length - MAX_CHUNKS);
        change({
          chunks: chunks.slice(over),
          dropped: current.dropped + over,
          images: [...current.images, ...imagesOf([], body.attachments)],
        });
      } else if (event === "done") {
        const images = [...current.images, ...imagesOf(body.blocks, body.attachments)];
        const { result, blocks, duration_ms: durationMs, call_id: callId } = body;
        end({ state: "done", result, blocks, images, durationMs, callId });
      } else if (event === "error") {
        const problem = Problem.parse(body.status, data);
        end({ state: problem.kind === "cancelled" ? "cancelled" : "failed", problem });
      }
    },
    (response) => {
      const callId = response.headers.get("x-call-id");
      if (callId) change({ callId });
    },
  )
    .then(() => {
      if (current.state === "running")
        throw new Problem(
          0,
          "offline",
          "The gateway ended the call without an outcome.",
          "Find it in the list of calls.",
        );
    })
    .catch((error: unknown) => {
      if (current.state !== "running") return;
      const problem = Problem.of(error);
      end({ state: problem.kind === "cancelled" ? "cancelled" : "failed", problem });
    });
  return () => {
    if (current.state !== "running") return;
    // A cancelled call ends with its own event; the stream is aborted only if there is no call id yet.
    if (current.callId) void api(`/v1/calls/${current.callId}`, { method: "DELETE" }).catch(() => abort.abort());
    else abort.abort();
  };
}

function imagesOf(blocks: Block[] = [], attachments: Attachment[] = []): { src: string; name: string }[] {
  const found = [
    ...blocks
      .filter((block) => block.type === "image")
      .map(({ data, mimeType }) => ({ data, type: mimeType, name: "image" })),
    ...attachments.map(({ data, mime_type, name }) => ({ data, type: mime_type, name: name ?? "attachment" })),
  ];
  return found
    .filter(({ data, type }) => data && /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/.test(type ?? ""))
    .map(({ data, type, name }) => ({ src: `data:${type};base64,${data}`, name }));
}
