import { useMemo } from "react";
import { callList, hasFailed, outcomeOf } from "../data/calls";
import { audit, channels, nodes, sessions, stats, status, tools, upstreams } from "../data/live";
import { plugins } from "../data/plugins";
import { useResource } from "../data/resource";
import { filled } from "../data/stats";
import type { Call } from "../data/types";
import { clock, count, duration, moment, plural, rate, span } from "../lib/format";
import { href } from "../lib/route";
import { useStore } from "../lib/store";
import { Chart } from "../ui/chart";
import { Head, Line, type Mood, Panel, State } from "../ui/parts";
import { NextSteps } from "./next-steps";
import { leftAs } from "./nodes";
import { ToolChanges } from "./tool-changes";

export function OverviewPage() {
  const { data: known } = useResource(tools);
  const { data: now } = useResource(status);
  const empty = known?.length === 0;
  return (
    <>
      <Head title="Overview">
        {now && (
          <span className="soft more">
            Version {now.version}, up for {span(now.uptime_s * 1_000)}
          </span>
        )}
      </Head>
      <div className="stack">
        <Tiles />
        <ToolChanges />
        {empty && (
          <Panel title="Nothing is connected yet">
            <NextSteps />
          </Panel>
        )}
        <div className="columns">
          <div className="stack">
            <Connected />
            <Happened />
          </div>
          <LatestCalls />
        </div>
        {known && !empty && (
          <Panel title="Connect more">
            <NextSteps />
          </Panel>
        )}
      </div>
    </>
  );
}

const STEP_S = 5;

function Tiles() {
  const { data } = useResource(stats);
  const points = useMemo(() => (data ? filled(data) : []), [data]);
  const all = data?.all ?? { calls: 0, errors: 0, p50_us: 0, p95_us: 0 };
  const lately = points.slice(-2);
  const perSecond = lately.reduce((sum, point) => sum + point.calls, 0) / (STEP_S * Math.max(1, lately.length));
  const when = (at: number | undefined) =>
    at === undefined || !points[at] ? "" : `${clock(points[at].at_s * 1_000)}: `;
  const quiet = "no calls in the last 5 minutes";
  return (
    <div className="tiles">
      <Tile title="Calls" value={rate(perSecond)} unit="a second">
        <Chart
          label={`Calls over the last five minutes: ${all.calls}`}
          series={[{ kind: "area", values: points.map((point) => point.calls) }]}
          describe={(at) => [
            at === undefined ? "5 minutes" : `${when(at)}${rate((points[at]?.calls ?? 0) / STEP_S)} a second`,
            plural(all.calls, "call"),
          ]}
        />
      </Tile>
      <Tile title="Errors" value={count(all.errors)} unit={all.calls > 0 ? `of ${count(all.calls)}` : ""}>
        <Chart
          label={`Calls that failed over the last five minutes: ${all.errors}`}
          series={[{ kind: "bars", values: points.map((point) => point.errors) }]}
          describe={(at) => [
            at === undefined ? "5 minutes" : `${when(at)}${points[at]?.errors ?? 0} failed`,
            all.calls > 0 ? `${((100 * all.errors) / all.calls).toFixed(1)} %` : quiet,
          ]}
        />
      </Tile>
      <Tile title="Latency" value={all.calls > 0 ? duration(all.p50_us) : "–"} unit={all.calls > 0 ? "median" : ""}>
        <Chart
          log
          label={`Latency over the last five minutes: median ${duration(all.p50_us)}, 95 of 100 below ${duration(all.p95_us)}`}
          series={[
            { kind: "second", values: points.map((point) => point.p95_us) },
            { kind: "line", values: points.map((point) => point.p50_us) },
          ]}
          describe={(at) => [
            at === undefined
              ? "5 minutes"
              : `${when(at)}${points[at]?.calls ? duration(points[at].p50_us) : "no calls"}`,
            all.calls > 0 ? `95 % under ${duration(all.p95_us)}` : quiet,
          ]}
        />
      </Tile>
    </div>
  );
}

function Tile({
  title,
  value,
  unit,
  children,
}: {
  title: string;
  value: string;
  unit: string;
  children: React.ReactNode;
}) {
  return (
    <section className="panel tile" aria-label={title}>
      <div className="body">
        <h2>{title}</h2>
        <p className="value">
          {value} <small>{unit}</small>
        </p>
        {children}
      </div>
    </section>
  );
}

