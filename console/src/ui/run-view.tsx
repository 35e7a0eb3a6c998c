import type { Run } from "../data/run";
import { milliseconds } from "../lib/format";
import { href } from "../lib/route";
import { visible } from "../lib/text";
import { JsonView } from "./json";
import { CopyButton, ProblemNote, State, useNow } from "./parts";

/** A call made from this page: its progress, its output, its outcome. */
export function RunView({ run }: { run: Run }) {
  const words = {
    running: ["busy", "Running"],
    done: ["good", "Done"],
    failed: ["bad", "Failed"],
    cancelled: ["off", "Cancelled"],
  } as const;
  const [mood, word] = words[run.state];
  return (
    <section className="stack" aria-label="Outcome">
      <div className="row apart" role="status">
        <State mood={mood}>
          {word}{" "}
          <span className="soft num">
            {run.durationMs !== undefined ? (
              milliseconds(run.durationMs)
            ) : run.state === "running" ? (
              <Elapsed since={run.startedAt} />
            ) : (
              ""
            )}
          </span>
        </State>
        {run.callId && (
          <a className="soft" href={href("calls", run.callId)}>
            in the calls
          </a>
        )}
      </div>
      {run.progress && (run.state === "running" || run.state === "done") && (
        <Progress {...run.progress} done={run.state === "done"} />
      )}
      {run.problem && run.state === "failed" && <ProblemNote problem={run.problem} />}
      {run.chunks.length > 0 && <Chunks run={run} />}
      {run.images.length > 0 && (
        <div className="images">
          {run.images.map(({ src, name }, at) => (
            <img key={at} src={src} alt={name} />
          ))}
        </div>
      )}
      {run.result !== undefined && (
        <div className="stack tight">
          <div className="row apart">
            <h3>Result</h3>
            <CopyButton text={JSON.stringify(run.result, null, 2)} label="Copy the result" />
          </div>
          <JsonView value={run.result} label="Result" />
        </div>
      )}
    </section>
  );
}

function Elapsed({ since }: { since: number }) {
  const now = useNow(100);
  return <>{((now - since) / 1_000).toFixed(1)} s</>;
}

function Progress({
  progress,
  total,
  message,
  done,
}: {
  progress: number;
  total?: number;
  message?: string;
  done: boolean;
}) {
  const part = done ? 1 : total ? Math.min(1, progress / total) : undefined;
  return (
    <div className="stack tight">
      <div
        className="bar"
        role="progressbar"
        aria-label="Progress"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={part === undefined ? undefined : Math.round(part * 100)}
      >
        <i style={{ transform: `scaleX(${part ?? 0.15})` }} />
      </div>
      <span className="soft">
        {visible(message ?? "")} {!message && (total ? `${progress} of ${total}` : progress)}
      </span>
    </div>
  );
}

function Chunks({ run }: { run: Run }) {
  const text = run.chunks.map((chunk) => (typeof chunk === "string" ? chunk : `${JSON.stringify(chunk)}\n`)).join("");
  return (
    <div className="stack tight">
      <h3>Output while it ran</h3>
      <pre className="json" role="log" aria-label="Output while it ran" tabIndex={0}>
        {run.dropped > 0 && `… ${run.dropped} earlier parts\n`}
        {visible(text)}
      </pre>
    </div>
  );
}
