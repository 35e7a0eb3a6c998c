import { useMemo, useState } from "react";
import { nodeEvents, nodes, tools } from "../data/live";
import { useProgram } from "../data/program";
import { useResource } from "../data/resource";
import type { Node, NodeEvent } from "../data/types";
import { api, Problem } from "../lib/api";
import { clock, duration, moment, plural, span } from "../lib/format";
import { href } from "../lib/route";
import type { Json } from "../lib/schema";
import { useStore } from "../lib/store";
import { shortened, visibleLine } from "../lib/text";
import { Command, Empty, Head, Line, Panel, ProblemNote, State } from "../ui/parts";
import { NextSteps } from "./next-steps";

export function NodesPage() {
  const { data, problem } = useResource(nodes);
  return (
    <>
      <Head title="Nodes">
        {data && <span className="soft">{plural(data.filter((node) => node.online).length, "connected node")}</span>}
      </Head>
      {problem && !data && <ProblemNote problem={problem} />}
      {data?.length === 0 && (
        <Empty title="No node is connected">
          <p>A node is any process that offers tools. This one offers a machine’s shell and files:</p>
          <NextSteps />
        </Empty>
      )}
      <div className="stack">
        <div className="cards">
          {data?.map((node) => (
            <NodeCard key={node.id} node={node} />
          ))}
        </div>
        {data && data.length > 0 && <Events nodes={data} />}
      </div>
    </>
  );
}

/** How an offline node disconnected: a node that stops sends a goodbye. */
export const leftAs = ({ stopped }: Node) => (stopped ? "stopped" : "lost");

const MANY = 12;

