import { useEffect, useRef, useState } from "react";
import { cancelCall, outcomeOf } from "../data/calls";
import { type Run, run } from "../data/run";
import type { Call, Payload } from "../data/types";
import { isMasked } from "../data/waterfall";
import { api, Problem } from "../lib/api";
import { bytes, duration, moment, plural } from "../lib/format";
import { href } from "../lib/route";
import type { Json } from "../lib/schema";
import { visibleLine } from "../lib/text";
import { Icon } from "../ui/icons";
import { JsonView } from "../ui/json";
import { CopyButton, Line, ProblemNote, State, useNow } from "../ui/parts";
import { RunView } from "../ui/run-view";
import { moodOf } from "./overview";

/** One call: what it was given, what came of it, and where its time went. */
export function CallDetail({ id, known }: { id: string; known: Call | undefined }) {
  const [fetched, setFetched] = useState<Call>();
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    if (known) return;
    // One that is not among the loaded ones, such as from a link.
    api<Call>(`/v1/calls/${encodeURIComponent(id)}`).then(setFetched, (error) => setProblem(Problem.of(error)));
  }, [id, known]);
  const call = known ?? fetched;
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
      {call && <Loaded call={call} />}
    </article>
  );
}

function Loaded({ call }: { call: Call }) {
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
      <Timing call={call} />
      <dl className="facts">
        <dt>Caller</dt>
        <dd>
          <Line text={call.principal.name} />{" "}
          <span className="soft">
            {call.principal.role}, by {call.surface}
          </span>
        </dd>
        <dt>Went to</dt>
        <dd>
          {call.provider ? (
            <>
              {call.provider.kind} <Line text={call.provider.id} />
            </>
          ) : (
            <span className="soft">{call.state === "running" ? "on its way" : "nobody"}</span>
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
      {call.state === "running" && <p className="soft">Arguments and result are shown once it has ended.</p>}
      {call.state === "ended" && <Again call={call} />}
    </>
  );
}

function Timing({ call }: { call: Call }) {
  const now = useNow(call.state === "running" ? 250 : 3_600_000);
  const total = call.state === "running" ? Math.max(0, now - call.at_ms) * 1_000 : (call.duration_us ?? 0);
  const waited = Math.min(call.waited_us ?? 0, total);
  const part = (value: number) => (total > 0 ? (value / total) * 100 : 0);
  return (
    <section className="phases" aria-label="Timing">
      {waited > 0 && (
        <div>
          <span className="soft">Waited</span>
          <span className="track">
            <i className="wait" style={{ left: 0, width: `${part(waited)}%` }} />
          </span>
          <span className="num">{duration(waited)}</span>
        </div>
      )}
      <div>
        <span className="soft">{call.state === "running" ? "Running" : "Worked"}</span>
        <span className="track">
          <i
            className={moodOf(call) === "good" ? undefined : moodOf(call)}
            style={{ left: `${part(waited)}%`, width: `${part(total - waited)}%` }}
          />
        </span>
        <span className="num">{duration(total - waited)}</span>
      </div>
      {call.updates !== undefined && <span className="soft">{plural(call.updates, "update")} while it ran</span>}
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
        <p className="soft">Too large for the history. More is kept with journal.payload_bytes.</p>
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
        {masked && <span className="soft">Secrets in it are masked, so they have to be filled in again.</span>}
      </div>
      {current && <RunView run={current} />}
    </>
  );
}
