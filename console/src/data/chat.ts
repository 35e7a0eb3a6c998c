import type { ServerEvent } from "@switchboard/caller/events";

/** A conversation with a model that uses tools. */

export interface Use {
  id: string;
  name: string;
  /** JSON text, as written by the model. */
  args: string;
  state: "running" | "done" | "failed";
  progress?: string;
  result?: string;
  /** The reason of the failure, if the gateway reports it. */
  reason?: string;
  callId?: string;
  durationMs?: number;
  /** Whether it is a function of a plugin's page: the conversation continues when the page triggers it. */
  ours: boolean;
}

export type Turn =
  | {
      id: string;
      role: "user";
      text: string;
      /** The author, if it was not the user. */
      by?: string;
    }
  | {
      id: string;
      role: "assistant";
      text: string;
      uses: Use[];
      state: "running" | "done" | "stopped";
      problem?: string;
      note?: string;
      /** The plugin whose page wrote the text, if it was not the model. */
      by?: string;
    };

export type AssistantTurn = Extract<Turn, { role: "assistant" }>;

/** Returns the messages of a conversation for the model, without the gateway's own calls. */
export function messagesOf(turns: readonly Turn[]): unknown[] {
  return turns.flatMap((turn): unknown[] => {
    if (turn.role === "user") return [{ role: "user", content: turn.text }];
    const ours = turn.uses.filter((use) => use.ours);
    if (ours.length === 0) return turn.text === "" ? [] : [{ role: "assistant", content: turn.text }];
    const tool_calls = ours.map((use) => ({
      id: use.id,
      type: "function",
      function: { name: use.name, arguments: use.args },
    }));
    const results = ours.map((use) => ({
      role: "tool",
      tool_call_id: use.id,
      content: use.result ?? "It is shown to the user, who has not finished with it.",
    }));
    return [{ role: "assistant", content: turn.text || null, tool_calls }, ...results];
  });
}

interface Piece {
  error?: { message?: string };
  choices?: {
    delta?: {
      content?: string | null;
      tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
    };
  }[];
  switchboard?: {
    event: string;
    id?: string;
    name?: string;
    arguments?: string;
    call_id?: string;
    ok?: boolean;
    duration_ms?: number;
    result?: string;
    reason?: string;
    progress?: number;
    total?: number | null;
    message?: string | null;
    stopped?: { message: string };
  };
}

/** Returns a turn after one more event of its stream. */
export function withEvent(turn: AssistantTurn, { data }: ServerEvent): AssistantTurn {
  if (data === "[DONE]") return turn;
  const piece = JSON.parse(data) as Piece;
  if (piece.error) return { ...turn, problem: piece.error.message ?? "The model’s server failed." };
  let next = turn;
  const delta = piece.choices?.[0]?.delta;
  if (delta?.content) next = { ...next, text: next.text + delta.content };
  for (const part of delta?.tool_calls ?? []) next = withPart(next, part);
  return piece.switchboard ? withNews(next, piece.switchboard) : next;
}

/** Merges a part of a call for the page; parts of one call have the same index. */
function withPart(
  turn: AssistantTurn,
  part: { index: number; id?: string; function?: { name?: string; arguments?: string } },
): AssistantTurn {
  const ours = turn.uses.filter((use) => use.ours);
  const known = ours[part.index];
  const use: Use = {
    id: part.id ?? known?.id ?? `call-${part.index}`,
    name: (known?.name ?? "") + (known && part.id ? "" : (part.function?.name ?? "")),
    args: (known?.args ?? "") + (part.function?.arguments ?? ""),
    state: "done",
    ours: true,
  };
  return { ...turn, uses: known ? turn.uses.map((each) => (each === known ? use : each)) : [...turn.uses, use] };
}

function withNews(turn: AssistantTurn, news: NonNullable<Piece["switchboard"]>): AssistantTurn {
  const change = (next: Partial<Use>) => ({
    ...turn,
    uses: turn.uses.map((use) => (use.id === news.id && !use.ours ? { ...use, ...next } : use)),
  });
  const call = news.call_id === undefined ? {} : { callId: news.call_id };
  switch (news.event) {
    case "tool_call":
      return {
        ...turn,
        uses: [
          ...turn.uses,
          {
            id: news.id ?? "",
            name: news.name ?? "",
            args: news.arguments ?? "",
            state: "running",
            ours: false,
            ...call,
          },
        ],
      };
    case "tool_progress":
      return change({
        progress: news.message ?? (news.total ? `${news.progress} of ${news.total}` : String(news.progress)),
      });
    case "tool_result": {
      const ended = {
        state: news.ok ? ("done" as const) : ("failed" as const),
        result: news.result ?? "",
        durationMs: news.duration_ms ?? 0,
        ...(news.reason === undefined ? {} : { reason: news.reason }),
        ...call,
      };
      // Only the result reports a call that was refused before it ran.
      if (!turn.uses.some((use) => use.id === news.id))
        return {
          ...turn,
          uses: [...turn.uses, { id: news.id ?? "", name: news.name ?? "", args: "", ours: false, ...ended }],
        };
      return change(ended);
    }
    case "end":
      return news.stopped ? { ...turn, note: news.stopped.message } : turn;
    default:
      return turn;
  }
}
