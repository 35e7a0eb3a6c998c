import { useEffect, useRef, useState } from "react";
import { cancelCall, outcomeOf, readCall } from "../data/calls";
import { type Run, run } from "../data/run";
import type { Call, Payload } from "../data/types";
import { bar, isMasked } from "../data/waterfall";
import { Problem } from "../lib/api";
import { bytes, duration, moment, plural } from "../lib/format";
import { href } from "../lib/route";
import type { Json } from "../lib/schema";
import { visibleLine } from "../lib/text";
import { Icon } from "../ui/icons";
import { JsonView } from "../ui/json";
import { CopyButton, Line, ProblemNote, State, useNow } from "../ui/parts";
import { RunView } from "../ui/run-view";
import { moodOf } from "./overview";

/** The reload interval of a running call. */
const LOOK_MS = 1_000;

/**
 * A running call, and the time of its arrival on this page. Its age is counted from there, because the gateway's clock
 * may differ.
 */
interface Seen {
  call: Call;
  at: number;
}

/** One call: its arguments, its outcome, and its time per step. */
export function CallDetail({ id, known }: { id: string; known: Call | undefined }) {
  const [seen, setSeen] = useState<Seen>();
  const [problem, setProblem] = useState<Problem>();
  const over = known?.state === "ended";
  useEffect(() => {
    if (over) return;
    // A running call, or one that is not loaded yet, such as from a link.
    let timer: ReturnType<typeof setTimeout> | undefined;
    let gone = false;
    const look = async () => {
      try {
        const call = await readCall(id);
        if (gone) return;
        setSeen({ call, at: performance.now() });
        setProblem(undefined);
        if (call.state === "running") timer = setTimeout(look, LOOK_MS);
      } catch (error) {
        if (gone) return;
        const reason = Problem.of(error);
        setProblem(reason);
        // An unreachable gateway returns later; an unknown call does not.
        if (reason.status === 0) timer = setTimeout(look, LOOK_MS);
      }
    };
    void look();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [id, over]);
  const call = over ? known : (seen?.call ?? known);
  return (
    <article className="stack" aria-label="Call">
      <div className="row apart">
        <h2 className="tool-name clip">{call ? visibleLine(call.tool) : "Call"}</h2>
        <a className="button icon quiet" href={href("calls")} title="Close">
          <Icon name="close" />
          <span className="hide">Close this call</span>
        </a>
      </div>
      {!call && problem && <ProblemNote problem={problem} />}
      {call && <Loaded call={call} seenAt={call === seen?.call ? seen.at : undefined} />}
    </article>
  );
}

function Loaded({ call, seenAt }: { call: Call; seenAt: number | undefined }) {
  const [problem, setProblem] = useState<Problem>();
  return (
    <>
      <div className="row">
        <State mood={moodOf(call)}>{outcomeOf(call).replaceAll("_", " ")}</State>
        {call.state === "running" && (
          <button
            type="button"
            className="button small danger"
            onClick={() => void cancelCall(call.id).catch((error) => setProblem(Problem.of(error)))}
          >
            Cancel
          </button>
        )}
      </div>
      {problem && <ProblemNote problem={problem} />}
      {call.error && <ProblemNote problem={new Problem(0, call.error.kind, call.error.message, call.error.hint)} />}
      <Timing call={call} seenAt={seenAt} />
      <dl className="facts">
        <dt>Caller</dt>
        <dd>
          <Line text={call.principal.name} />{" "}
          <span className="soft">
            {call.principal.role}, by {call.surface}
          </span>
        </dd>
        <dt>Provider</dt>
        <dd>
          {call.provider ? (
            <>
              {call.provider.kind} <Line text={call.provider.id} />
            </>
          ) : (
            <span className="soft">{call.state === "running" ? "not sent yet" : "none"}</span>
          )}
        </dd>
        <dt>Began</dt>
        <dd>{moment(call.at_ms)}</dd>
        {call.session_key && (
          <>
            <dt>Session</dt>
            <dd className="mono">
              <Line text={call.session_key} />
            </dd>
          </>
        )}
        <dt>Id</dt>
        <dd className="mono">{call.id}</dd>
        {call.trace_id && (
          <>
            <dt>Trace</dt>
            <dd className="mono">{call.trace_id}</dd>
          </>
        )}
      </dl>
      {call.args && <PayloadView title="Arguments" payload={call.args} />}
      {call.result && <PayloadView title="Result" payload={call.result} />}
      {call.state === "ended" && <Again call={call} />}
    </>
  );
}

/** The time per step, also during the call. */
function Timing({ call, seenAt }: { call: Call; seenAt: number | undefined }) {
  const running = call.state === "running";
  useNow(running ? 200 : 3_600_000);
  const since = running && seenAt !== undefined ? (performance.now() - seenAt) * 1_000 : 0;
  const total = Math.max(0, (call.duration_us ?? 0) + since);
  // A call that has not been sent to a provider has only waited.
  const queued = running && call.provider === undefined;
  const waited = queued ? total : Math.min(call.waited_us ?? 0, total);
  const part = (value: number) => (total > 0 ? (value / total) * 100 : 0);
  const mood = moodOf(call);
  return (
    <section className="phases" aria-label="Timing">
      {(waited > 0 || queued) && (
        <div>
          <span className="soft">{queued ? "Waits" : "Waited"}</span>
          <span className="track">
            <i className="wait" style={bar(0, part(waited))} />
          </span>
          <span className="num">{duration(waited)}</span>
        </div>
      )}
      {!queued && (
        <div>
          <span className="soft">{running ? "Works" : call.provider ? "Worked" : "Took"}</span>
          <span className="track">
            <i className={mood === "good" ? undefined : mood} style={bar(part(waited), part(total - waited))} />
          </span>
          <span className="num">
            {running || call.duration_us !== undefined ? duration(total - waited) : "unknown"}
          </span>
        </div>
      )}
      {call.updates !== undefined && (
        <span className="soft">
          {plural(call.updates, "update")} {running ? "so far" : "while it ran"}
        </span>
      )}
    </section>
  );
}

function PayloadView({ title, payload }: { title: string; payload: Payload }) {
  return (
    <div className="stack tight">
      <div className="row apart">
        <h3>
          {title} <span className="must">{bytes(payload.bytes)}</span>
        </h3>
        {payload.json !== undefined && (
          <CopyButton text={JSON.stringify(payload.json, null, 2)} label={`Copy the ${title.toLowerCase()}`} />
        )}
      </div>
      {payload.json === undefined ? (
        <p className="soft">
          Too large to be recorded. To record more, raise journal.payload_bytes in the configuration.
        </p>
      ) : (
        <JsonView value={payload.json} label={title} />
      )}
    </div>
  );
}

function Again({ call }: { call: Call }) {
  const [current, setCurrent] = useState<Run>();
  const cancel = useRef<() => void>(undefined);
  useEffect(() => () => cancel.current?.(), []);
  const args = call.args?.json;
  if (args === undefined) return null;
  const masked = isMasked(args);
  const running = current?.state === "running";
  return (
    <>
      <div className="row">
        {!masked && (
          <button
            type="button"
            className="button primary"
            disabled={running}
            onClick={() => (cancel.current = run(call.tool, args as Json, setCurrent))}
          >
            Replay
          </button>
        )}
        {running && (
          <button type="button" className="button" onClick={() => cancel.current?.()}>
            Cancel
          </button>
        )}
        <a className="button" href={href("tools", call.tool, { args: JSON.stringify(args) })}>
          Change and call
        </a>
        {masked && <span className="soft">Its secrets are masked. Enter them again.</span>}
      </div>
      {current && <RunView run={current} />}
    </>
  );
}
