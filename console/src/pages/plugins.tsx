import { type FormEvent, useState } from "react";
import { grants, manifestOf, takeBack } from "../data/grants";
import { type Plugin, plugins } from "../data/plugins";
import { useResource } from "../data/resource";
import { api, Problem, segment } from "../lib/api";
import { moment, plural } from "../lib/format";
import { href } from "../lib/route";
import { useStore } from "../lib/store";
import { visible, visibleLine } from "../lib/text";
import { Differences } from "../ui/differences";
import { Command, Empty, Head, Panel, ProblemNote, Prose, State, Sure } from "../ui/parts";
import { PluginSettings } from "../ui/plugin-settings";
import { titleOf } from "../ui/secret-dialog";

export function PluginsPage() {
  const { data, problem } = useResource(plugins);
  return (
    <>
      <Head title="Plugins">{data && <span className="soft">{plural(data.length, "plugin")}</span>}</Head>
      <div className="stack">
        {problem && !data && <ProblemNote problem={problem} />}
        {data === null && <Empty title="This gateway has no plugins" />}
        {data?.length === 0 && (
          <Empty title="No plugins yet">
            <p>
              A plugin is an HTTP server with a manifest. Each of its functions is a tool here. Add one below, or by
              typing:
            </p>
            <Command text="switchboard plugin add https://example.com/manifest.json" />
          </Empty>
        )}
        <div className="cards">
          {data?.map((plugin) => (
            <PluginCard key={plugin.identifier} plugin={plugin} />
          ))}
        </div>
        {data && <Add />}
      </div>
    </>
  );
}

function PluginCard({ plugin }: { plugin: Plugin }) {
  const [problem, setProblem] = useState<Problem>();
  const act =
    (action: string, { method = "POST", body }: { method?: "POST" | "DELETE"; body?: unknown } = {}) =>
    () => {
      setProblem(undefined);
      const path = `/v1/plugins/${segment(plugin.identifier)}${action && `/${action}`}`;
      api(path, { method, body }).then(plugins.refresh, (error) => setProblem(Problem.of(error)));
    };
  const title = visibleLine(plugin.meta.title ?? plugin.identifier);
  return (
    <Panel
      title={title}
      more={
        <State mood={plugin.last_error ? "bad" : plugin.enabled ? "good" : "off"}>
          {plugin.last_error ? "error" : plugin.enabled ? "on" : "off"}
        </State>
      }
    >
      <div className="stack">
        {plugin.meta.description && (
          <p className="break">
            <Prose text={plugin.meta.description} />
          </p>
        )}
        {plugin.last_error && (
          <div className="note">
            <span>{visible(plugin.last_error)}</span>
          </div>
        )}
        {plugin.held_back && (
          <HeldBack
            plugin={plugin}
            // With the hash: a change after the shown one is not accepted unseen.
            onAccept={act("accept", { body: { hash: plugin.held_back.hash } })}
            onRefuse={act("refuse")}
          />
        )}
        <div className="chips">
          {plugin.api.map((each) =>
            each.tool ? (
              <a key={each.name} className="chip" href={href("tools", each.tool)}>
                {visibleLine(each.tool)}
              </a>
            ) : (
              <span key={each.name} className="chip">
                {visibleLine(each.name)}
              </span>
            ),
          )}
        </div>
        <dl className="facts">
          <dt>kind</dt>
          <dd>
            {plugin.type}
            {plugin.ui && ", with a page of its own"}
          </dd>
          {plugin.source && (
            <>
              <dt>from</dt>
              <dd>{visibleLine(plugin.source)}</dd>
            </>
          )}
          {plugin.origins && plugin.origins.length > 0 && (
            <>
              <dt>calls</dt>
              <dd>{plugin.origins.map(visibleLine).join(", ")}</dd>
            </>
          )}
          {plugin.allow_private && (
            <>
              <dt>private</dt>
              <dd>may reach {plugin.allow_private.map(visibleLine).join(", ")}</dd>
            </>
          )}
          {plugin.fetched_ms !== undefined && (
            <>
              <dt>read</dt>
              <dd>{moment(plugin.fetched_ms)}</dd>
            </>
          )}
        </dl>
        {plugin.settings && <PluginSettings plugin={plugin} />}
        <Grants plugin={plugin} />
        {problem && <ProblemNote problem={problem} />}
        <div className="row">
          <button type="button" className="button small" onClick={act(plugin.enabled ? "disable" : "enable")}>
            {plugin.enabled ? "Turn off" : "Turn on"}
          </button>
          {plugin.source && (
            <button type="button" className="button small" onClick={act("refresh")}>
              Check for changes
            </button>
          )}
          <Sure label="Remove" sure={`Remove ${title}?`} onSure={act("", { method: "DELETE" })} />
        </div>
      </div>
    </Panel>
  );
}

