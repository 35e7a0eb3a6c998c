import { type FormEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { appOf, mcpResult } from "../data/apps";
import { type AssistantTurn, heard, messagesOf, type Turn, type Use } from "../data/chat";
import { tools } from "../data/live";
import { exposedName, isShown, type Plugin, pluginOf, plugins } from "../data/plugins";
import { createResource, useResource } from "../data/resource";
import type { Call, Tool } from "../data/types";
import { api, Problem, segment, stream } from "../lib/api";
import { duration } from "../lib/format";
import { href } from "../lib/route";
import type { Json } from "../lib/schema";
import { visible, visibleLine } from "../lib/text";
import { AppView } from "../ui/app-view";
import { JsonView } from "../ui/json";
import { Markdown } from "../ui/markdown";
import { Head, ProblemNote, State } from "../ui/parts";
import { PluginView } from "../ui/plugin-view";
import { ByHand, NoModel } from "./by-hand";

/** `null` where the gateway asks no models. */
const models = createResource(async (): Promise<string[] | null> => {
  try {
    return (await api<{ data: { id: string }[] }>("/v1/models")).data.map(({ id }) => id);
  } catch (error) {
    if (Problem.of(error).status === 404) return null;
    throw error;
  }
}, 30_000);

/** A conversation with a configured model, which uses the gateway's tools. Without one, tools can be run by hand. */
export function ChatPage() {
  const { data: known, problem } = useResource(models);
  const installed = useResource(plugins).data ?? NONE;
  const [chosen, setChosen] = useState("");
  const model = known?.includes(chosen) ? chosen : known?.[0];
  const chat = useConversation(model, installed);
  return (
    <>
      <Head title="Chat">
        {known && known.length > 0 && (
          <span className="row">
            <label htmlFor="model" className="soft">
              Model
            </label>
            <select
              id="model"
              className="input chooser"
              value={model}
              onChange={(event) => setChosen(event.target.value)}
            >
              {known.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </span>
        )}
        {chat.turns.length > 0 && (
          <button type="button" className="button small more" onClick={chat.clear}>
            New conversation
          </button>
        )}
      </Head>
      {problem && !known && <ProblemNote problem={problem} />}
      {known !== undefined && !model && <WithoutModel />}
      {model && <Conversation chat={chat} installed={installed} model={model} />}
    </>
  );
}

const NONE: Plugin[] = [];

function WithoutModel() {
  return (
    <div className="stack">
      <NoModel />
      <ByHand />
    </div>
  );
}

type Chat = ReturnType<typeof useConversation>;

function useConversation(model: string | undefined, installed: Plugin[]) {
  const [turns, setTurns] = useState<Turn[]>([]);
  const current = useRef<Turn[]>([]);
  const abort = useRef<AbortController>(undefined);
  useEffect(() => () => abort.current?.abort(), []);
  const set = (next: Turn[]) => {
    current.current = next;
    setTurns(next);
  };
  const replace = (turn: Turn) => set(current.current.map((each) => (each.id === turn.id ? turn : each)));
  // Functions of plugins' pages are no tools of the gateway's: the page of the chat is where they run.
  const own = useMemo(
    () =>
      installed
        .filter((plugin) => plugin.enabled && plugin.ui)
        .flatMap((plugin) =>
          plugin.api
            .filter(({ tool }) => !tool)
            .map((each) => ({
              type: "function",
              function: { name: exposedName(plugin, each), description: each.description, parameters: each.parameters },
            })),
        ),
    [installed],
  );
  const answer = async () => {
    const messages = messagesOf(current.current);
    let turn: AssistantTurn = { id: crypto.randomUUID(), role: "assistant", text: "", uses: [], state: "running" };
    set([...current.current, turn]);
    const stop = new AbortController();
    abort.current = stop;
    try {
      const body = {
        model,
        messages,
        stream: true,
        switchboard: { events: true },
        ...(own.length > 0 ? { tools: own } : {}),
      };
      await stream("/v1/chat/completions", { method: "POST", body, signal: stop.signal }, (event) => {
        turn = heard(turn, event);
        replace(turn);
      });
      turn = { ...turn, state: "done" };
    } catch (error) {
      const problem = Problem.of(error);
      turn =
        problem.kind === "cancelled"
          ? { ...turn, state: "stopped" }
          : { ...turn, state: "done", problem: problem.message };
    }
    replace(turn);
  };
  return {
    turns,
    running: turns.some((turn) => turn.role === "assistant" && turn.state === "running"),
    ask(text: string) {
      set([...current.current, { id: crypto.randomUUID(), role: "user", text }]);
      void answer();
    },
    goOn: () => void answer(),
    say: (text: string) =>
      set([...current.current, { id: crypto.randomUUID(), role: "assistant", text, uses: [], state: "done" }]),
    fill(turnId: string, useId: string, result: string) {
      const turn = current.current.find((each) => each.id === turnId);
      if (turn?.role === "assistant")
        replace({ ...turn, uses: turn.uses.map((use) => (use.id === useId ? { ...use, result } : use)) });
    },
    stop: () => abort.current?.abort(),
    clear() {
      abort.current?.abort();
      set([]);
    },
  };
}

function Conversation({ chat, installed, model }: { chat: Chat; installed: Plugin[]; model: string }) {
  const [text, setText] = useState("");
  const log = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    const box = log.current;
    if (box && atEnd.current && chat.turns.length > 0) box.scrollTop = box.scrollHeight;
  }, [chat.turns]);
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim() || chat.running) return;
    chat.ask(text);
    setText("");
  };
  return (
    <div className="chat">
      <div
        ref={log}
        className="turns"
        role="log"
        aria-label="Conversation"
        tabIndex={0}
        onScroll={({ currentTarget: box }) => {
          atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
        }}
      >
        <ol>
          {chat.turns.length === 0 && (
            <li className="soft">
              Ask {visibleLine(model)} something. It can use every tool that you see under{" "}
              <a href={href("tools")}>Tools</a>, and you see what it does with them.
            </li>
          )}
          {chat.turns.map((turn) => (
            <li key={turn.id} className={`turn ${turn.role}`}>
              <span className="by">{turn.role === "user" ? "You" : visibleLine(model)}</span>
              {turn.role === "user" ? (
                <p className="said">{visible(turn.text)}</p>
              ) : (
                <Answer turn={turn} chat={chat} installed={installed} />
              )}
            </li>
          ))}
        </ol>
      </div>
      <form className="compose" onSubmit={send}>
        <textarea
          className="input"
          rows={1}
          aria-label="Message"
          placeholder="Ask something; Enter sends it"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {chat.running ? (
          <button type="button" className="button" onClick={chat.stop}>
            Stop
          </button>
        ) : (
          <button type="submit" className="button primary" disabled={!text.trim()}>
            Send
          </button>
        )}
      </form>
    </div>
  );
}