function NodeCard({ node }: { node: Node }) {
  const [all, setAll] = useState(false);
  const about = (
    typeof node.about === "object" && node.about !== null && !Array.isArray(node.about) ? node.about : {}
  ) as Record<string, Json>;
  const facts = ["name", "version", "node_type", "remote"].flatMap((key) =>
    typeof about[key] === "string" && about[key] !== "" ? [[key.replaceAll("_", " "), about[key]] as const] : [],
  );
  const shown = all ? node.tools : node.tools.slice(0, MANY);
  return (
    <Panel
      title={visibleLine(node.id)}
      more={
        <State mood={node.online ? "good" : "off"}>
          {node.online ? `connected for ${span(node.for_ms)}` : `${leftAs(node)} ${span(node.for_ms)} ago`}
        </State>
      }
    >
      <div className="stack">
        <dl className="facts">
          {facts.map(([name, value]) => (
            <Fact key={name} name={name}>
              <Line text={value} />
            </Fact>
          ))}
          {node.hostOs && <Fact name="system">{visibleLine(node.hostOs)}</Fact>}
          {node.role && (
            <Fact name="host">
              {node.role}
              {node.primary && ", bare tool names run here"}
            </Fact>
          )}
          <Fact name="calls">{node.running_calls > 0 ? `${node.running_calls} running` : "none running"}</Fact>
          {node.capabilities.length > 0 && (
            <Fact name="offers">
              <span className="mono">{node.capabilities.map(visibleLine).join(", ")}</span>
            </Fact>
          )}
        </dl>
        <div className="chips">
          {shown.map((tool) => (
            <a key={tool} className="chip" href={href("tools", tool)}>
              {visibleLine(tool)}
            </a>
          ))}
          {node.tools.length > MANY && (
            <button type="button" className="button small quiet" onClick={() => setAll(!all)}>
              {all ? "Fewer" : `${node.tools.length - MANY} more`}
            </button>
          )}
        </div>
        {node.blocked?.map(({ name, held_by }) => (
          <p key={name} className="soft">
            <code>{visibleLine(name)}</code> gets no calls here: {visibleLine(held_by)} has the name.
          </p>
        ))}
        <Processes node={node} />
      </div>
    </Panel>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

interface Background {
  sessionId: string;
  status: string;
  command: string;
  durationMs: number;
  exitCode?: number | null;
  running: boolean;
}

/** The background processes of a machine, read with its own tool. */
function Processes({ node }: { node: Node }) {
  const offered = useResource(tools).data;
  const tool = useMemo(
    () =>
      offered?.find(
        ({ name, provider }) => provider.kind === "node" && provider.id === node.id && /(^|__)Process$/.test(name),
      )?.name,
    [offered, node.id],
  );
  const [list, setList] = useState<Background[]>();
  const [problem, setProblem] = useState<Problem>();
  if (!tool || !node.online) return null;
  const ask = async (args: Json) => {
    setProblem(undefined);
    try {
      if (args) await api(`/v1/tools/${encodeURIComponent(tool)}/call`, { method: "POST", body: { args } });
      const { result } = await api<{ result: { sessions?: Background[] } }>(
        `/v1/tools/${encodeURIComponent(tool)}/call`,
        { method: "POST", body: { args: { action: "list" } } },
      );
      setList(result.sessions ?? []);
    } catch (error) {
      setProblem(Problem.of(error));
    }
  };
  return (
    <div className="stack tight">
      <div className="row apart">
        <h3>In the background</h3>
        <button type="button" className="button small" onClick={() => void ask(null)}>
          {list ? "Look again" : "Look"}
        </button>
      </div>
      {problem && <ProblemNote problem={problem} />}
      {list?.length === 0 && <p className="soft">Nothing runs in the background.</p>}
      {list && list.length > 0 && (
        <ul className="lines">
          {list.map((process) => (
            <li key={process.sessionId}>
              <State mood={process.running ? "busy" : process.status === "failed" ? "bad" : "good"}>
                {process.status}
              </State>
              <code className="clip grow">{visibleLine(process.command)}</code>
              <span className="num soft">{duration(process.durationMs * 1_000)}</span>
              {process.running && (
                <button
                  type="button"
                  className="button small danger"
                  onClick={() => void ask({ action: "kill", sessionId: process.sessionId })}
                >
                  Kill<span className="hide"> {visibleLine(process.command)}</span>
                </button>
              )}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Events of nodes outside of calls, such as the end of a process. */
function Events({ nodes: all }: { nodes: Node[] }) {
  const live = useStore(nodeEvents);
  const program = useProgram();
  const events = useMemo(() => {
    const known = new Map<string, NodeEvent>();
    for (const event of [...all.flatMap((node) => node.recent_events ?? []), ...live])
      known.set(`${event.node} ${event.at_ms} ${event.event} ${JSON.stringify(event.data)}`, event);
    return [...known].sort(([, a], [, b]) => b.at_ms - a.at_ms).slice(0, 50);
  }, [all, live]);
  return (
    <Panel title="Events of nodes">
      {events.length === 0 ? (
        <div className="stack tight">
          <p className="soft">No events yet. A command in the background reports here when it starts and ends:</p>
          <Command text={`${program} call Bash command='sleep 5' background=true`} />
        </div>
      ) : (
        <ul className="lines">
          {events.map(([key, event]) => (
            <li key={key}>
              <span className="num soft" title={moment(event.at_ms)}>
                {clock(event.at_ms)}
              </span>
              <strong>{visibleLine(event.node)}</strong>
              <span>{visibleLine(event.event.replaceAll(/[._]/g, " "))}</span>
              <span className="soft clip grow mono">{about(event.data)}</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function about(data: Json | undefined): string {
  if (data === undefined || data === null) return "";
  const fields = typeof data === "object" && !Array.isArray(data) ? data : {};
  const words = [
    fields.command ?? fields.message,
    fields.exitCode == null ? undefined : `exit ${fields.exitCode}`,
    fields.signal,
    typeof fields.durationMs === "number" ? duration(fields.durationMs * 1_000) : undefined,
  ];
  const known = words.filter((word) => typeof word === "string" && word !== "").join("  ");
  return visibleLine(shortened(known || JSON.stringify(data), 200));
}
