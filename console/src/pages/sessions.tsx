import { useEffect, useState } from "react";
import { sessions } from "../data/live";
import { useProgram } from "../data/program";
import { useResource } from "../data/resource";
import type { AgentSession } from "../data/types";
import { api, Problem, segment, stream } from "../lib/api";
import { clock, moment, plural } from "../lib/format";
import { go, href, useRoute } from "../lib/route";
import type { Json } from "../lib/schema";
import { visibleLine } from "../lib/text";
import { Icon } from "../ui/icons";
import { JsonView } from "../ui/json";
import { Command, Empty, Head, Line, type Mood, ProblemNote, State, Sure } from "../ui/parts";
import { VirtualList } from "../ui/virtual";

const keyOf = (session: AgentSession) => session.session_id;
const MOOD: Record<string, Mood> = { running: "busy", idle: "good", ended: "off" };

/** Agents that work for their callers. */
export function SessionsPage() {
  const { item } = useRoute();
  const { data, problem } = useResource(sessions);
  const program = useProgram();
  if (data === null) {
    return (
      <>
        <Head title="Sessions" />
        <Empty title="This gateway has no sessions">
          <p>They are turned off in the configuration. To turn them on:</p>
          <Command text={"[sessions]\nenabled = true"} label="Copy the lines" />
        </Empty>
      </>
    );
  }
  if (data?.length === 0) {
    return (
      <>
        <Head title="Sessions" />
        <Empty title="No sessions yet">
          <p>A session is an agent at work for a caller, with tools that the caller lends it. This starts one:</p>
          <Command text={`${program} call session_message message=hello`} />
        </Empty>
      </>
    );
  }
  const chosen = data?.find(({ session_id }) => session_id === item);
  return (
    <>
      <Head title="Sessions">
        {data && (
          <span className="soft">{plural(data.filter(({ state }) => state !== "ended").length, "open session")}</span>
        )}
      </Head>
      {problem && !data && <ProblemNote problem={problem} />}
      <div className={item ? "split chosen" : "split"}>
        <div className="list">
          <VirtualList
            label="Sessions"
            items={data ?? []}
            keyOf={keyOf}
            height={54}
            chosen={item}
            onChoose={({ session_id }) => go("sessions", session_id)}
            render={(session) => (
              <div className="tool-item">
                <span className="name clip">{visibleLine(session.caller_id || session.session_id)}</span>
                <span className="from">
                  <State mood={MOOD[session.state] ?? "plain"}>{session.state}</State>
                </span>
                <span className="about clip">
                  {moment(session.created_ms)} {session.agent ? `agent ${visibleLine(session.agent)}` : ""}{" "}
                  {session.pending > 0 ? `${session.pending} waiting` : ""}
                </span>
              </div>
            )}
          />
        </div>
        <div className="detail">
          <a className="back button small" href={href("sessions")}>
            <Icon name="back" /> All sessions
          </a>
          {chosen ? (
            <SessionDetail key={chosen.session_id} session={chosen} />
          ) : (
            <Empty title={item ? "There is no such session" : "Choose a session"} />
          )}
        </div>
      </div>
    </>
  );
}

interface SessionEvent {
  key: number;
  type: string;
  at: number;
  data: Json;
}

function SessionDetail({ session }: { session: AgentSession }) {
  const [events, setEvents] = useState<SessionEvent[]>([]);
  const [problem, setProblem] = useState<Problem>();
  const id = session.session_id;
  useEffect(() => {
    const stop = new AbortController();
    let key = 0;
    stream(`/v1/sessions/${segment(id)}/events?since=0`, { signal: stop.signal }, ({ event, data }) => {
      const body = JSON.parse(data) as Json;
      const at =
        typeof body === "object" && body !== null && !Array.isArray(body) && typeof body.at_ms === "number"
          ? body.at_ms
          : Date.now();
      setEvents((known) => [{ key: key++, type: event, at, data: body }, ...known].slice(0, 500));
    }).catch((error) => {
      const failed = Problem.of(error);
      if (failed.kind !== "cancelled") setProblem(failed);
    });
    return () => stop.abort();
  }, [id]);
  return (
    <article className="stack" aria-label="Session">
      <div className="row apart">
        <h2 className="tool-name">
          <Line text={session.caller_id || id} />
        </h2>
        {session.state !== "ended" && (
          <Sure
            label="End it"
            sure="End the session?"
            onSure={() =>
              void api(`/v1/sessions/${segment(id)}`, { method: "DELETE" }).then(sessions.refresh, (error) =>
                setProblem(Problem.of(error)),
              )
            }
          />
        )}
      </div>
      <State mood={MOOD[session.state] ?? "plain"}>
        {session.state}
        {session.reason && `: ${visibleLine(session.reason)}`}
      </State>
      {problem && <ProblemNote problem={problem} />}
      <dl className="facts">
        <dt>Id</dt>
        <dd className="mono">{id}</dd>
        <dt>Agent</dt>
        <dd>
          {session.agent ? visibleLine(session.agent) : <span className="soft">one that connects by itself</span>}
        </dd>
        <dt>Caller</dt>
        <dd>
          <Line text={session.owner.name ?? ""} /> <span className="soft">{session.caller ?? ""}</span>
        </dd>
        <dt>Lends</dt>
        <dd>
          {session.caller_tools.length > 0 ? (
            <span className="mono">{session.caller_tools.map(visibleLine).join(", ")}</span>
          ) : (
            <span className="soft">no tools</span>
          )}
        </dd>
        <dt>Waiting</dt>
        <dd>{session.pending > 0 ? plural(session.pending, "request") : <span className="soft">nothing</span>}</dd>
        <dt>Began</dt>
        <dd>{moment(session.created_ms)}</dd>
        {session.ended_ms !== undefined && (
          <>
            <dt>Ended</dt>
            <dd>{moment(session.ended_ms)}</dd>
          </>
        )}
        {session.socket && (
          <>
            <dt>Socket</dt>
            <dd className="mono">{session.socket}</dd>
          </>
        )}
      </dl>
      <h3>Events, newest first</h3>
      {events.length === 0 && <p className="soft">No stored events.</p>}
      {events.map(({ key, type, at, data }) => (
        <details key={key}>
          <summary>
            <span className="num soft">{clock(at)}</span> {visibleLine(type.replaceAll("_", " "))}
          </summary>
          <JsonView value={data} label={type} />
        </details>
      ))}
    </article>
  );
}