function Connected() {
  const node = useResource(nodes).data;
  const servers = useResource(upstreams).data;
  const installed = useResource(plugins).data;
  const work = useResource(sessions).data;
  const rooms = useResource(channels).data;
  const offered = useResource(tools).data;
  const open = work?.filter((session) => session.state !== "ended");
  const more = (shown: number, all: number, page: string) =>
    all > shown && <a href={href(page)}>and {count(all - shown)} more</a>;
  return (
    <Panel title="What is connected" more={offered && <a href={href("tools")}>{plural(offered.length, "tool")}</a>}>
      <ul className="connected">
        <li>
          <a className="plain" href={href("nodes")}>
            Nodes
          </a>
          <span className="row">
            {node?.slice(0, 8).map((each) => (
              <State key={each.id} mood={each.online ? "good" : "off"}>
                <Line text={each.id} /> {!each.online && <span className="soft">{leftAs(each)}</span>}
              </State>
            ))}
            {node && more(8, node.length, "nodes")}
            {node?.length === 0 && <span className="soft">none</span>}
          </span>
        </li>
        <li>
          <a className="plain" href={href("upstream")}>
            MCP servers
          </a>
          <span className="row">
            {servers?.slice(0, 8).map(({ name, state }) => (
              <State key={name} mood={UPSTREAM_MOOD[state] ?? "plain"}>
                <Line text={name} /> {state !== "ready" && <span className="soft">{state}</span>}
              </State>
            ))}
            {servers && more(8, servers.length, "upstream")}
            {servers?.length === 0 && <span className="soft">none</span>}
          </span>
        </li>
        <li>
          <a className="plain" href={href("plugins")}>
            Plugins
          </a>
          <span className="row">
            {installed?.slice(0, 8).map(({ identifier, enabled, last_error, held_back }) => (
              <State key={identifier} mood={last_error ? "bad" : held_back ? "busy" : enabled ? "good" : "off"}>
                <Line text={identifier} /> {held_back && <span className="soft">has changed</span>}
              </State>
            ))}
            {installed && more(8, installed.length, "plugins")}
            {installed !== undefined && !installed?.length && <span className="soft">none</span>}
          </span>
        </li>
        <li>
          <a className="plain" href={href("sessions")}>
            Sessions
          </a>
          <span>
            {work === null ? (
              <span className="soft">turned off</span>
            ) : (
              open &&
              (open.length > 0 ? `${plural(open.length, "session")} open` : <span className="soft">none open</span>)
            )}
          </span>
        </li>
        <li>
          <a className="plain" href={href("channels")}>
            Channels
          </a>
          <span>
            {rooms &&
              (rooms.length > 0 ? (
                `${plural(rooms.length, "channel")}, ${plural(
                  rooms.reduce((sum, room) => sum + room.participants, 0),
                  "participant",
                )} in them`
              ) : (
                <span className="soft">none</span>
              ))}
          </span>
        </li>
      </ul>
    </Panel>
  );
}

export const UPSTREAM_MOOD: Record<string, Mood> = {
  ready: "good",
  idle: "good",
  starting: "busy",
  offline: "bad",
  failed: "bad",
  login_needed: "bad",
  disabled: "off",
};

export function moodOf(call: Call): Mood {
  if (call.state === "running") return "busy";
  if (call.ok) return "good";
  return hasFailed(call) ? "bad" : "off";
}

function LatestCalls() {
  const { calls, loaded } = useStore(callList.store);
  return (
    <Panel title="Latest calls" more={<a href={href("calls")}>All</a>}>
      <ul className="lines min-lines-14">
        {loaded && calls.length === 0 && (
          <li className="soft">
            <span>
              No calls yet. <a href={href("tools")}>Try a tool</a>, and it appears here.
            </span>
          </li>
        )}
        {calls.slice(0, 14).map((call) => (
          <li key={call.id}>
            <span className="soft num">{clock(call.at_ms)}</span>
            <a className="clip mono grow plain" href={href("calls", call.id)}>
              <Line text={call.tool} />
            </a>
            <State mood={moodOf(call)}>{outcomeOf(call).replaceAll("_", " ")}</State>
            <span className="num soft">
              {call.duration_us === undefined || call.state === "running" ? "" : duration(call.duration_us)}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Happened() {
  const { data } = useResource(audit);
  return (
    <Panel title="Audit log">
      <ul className="lines min-lines-6">
        {data?.slice(0, 6).map((event) => (
          <li key={`${event.at_ms} ${event.what} ${event.subject}`}>
            <span className="soft num">{moment(event.at_ms)}</span>
            <span className="grow clip">
              {event.what.replaceAll(/[._]/g, " ")} {event.subject && <code>{event.subject}</code>}{" "}
              <span className="soft">{event.detail}</span>
            </span>
          </li>
        ))}
      </ul>
      {data?.length === 0 && <p className="soft">No events yet. Connections, refusals and new tokens appear here.</p>}
    </Panel>
  );
}
