import { type FormEvent, useState } from "react";
import { upstreams } from "../data/live";
import { useProgram } from "../data/program";
import { useResource } from "../data/resource";
import type { Upstream } from "../data/types";
import { api, Problem, segment } from "../lib/api";
import { moment, plural } from "../lib/format";
import { href } from "../lib/route";
import { visible, visibleLine } from "../lib/text";
import { words } from "../lib/words";
import { Command, Empty, Head, Panel, ProblemNote, Prose, State, Sure } from "../ui/parts";
import { UPSTREAM_MOOD } from "./overview";

export function UpstreamPage() {
  const { data, problem } = useResource(upstreams);
  const program = useProgram();
  return (
    <>
      <Head title="MCP servers">
        {data && <span className="soft">{plural(data.length, "server")} behind the gateway</span>}
      </Head>
      <div className="stack">
        {problem && !data && <ProblemNote problem={problem} />}
        {data?.length === 0 && (
          <Empty title="No MCP server yet">
            <p>Its tools are offered here under its name, to every client. Add one below, or by typing:</p>
            <Command text={`${program} upstream add files -- npx -y @modelcontextprotocol/server-filesystem "$HOME"`} />
          </Empty>
        )}
        <div className="cards">
          {data?.map((server) => (
            <ServerCard key={server.name} server={server} />
          ))}
        </div>
        {(data || problem) && <Add />}
      </div>
    </>
  );
}

function ServerCard({ server }: { server: Upstream }) {
  const [problem, setProblem] = useState<Problem>();
  const [login, setLogin] = useState<{ url: string; since: number }>();
  const logIn = () => {
    setProblem(undefined);
    api<{ url: string }>(`/v1/upstream/${segment(server.name)}/login`, { method: "POST" }).then(
      ({ url }) => setLogin({ url, since: server.since_ms }),
      (error) => setProblem(Problem.of(error)),
    );
  };
  const act = (path: string, method: "POST" | "DELETE") => () => {
    setProblem(undefined);
    api(`/v1/upstream/${segment(server.name)}${path}`, { method }).then(upstreams.refresh, (error) =>
      setProblem(Problem.of(error)),
    );
  };
  return (
    <Panel
      title={visibleLine(server.name)}
      more={<State mood={UPSTREAM_MOOD[server.state] ?? "plain"}>{server.state}</State>}
    >
      <div className="stack">
        <code className="break">{visibleLine(server.url || (server.command ?? []).join(" "))}</code>
        {server.last_error && (
          <div className="note">
            <span>{visible(server.last_error)}</span>
          </div>
        )}
        {server.left_out?.map(({ tool, why }) => (
          <div className="note" key={tool}>
            <span>{`The tool "${visibleLine(tool)}" is left out: ${visible(why)}`}</span>
          </div>
        ))}
        <dl className="facts">
          <dt>tools</dt>
          <dd>{server.tools > 0 ? <a href={href("tools")}>{server.tools}</a> : "none"}</dd>
          <dt>since</dt>
          <dd>{moment(server.since_ms)}</dd>
          <dt>restarts</dt>
          <dd>{server.restarts}</dd>
          <dt>from</dt>
          <dd>{server.source === "config" ? "the configuration file" : "added while running"}</dd>
        </dl>
        {problem && <ProblemNote problem={problem} />}
        {login?.since === server.since_ms && (
          <div className="note">
            <span className="break">
              Open this address and log in there: <Prose text={login.url} />
            </span>
          </div>
        )}
        <div className="row">
          {server.logged_in !== undefined && (
            <button type="button" className="button small" onClick={logIn}>
              Log in
            </button>
          )}
          {server.logged_in && (
            <Sure label="Log out" sure={`Log out of ${visibleLine(server.name)}?`} onSure={act("/logout", "POST")} />
          )}
          <button type="button" className="button small" onClick={act("/restart", "POST")}>
            Restart
          </button>
          {server.source === "added" && (
            <Sure label="Remove" sure={`Remove ${visibleLine(server.name)}?`} onSure={act("", "DELETE")} />
          )}
        </div>
      </div>
    </Panel>
  );
}

function Add() {
  const [name, setName] = useState("");
  const [place, setPlace] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      const spec = /^https?:\/\//.test(place.trim()) ? { url: place.trim() } : { command: words(place) };
      await api("/v1/upstream", { method: "POST", body: { name: name.trim(), ...spec } });
      setName("");
      setPlace("");
      upstreams.refresh();
    } catch (error) {
      setProblem(Problem.of(error));
    }
    setBusy(false);
  };
  return (
    <Panel title="Add a server">
      <form className="stack narrow-form" onSubmit={submit}>
        <div className="field">
          <label htmlFor="name">Name</label>
          <input
            id="name"
            className="input"
            required
            autoComplete="off"
            value={name}
            placeholder="files"
            onChange={(event) => setName(event.target.value)}
            aria-describedby="name-hint"
          />
          <span className="hint" id="name-hint">
            The first part of its tools’ names, as in <code>files__read_file</code>.
          </span>
        </div>
        <div className="field">
          <label htmlFor="place">Command or address</label>
          <input
            id="place"
            className="input code"
            required
            autoComplete="off"
            spellCheck={false}
            value={place}
            placeholder="npx -y @modelcontextprotocol/server-filesystem /srv/files   or   https://example.com/mcp"
            onChange={(event) => setPlace(event.target.value)}
          />
        </div>
        {problem && <ProblemNote problem={problem} />}
        <div>
          <button type="submit" className="button primary" disabled={busy || !name.trim() || !place.trim()}>
            Add
          </button>
        </div>
      </form>
    </Panel>
  );
}