/** The user's decisions about the plugin's page in this tab, with a button to change them. */
function Grants({ plugin }: { plugin: Plugin }) {
  const own = useStore(grants).filter((grant) => grant.plugin === plugin.identifier);
  if (own.length === 0) return null;
  return (
    <section className="stack tight" aria-label="Its page and your secrets">
      <h3>Its page and your secrets</h3>
      <ul className="lines">
        {own.map((grant) => {
          const fields = grant.values === undefined ? grant.fields : Object.keys(grant.values);
          const names = fields.map((field) => titleOf(plugin, field)).join(", ");
          return (
            <li key={grant.origin}>
              <span className="grow break">
                {grant.values === undefined ? "Does not see" : "Sees"} <strong>{names}</strong>{" "}
                <span className="soft">
                  at {visibleLine(grant.origin)}, since {moment(grant.at_ms)}
                  {grant.manifest !== manifestOf(plugin) && "; no longer valid, because the plugin has changed"}
                </span>
              </span>
              <button type="button" className="button small" onClick={() => takeBack(grant)}>
                {grant.values === undefined ? "Ask me again" : "Revoke"}
              </button>
            </li>
          );
        })}
      </ul>
      {own.some(({ values }) => values !== undefined) && (
        <p className="soft">
          A page may remember the secrets that it has seen. If you no longer trust it, replace the secret itself.
        </p>
      )}
    </section>
  );
}

/** The source's new manifest. It has no effect until the user accepts it. */
function HeldBack({ plugin, onAccept, onRefuse }: { plugin: Plugin; onAccept: () => void; onRefuse: () => void }) {
  const { at_ms, changes } = plugin.held_back ?? { at_ms: 0, changes: [] };
  return (
    <section className="held stack tight" aria-label="A change that is held back">
      <h3>Its manifest has changed</h3>
      <p className="soft">Seen {moment(at_ms)}. The plugin keeps its accepted version until you decide.</p>
      <Differences of={changes} />
      <div className="row">
        <button type="button" className="button small primary" onClick={onAccept}>
          Accept
        </button>
        <button type="button" className="button small" onClick={onRefuse}>
          Refuse
        </button>
      </div>
    </section>
  );
}

function Add() {
  const [url, setUrl] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [failed, setFailed] = useState<{ identifier: string; error: string }[]>([]);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      const added = await api<{ failed: { identifier: string; error: string }[] }>("/v1/plugins", {
        method: "POST",
        body: { url: url.trim() },
      });
      setFailed(added.failed);
      setUrl("");
      plugins.refresh();
    } catch (error) {
      setProblem(Problem.of(error));
    }
    setBusy(false);
  };
  return (
    <Panel title="Add a plugin">
      <form className="stack narrow-form" onSubmit={submit}>
        <div className="field">
          <label htmlFor="manifest">Address of its manifest</label>
          <input
            id="manifest"
            className="input code"
            type="url"
            required
            autoComplete="off"
            spellCheck={false}
            value={url}
            placeholder="https://example.com/manifest.json"
            aria-describedby="manifest-hint"
            onChange={(event) => setUrl(event.target.value)}
          />
          <span className="hint" id="manifest-hint">
            Or of an index of plugins, or of an OpenAPI document.
          </span>
        </div>
        {problem && <ProblemNote problem={problem} />}
        {failed.map(({ identifier, error }) => (
          <p key={identifier} className="bad">
            {visibleLine(identifier)}: {visible(error)}
          </p>
        ))}
        <div>
          <button type="submit" className="button primary" disabled={busy || !url.trim()}>
            Add
          </button>
        </div>
      </form>
    </Panel>
  );
}