function Answer({ turn, chat, installed }: { turn: AssistantTurn; chat: Chat; installed: Plugin[] }) {
  return (
    <>
      {turn.uses.map((use) => (
        <UseView key={use.id} use={use} turn={turn} chat={chat} installed={installed} />
      ))}
      {turn.text !== "" && <Markdown text={turn.text} />}
      {turn.state === "running" && turn.text === "" && turn.uses.every((use) => use.state !== "running") && (
        <span className="soft">Thinking…</span>
      )}
      {turn.state === "stopped" && <span className="soft">Stopped.</span>}
      {turn.note && <span className="soft">{visible(turn.note)}</span>}
      {turn.problem && <ProblemNote problem={new Problem(0, "failed", turn.problem)} />}
    </>
  );
}

/** What the model did with a tool, and what a plugin shows of it. */
function UseView({ use, turn, chat, installed }: { use: Use; turn: AssistantTurn; chat: Chat; installed: Plugin[] }) {
  const found = pluginOf(installed, use.name);
  const tool = useResource(tools).data?.find(({ name }) => name === use.name);
  // The arguments of a page's function are whole once the answer is.
  const whole = use.state === "done" && (!use.ours || turn.state !== "running");
  const mood = { running: "busy", done: "good", failed: "bad" } as const;
  return (
    <>
      <details className="tool-use">
        <summary>
          <State mood={mood[use.state]}>
            <code>{visibleLine(use.name)}</code>
          </State>
          <span className="soft clip grow">
            {use.state === "running" ? visibleLine(use.progress ?? "running") : use.ours ? "shown below" : use.state}
          </span>
          <span className="soft num">{use.durationMs === undefined ? "" : duration(use.durationMs * 1_000)}</span>
        </summary>
        <div className="stack tight">
          <JsonView value={parsed(use.args)} label="Arguments" />
          {use.result !== undefined && <JsonView value={parsed(use.result)} label="Result" />}
          {use.callId && <a href={href("calls", use.callId)}>in the calls</a>}
        </div>
      </details>
      {found && isShown(found.plugin) && whole && (
        <PluginView
          plugin={found.plugin}
          messageId={`${turn.id}:${use.id}`}
          apiName={found.called.name}
          args={use.args}
          content={use.result ?? ""}
          onContent={(content) =>
            chat.fill(turn.id, use.id, typeof content === "string" ? content : JSON.stringify(content))
          }
          onTrigger={chat.goOn}
          onSay={chat.say}
        />
      )}
      {tool && appOf(tool) && use.state === "done" && <UsedApp tool={tool} use={use} />}
    </>
  );
}

/** The app of a tool that the model used. The model is told a text; what an app needs of the result is in the history. */
function UsedApp({ tool, use }: { tool: Tool; use: Use }) {
  const { callId, args, result = "" } = use;
  const [known, setKnown] = useState<Record<string, unknown>>();
  useEffect(() => {
    let gone = false;
    const recorded = callId ? api<Call>(`/v1/calls/${segment(callId)}`) : Promise.reject(new Error("it has no record"));
    recorded.then(
      (call) => !gone && setKnown(mcpResult(call.result?.json ?? result, [{ type: "text", text: result }])),
      () => !gone && setKnown(mcpResult(result)),
    );
    return () => {
      gone = true;
    };
  }, [callId, result]);
  return known && <AppView tool={tool} args={parsed(args)} result={known} />;
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
