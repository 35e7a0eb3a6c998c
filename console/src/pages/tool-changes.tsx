import { useState } from "react";
import { toolChanges, tools } from "../data/live";
import { useResource } from "../data/resource";
import type { ToolChange } from "../data/types";
import { api, Problem } from "../lib/api";
import { moment, plural } from "../lib/format";
import { href } from "../lib/route";
import { visibleLine } from "../lib/text";
import { Differences } from "../ui/differences";
import { Panel } from "../ui/parts";

const MOST = 20;

/** The tools with changed definitions. Shows nothing if there are none. */
export function ToolChanges() {
  const { data } = useResource(toolChanges);
  const [problem, setProblem] = useState<Problem>();
  if (!data?.length) return null;
  const accept = async ({ provider, tool, revision }: ToolChange) => {
    setProblem(undefined);
    try {
      // With the revision: a change after the shown one is not accepted unseen.
      await api("/v1/tool-changes/accept", { method: "POST", body: { provider, tool, revision } });
    } catch (error) {
      setProblem(Problem.of(error));
    }
    toolChanges.refresh();
    tools.refresh();
  };
  return (
    <Panel title="Tools that have changed">
      <div className="stack">
        {problem && (
          <div className="note" role="alert">
            <span>{problem.message}</span>
          </div>
        )}
        {data.slice(0, MOST).map((change) => (
          <Change
            key={`${change.provider.kind}/${change.provider.id}/${change.tool}`}
            change={change}
            onAccept={() => accept(change)}
          />
        ))}
        {data.length > MOST && (
          <p className="soft">
            and {plural(data.length - MOST, "more tool")}; <code>switchboard tool-changes</code> shows all
          </p>
        )}
      </div>
    </Panel>
  );
}

function Change({ change, onAccept }: { change: ToolChange; onAccept: () => void }) {
  const { provider, tool, name, at_ms, held, differences, invisible_characters } = change;
  const shown = visibleLine(name ?? tool);
  return (
    <section className="held stack tight" aria-label={`A change of ${shown}`}>
      <h3>{name ? <a href={href("tools", name)}>{shown}</a> : shown}</h3>
      <p className="soft">
        Changed {moment(at_ms)} by the {provider.kind} {visibleLine(provider.id)}.{" "}
        {held && "Calls of it fail until you accept the change."}
      </p>
      <Differences of={differences} />
      {invisible_characters > 0 && (
        <p className="soft">{plural(invisible_characters, "invisible character")} removed from its texts</p>
      )}
      <div className="row">
        <button type="button" className="button small primary" onClick={onAccept}>
          Accept
        </button>
      </div>
    </section>
  );
}
