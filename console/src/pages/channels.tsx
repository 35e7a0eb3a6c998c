import { type FormEvent, useState } from "react";
import { channels } from "../data/live";
import { useProgram } from "../data/program";
import { useResource } from "../data/resource";
import type { Channel } from "../data/types";
import { plural } from "../lib/format";
import { go, href, useRoute } from "../lib/route";
import { visibleLine } from "../lib/text";
import { Icon } from "../ui/icons";
import { Command, Empty, Head, ProblemNote } from "../ui/parts";
import { VirtualList } from "../ui/virtual";
import { ChannelDetail } from "./channel";

const keyOf = (channel: Channel) => channel.name;

/** Channels for agents, pages and people. */
export function ChannelsPage() {
  const { item } = useRoute();
  const { data, problem } = useResource(channels);
  const program = useProgram();
  return (
    <>
      <Head title="Channels">{data && <span className="soft">{plural(data.length, "channel")}</span>}</Head>
      {problem && !data && <ProblemNote problem={problem} />}
      <div className={item ? "split chosen" : "split"}>
        <div className="list">
          <Enter />
          {data?.length === 0 ? (
            <div className="detail">
              <Empty title="No channels yet">
                <p>A channel begins with its first message. Open one above, or type:</p>
                <Command text={`${program} channel send lobby "hello"`} />
              </Empty>
            </div>
          ) : (
            <VirtualList
              label="Channels"
              items={data ?? []}
              keyOf={keyOf}
              height={54}
              chosen={item}
              onChoose={({ name }) => go("channels", name)}
              render={(channel) => (
                <div className="tool-item">
                  <span className="name clip">{visibleLine(channel.name)}</span>
                  <span className="from">{channel.participants > 0 ? `${channel.participants} here` : ""}</span>
                  <span className="about clip">
                    {plural(Math.max(0, channel.last_id - channel.first_id + 1), "message")} stored
                  </span>
                </div>
              )}
            />
          )}
        </div>
        {item ? (
          <ChannelDetail key={item} name={item} />
        ) : (
          <div className="detail">
            <Empty title="Choose a channel">
              <p className="soft">Its participants and messages appear here, live.</p>
            </Empty>
          </div>
        )}
      </div>
      {item && (
        <a className="back button small" href={href("channels")}>
          <Icon name="back" /> All channels
        </a>
      )}
    </>
  );
}

function Enter() {
  const [name, setName] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (name.trim()) go("channels", name.trim());
    setName("");
  };
  return (
    <form className="searchbar" onSubmit={submit}>
      <input
        className="input"
        aria-label="Name of a channel"
        placeholder="Open a channel by its name"
        autoComplete="off"
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <button type="submit" className="button" disabled={!name.trim()}>
        Open
      </button>
    </form>
  );
}
