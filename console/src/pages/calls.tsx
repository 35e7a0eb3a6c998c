import { memo, useCallback, useDeferredValue, useMemo, useState } from "react";
import { callList, type Filter, loadOlder, matches, outcomeOf } from "../data/calls";
import type { Call } from "../data/types";
import { bar, type Placed, waterfall } from "../data/waterfall";
import { clock, duration, plural } from "../lib/format";
import { go, href, useRoute } from "../lib/route";
import { useStore } from "../lib/store";
import { visibleLine } from "../lib/text";
import { Empty, Head, State, useNow } from "../ui/parts";
import { VirtualList } from "../ui/virtual";
import { CallDetail } from "./call";
import { moodOf } from "./overview";

const ROW = 34;
const keyOf = (call: Call) => call.id;
const OUTCOMES = [
  "running",
  "ok",
  "error",
  "invalid_args",
  "not_allowed",
  "not_found",
  "timeout",
  "cancelled",
  "failed",
  "offline",
  "overloaded",
  "conflict",
  "store",
];

/** All calls, live: caller, tool, provider, duration and outcome. */
export function CallsPage() {
  const { item } = useRoute();
  const { calls, loaded, cursor } = useStore(callList.store);
  const [filter, setFilter] = useState<Filter>({ text: "", outcome: "", surface: "" });
  const wanted = useDeferredValue(filter);
  const found = useMemo(() => calls.filter((call) => matches(call, wanted)), [calls, wanted]);
  const surfaces = useMemo(() => [...new Set(calls.map((call) => call.surface))].sort(), [calls]);
  const live = calls.some((call) => call.state === "running");
  const now = useNow(live ? 500 : 3_600_000);
  const frame = useCallback((drawn: readonly Call[]) => waterfall(drawn, now), [now]);
  const onEnd = useCallback(() => void loadOlder().catch(() => {}), []);
  const filtered = filter.text !== "" || filter.outcome !== "" || filter.surface !== "";
  return (
    <>
      <Head title="Calls">
        <span className="soft" role="status">
          {filtered ? `${found.length} of ${plural(calls.length, "call")}` : plural(calls.length, "call")}
          {cursor !== undefined && ", older ones as you scroll"}
        </span>
      </Head>
      <div className={item ? "split wide chosen" : "split wide alone"}>
        <div className="list">
          <search className="searchbar">
            <input
              className="input"
              type="search"
              aria-label="Search calls"
              placeholder="Tool, caller, provider or id  ( / )"
              value={filter.text}
              onChange={(event) => setFilter({ ...filter, text: event.target.value })}
            />
            <select
              className="input"
              aria-label="Outcome"
              value={filter.outcome}
              onChange={(event) => setFilter({ ...filter, outcome: event.target.value })}
            >
              <option value="">any outcome</option>
              {OUTCOMES.map((outcome) => (
                <option key={outcome} value={outcome}>
                  {outcome === "error" ? "any error" : outcome.replaceAll("_", " ")}
                </option>
              ))}
            </select>
            <select
              className="input"
              aria-label="Surface"
              value={filter.surface}
              onChange={(event) => setFilter({ ...filter, surface: event.target.value })}
            >
              <option value="">any surface</option>
              {surfaces.map((surface) => (
                <option key={surface}>{surface}</option>
              ))}
            </select>
          </search>
          {loaded && found.length === 0 ? (
            <div className="detail">
              <Nothing filtered={filtered} onClear={() => setFilter({ text: "", outcome: "", surface: "" })} />
            </div>
          ) : (
            <VirtualList
              label="Calls"
              items={found}
              keyOf={keyOf}
              height={ROW}
              chosen={item}
              onChoose={({ id }) => go("calls", id)}
              onEnd={onEnd}
              frame={frame}
              header={(shown) => <CallHeader span={shown?.span ?? 0} />}
              render={(call, shown) => <CallRow call={call} place={shown?.place(call)} now={now} />}
            />
          )}
        </div>
        {item && (
          <div className="detail">
            <CallDetail key={item} id={item} known={calls.find((call) => call.id === item)} />
          </div>
        )}
      </div>
    </>
  );
}

function Nothing({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  if (filtered) {
    return (
      <Empty title="No matching calls">
        <p className="soft">No loaded call matches. Scroll to the end of the list to load older calls.</p>
        <button type="button" className="button" onClick={onClear}>
          Show all calls
        </button>
      </Empty>
    );
  }
  return (
    <Empty title="No calls yet">
      <p>
        <a href={href("tools")}>Try a tool</a>, or let an agent call one: it appears here as it happens.
      </p>
    </Empty>
  );
}

function CallHeader({ span }: { span: number }) {
  return (
    <div className="call-row call-head">
      <span className="when">Time</span>
      <span>Tool</span>
      <span className="who">Caller</span>
      <span className="where">Provider</span>
      <span>Outcome</span>
      <span className="took">Took</span>
      <span className="timing clip">{span > 0 ? `Within ${duration(span * 1_000)}` : "Timing"}</span>
    </div>
  );
}

/** Renders again only if a property differs; a call is never mutated, but replaced. */
const CallRow = memo(function CallRow({ call, place, now }: RowProps) {
  const outcome = outcomeOf(call);
  const { left, wait, width } = place ?? NOWHERE;
  return (
    <div className="call-row">
      <span className="num soft when">{clock(call.at_ms)}</span>
      <span className="clip mono">{visibleLine(call.tool)}</span>
      <span className="clip who">
        {visibleLine(call.principal.name)} <span className="soft">{call.surface}</span>
      </span>
      <span className="clip soft where">{call.provider ? visibleLine(call.provider.id) : ""}</span>
      <State mood={moodOf(call)}>{outcome.replaceAll("_", " ")}</State>
      <span className="num took">
        {call.state === "running"
          ? duration(Math.max(0, now - call.at_ms) * 1_000)
          : call.duration_us === undefined
            ? "unknown"
            : duration(call.duration_us)}
      </span>
      <span className="track" aria-hidden="true">
        {wait > 0 && <i className="wait" style={bar(left, wait)} />}
        <i className={moodOf(call) === "good" ? undefined : moodOf(call)} style={bar(left + wait, width)} />
      </span>
    </div>
  );
}, sameRow);

const NOWHERE: Placed = { left: 0, wait: 0, width: 0 };

type RowProps = { call: Call; place: Placed | undefined; now: number };

function sameRow(before: RowProps, after: RowProps): boolean {
  const moved = (["left", "wait", "width"] as const).some((side) => before.place?.[side] !== after.place?.[side]);
  return before.call === after.call && !moved && (after.call.state !== "running" || before.now === after.now);
}
