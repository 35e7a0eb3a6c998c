import { type FormEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { appOf, mcpResult } from "../data/apps";
import type { AssistantTurn, Turn, Use } from "../data/chat";
import { type Conversation, conversation, isRunning } from "../data/conversation";
import { tools } from "../data/live";
import { exposedName, isShown, type Plugin, pluginOf, plugins } from "../data/plugins";
import { createResource, useResource } from "../data/resource";
import type { Call, Tool } from "../data/types";
import { api, Problem, segment } from "../lib/api";
import { Follow } from "../lib/follow";
import { milliseconds } from "../lib/format";
import { href } from "../lib/route";
import type { Json } from "../lib/schema";
import { useStore } from "../lib/store";
import { visible, visibleLine } from "../lib/text";
import { AppView } from "../ui/app-view";
import { JsonView } from "../ui/json";
import { Markdown } from "../ui/markdown";
import { Head, ProblemNote, State } from "../ui/parts";
import { SettingsFor } from "../ui/plugin-settings";
import { PluginView } from "../ui/plugin-view";
import { ByHand, NoModel } from "./by-hand";

/** `null` if the gateway has no models. */
const models = createResource(async (): Promise<string[] | null> => {
  try {
    return (await api<{ data: { id: string }[] }>("/v1/models")).data.map(({ id }) => id);
  } catch (error) {
    if (Problem.of(error).status === 404) return null;
    throw error;
  }
}, 30_000);

/** A conversation with a configured model that uses the gateway's tools. Without a model, tools can be run by hand. */
export function ChatPage() {
  const { data: known, problem } = useResource(models);
  const installed = useResource(plugins).data ?? NONE;
  const [chosen, setChosen] = useState("");
  const model = known?.includes(chosen) ? chosen : known?.[0];
  const { chat, turns } = useConversation(model, installed);
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
        {turns.length > 0 && (
          <button type="button" className="button small more" onClick={() => chat.clear()}>
            New conversation
          </button>
        )}
      </Head>
      {problem && !known && <ProblemNote problem={problem} />}
      {known !== undefined && !model && <WithoutModel />}
      {model && <Talk chat={chat} turns={turns} installed={installed} model={model} />}
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

/** The conversation of this tab, with the functions of plugins' pages, which run in the chat's page. */
function useConversation(model: string | undefined, installed: Plugin[]) {
  const chat = conversation();
  const functions = useMemo(
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
  useEffect(() => {
    chat.equipment = { model, functions };
  }, [chat, model, functions]);
  return { chat, turns: useStore(chat.turns) };
}

interface TalkProps {
  chat: Conversation;
  turns: readonly Turn[];
  installed: Plugin[];
  model: string;
}

function Talk({ chat, turns, installed, model }: TalkProps) {
  const running = isRunning(turns);
  const [text, setText] = useState("");
  const log = useRef<HTMLDivElement>(null);
  const [end] = useState(() => new Follow());
  useLayoutEffect(() => {
    const box = log.current;
    if (box && end.follows && turns.length > 0) box.scrollTop = box.scrollHeight;
  }, [turns, end]);
  // A plugin's page takes up its height shortly after the text that it belongs to.
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const [box, inner] = [log.current, list.current];
    if (!box || !inner) return;
    const watcher = new ResizeObserver(() => {
      if (end.follows) box.scrollTop = box.scrollHeight;
    });
    watcher.observe(inner);
    return () => watcher.disconnect();
  }, [end]);
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim() || running) return;
    end.restart();
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
        onScroll={({ currentTarget: box }) => end.scrolled(box)}
      >
        <ol ref={list}>
          {turns.length === 0 && (
            <li className="soft">
              Ask {visibleLine(model)} something. It can use every tool that you see under{" "}
              <a href={href("tools")}>Tools</a>, and you see what it does with them.
            </li>
          )}
          {turns.map((turn) => (
            <li key={turn.id} className={`turn ${turn.role}`}>
              <span className="by">{byLine(turn, model)}</span>
              {turn.role === "user" ? (
                <p className="message-text">{visible(turn.text)}</p>
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
        {running ? (
          <button type="button" className="button" onClick={() => chat.stop()}>
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

/** The author of the text. A text of a plugin's page is not shown as the user's or the model's. */
function byLine({ role, by }: Turn, model: string): string {
  if (by !== undefined) return `${visibleLine(by)}${role === "user" ? ", with your yes" : ", a plugin"}`;
  return role === "user" ? "You" : visibleLine(model);
}

function Answer({ turn, chat, installed }: { turn: AssistantTurn; chat: Conversation; installed: Plugin[] }) {
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

/** The model's use of a tool, and the plugin's view of it. */
function UseView({
  use,
  turn,
  chat,
  installed,
}: {
  use: Use;
  turn: AssistantTurn;
  chat: Conversation;
  installed: Plugin[];
}) {
  const found = pluginOf(installed, use.name);
  const tool = useResource(tools).data?.find(({ name }) => name === use.name);
  // The arguments of a page's function are complete when the answer is.
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
          <span className="soft num">{use.durationMs === undefined ? "" : milliseconds(use.durationMs)}</span>
        </summary>
        <div className="stack tight">
          <JsonView value={parsed(use.args)} label="Arguments" />
          {use.result !== undefined && <JsonView value={parsed(use.result)} label="Result" />}
          {use.callId && <a href={href("calls", use.callId)}>in the calls</a>}
        </div>
      </details>
      <SettingsFor tool={use.name} reason={use.reason} />
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
          onTrigger={() => chat.goOn()}
          onSay={(text) => chat.say(text, found.plugin.meta.title ?? found.plugin.identifier)}
        />
      )}
      {tool && appOf(tool) && use.state === "done" && <UsedApp tool={tool} use={use} chat={chat} />}
    </>
  );
}

/** The app of a tool that the model used. The model gets a text; the history has the result for the app. */
function UsedApp({ tool, use, chat }: { tool: Tool; use: Use; chat: Conversation }) {
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
  const onMessage = (text: string) => chat.ask(text, `The app of ${tool.name}`);
  return known && <AppView tool={tool} args={parsed(args)} result={known} onMessage={onMessage} />;
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
