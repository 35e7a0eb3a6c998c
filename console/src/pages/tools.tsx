import { useMemo, useRef, useState } from "react";
import { tools } from "../data/live";
import { useResource } from "../data/resource";
import type { Tool } from "../data/types";
import { plural } from "../lib/format";
import { go, href, useRoute } from "../lib/route";
import { visibleLine } from "../lib/text";
import { Icon } from "../ui/icons";
import { Empty, Head, ProblemNote } from "../ui/parts";
import { type ListKeys, VirtualList } from "../ui/virtual";
import { NextSteps } from "./next-steps";
import { ToolDetail } from "./tool";

const keyOf = (tool: Tool) => tool.name;

export function ToolsPage() {
  const { item } = useRoute();
  const { data, problem } = useResource(tools);
  const [search, setSearch] = useState("");
  const found = useMemo(() => (data ? matching(data, search) : []), [data, search]);
  const list = useRef<ListKeys>(null);
  const tool = data?.find(({ name }) => name === item);
  if (data?.length === 0) {
    return (
      <>
        <Head title="Tools" />
        <Empty title="No tools yet">
          <p>Tools come from connected providers. Connect one of these:</p>
          <NextSteps />
        </Empty>
      </>
    );
  }
  return (
    <>
      <Head title="Tools">
        {data && (
          <span className="soft">
            {search ? `${found.length} of ${plural(data.length, "tool")}` : plural(data.length, "tool")}
          </span>
        )}
      </Head>
      {problem && !data && <ProblemNote problem={problem} />}
      <div className={item ? "split chosen" : "split"}>
        <div className="list">
          <search className="searchbar">
            <input
              className="input"
              type="search"
              aria-label="Search tools"
              placeholder="Search tools  ( / )"
              value={search}
              onChange={(event) => setSearch(event.target.value)}
              onKeyDown={(event) => list.current?.fromSearch(event)}
            />
          </search>
          {data && found.length === 0 ? (
            <div className="detail">
              <Empty title="No matching tools">
                <p className="soft">None has “{visibleLine(search.trim())}” in its name, description or provider.</p>
                <button type="button" className="button" onClick={() => setSearch("")}>
                  Show all tools
                </button>
              </Empty>
            </div>
          ) : (
            <VirtualList
              label="Tools"
              keys={list}
              items={found}
              keyOf={keyOf}
              height={54}
              chosen={item}
              onChoose={({ name }) => go("tools", name)}
              render={(found) => <ToolItem tool={found} />}
            />
          )}
        </div>
        <div className="detail">
          <a className="back button small" href={href("tools")}>
            <Icon name="back" /> All tools
          </a>
          {tool && <ToolDetail key={tool.name} tool={tool} />}
          {!tool && item && data && (
            <Empty title="There is no such tool">
              <p>
                “{visibleLine(item)}” is not offered by a connected provider. Its provider may be offline: see{" "}
                <a href={href("nodes")}>nodes</a> and <a href={href("upstream")}>MCP servers</a>.
              </p>
            </Empty>
          )}
          {!item && (
            <Empty title="Choose a tool">
              <p className="soft">
                Its description, its arguments and a form to try it appear here. Search with <code>/</code>, move with
                the arrow keys, open with Enter.
              </p>
            </Empty>
          )}
        </div>
      </div>
    </>
  );
}

function ToolItem({ tool }: { tool: Tool }) {
  return (
    <div className="tool-item">
      <span className="name clip">{visibleLine(tool.name)}</span>
      <span className="from">{tool.online ? visibleLine(tool.provider.id) : "offline"}</span>
      <span className="about clip">
        {visibleLine((tool.description ?? tool.title ?? "No description").split("\n", 1)[0] ?? "")}
      </span>
    </div>
  );
}

/** Returns the tools that contain every word; matches in the name come first. */
export function matching(all: Tool[], search: string): Tool[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return all;
  const has = (text: string) => words.every((word) => text.toLowerCase().includes(word));
  const about = ({ name, title, description, provider }: Tool) =>
    `${name} ${title ?? ""} ${description ?? ""} ${provider.kind} ${provider.id}`;
  const found = all.filter((tool) => has(about(tool)));
  return [...found.filter(({ name }) => has(name)), ...found.filter(({ name }) => !has(name))];
}
