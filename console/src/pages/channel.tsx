import { type FormEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import { channels } from "../data/live";
import type { Message, Roster } from "../data/types";
import { api, Problem, segment, stream } from "../lib/api";
import { bytes, clock, moment } from "../lib/format";
import { href } from "../lib/route";
import type { Json } from "../lib/schema";
import { visible, visibleLine } from "../lib/text";
import { Icon } from "../ui/icons";
import { ProblemNote, Prose, State } from "../ui/parts";

const KEPT = 500;

/** A channel: its participants, and their messages, live. */
export function ChannelDetail({ name }: { name: string }) {
  const { messages, problem } = useMessages(name);
  const roster = useRoster(name);
  const log = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  // A reader at the latest message follows new ones; a reader who has scrolled up keeps the position.
  useLayoutEffect(() => {
    const element = log.current;
    if (element && atEnd.current && messages.length > 0) element.scrollTop = element.scrollHeight;
  }, [messages]);
  return (
    <article className="detail talk" aria-label={`Channel ${visibleLine(name)}`}>
      <div className="about stack tight">
        <div className="row">
          <a className="back button small" href={href("channels")}>
            <Icon name="back" /> All
          </a>
          <h2 className="tool-name">{visibleLine(name)}</h2>
        </div>
        <div className="row">
          {roster?.participants.map((participant) => (
            <State key={participant.id} mood="good">
              <span title={(participant.metadata?.methods ?? []).map((method) => method.name).join(", ")}>
                {visibleLine(participant.metadata?.name ?? participant.id)}
                {(participant.metadata?.methods?.length ?? 0) > 0 && (
                  <span className="soft"> {participant.metadata?.methods?.length} methods</span>
                )}
              </span>
            </State>
          ))}
          {(!roster || roster.participants.length === 0) && <span className="soft">Nobody is here now.</span>}
        </div>
      </div>
      {problem && <ProblemNote problem={problem} />}
      <div
        ref={log}
        className="messages"
        role="log"
        aria-label="Messages"
        tabIndex={0}
        onScroll={({ currentTarget: box }) =>
          (atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 40)
        }
      >
        {messages.length === 0 && <p className="soft">No messages are stored. Your message will be the first.</p>}
        {messages.map((message) => (
          <div className="message" key={message.id}>
            <span className="num soft" title={moment(message.ts)}>
              {clock(message.ts)}
            </span>
            <span className="break">
              <span className="who">{visibleLine(message.senderId)}</span>{" "}
              {message.type !== "message" && <span className="chip">{visibleLine(message.type)}</span>}{" "}
              <Said message={message} />
            </span>
          </div>
        ))}
      </div>
      <Compose name={name} />
    </article>
  );
}

function Said({ message }: { message: Message }) {
  const payload = message.payload;
  const fields = typeof payload === "object" && payload !== null && !Array.isArray(payload) ? payload : {};
  const text = typeof fields.content === "string" ? fields.content : undefined;
  return (
    <>
      <span className={text === undefined ? "mono soft message-text" : "message-text"}>
        {text === undefined ? visible(JSON.stringify(payload) ?? "") : <Prose text={text} />}
      </span>
      {message.attachmentMeta?.map((attachment) => (
        <span key={attachment.id} className="chip">
          {visibleLine(attachment.name ?? attachment.id)}, {visibleLine(attachment.mimeType)}, {bytes(attachment.size)}
        </span>
      ))}
    </>
  );
}

function Compose({ name }: { name: string }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const send = async (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim()) return;
    setProblem(undefined);
    try {
      const payload: Json = { id: crypto.randomUUID(), content: text };
      await api(`/v1/channels/${segment(name)}/messages`, { method: "POST", body: { type: "message", payload } });
      setText("");
      channels.refresh();
    } catch (error) {
      setProblem(Problem.of(error));
    }
  };
  return (
    <>
      {problem && <ProblemNote problem={problem} />}
      <form className="compose" onSubmit={send}>
        <textarea
          className="input"
          rows={1}
          aria-label={`Message to ${visibleLine(name)}`}
          placeholder="Write a message; Enter sends it"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
            event.preventDefault();
            void send();
          }}
        />
        <button type="submit" className="button primary" disabled={!text.trim()}>
          Send
        </button>
      </form>
    </>
  );
}

function useMessages(name: string): { messages: Message[]; problem?: Problem } {
  const [messages, setMessages] = useState<Message[]>([]);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    const stop = new AbortController();
    const add = (more: Message[]) =>
      setMessages((known) =>
        [...new Map([...known, ...more].map((message) => [message.id, message])).values()].slice(-KEPT),
      );
    const history = () =>
      api<{ messages: Message[] }>(`/v1/channels/${segment(name)}/messages?limit=200`, { signal: stop.signal })
        .then((page) => add(page.messages))
        // A channel without messages does not exist yet, and that is not an error.
        .catch((error) => Problem.of(error).status === 404 || setProblem(Problem.of(error)));
    const follow = async () => {
      while (!stop.signal.aborted) {
        try {
          // The history is loaded after the feed has started. A message in both appears only once on the page.
          await stream(
            `/v1/channels/${segment(name)}/events`,
            { signal: stop.signal },
            ({ data }) => add([JSON.parse(data) as Message]),
            () => void history(),
          );
        } catch (error) {
          if (Problem.of(error).status >= 400 && !stop.signal.aborted) return setProblem(Problem.of(error));
        }
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
    };
    void follow();
    return () => stop.abort();
  }, [name]);
  return { messages, ...(problem ? { problem } : {}) };
}

function useRoster(name: string): Roster | undefined {
  const [roster, setRoster] = useState<Roster>();
  useEffect(() => {
    let stopped = false;
    const ask = () =>
      api<Roster>(`/v1/channels/${segment(name)}`)
        .then((found) => !stopped && setRoster(found))
        .catch(() => {});
    void ask();
    const timer = setInterval(ask, 2_000);
    return () => {
      stopped = true;
      clearInterval(timer);
    };
  }, [name]);
  return roster;
}
