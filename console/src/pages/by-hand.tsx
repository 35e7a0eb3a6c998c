import { useMemo, useState } from "react";
import { tools } from "../data/live";
import { exposedName, isShown, type Plugin, type PluginFunction, plugins } from "../data/plugins";
import { useResource } from "../data/resource";
import type { Run } from "../data/run";
import type { Tool } from "../data/types";
import { type Draft, emptyDraft, fieldOf, type Json, type Mistake, typedValue } from "../lib/schema";
import { visible, visibleLine } from "../lib/text";
import { Command, Panel, Prose } from "../ui/parts";
import { PluginView } from "../ui/plugin-view";
import { SchemaForm } from "../ui/schema-form";
import { TryIt } from "./tool";

export function NoModel() {
  return (
    <Panel title="No model is configured">
      <div className="stack">
        <p>Name any OpenAI-compatible server in a configuration file, such as switchboard.toml:</p>
        <Command
          label="Copy the lines"
          text={
            '[models.local]\nbase_url = "http://127.0.0.1:11434/v1"\nmodel = "qwen3"\n\n[models.gpt]\nbase_url = "https://api.openai.com/v1"\napi_key = "env:OPENAI_API_KEY"\nmodel = "gpt-5.1"'
          }
        />
        <p>
          Then stop the gateway. Start it again with the arguments that you started it with, and with{" "}
          <code>--config switchboard.toml</code> in addition. For <code>cargo xtask up</code> it is the same:
        </p>
        <Command text="switchboard up --config switchboard.toml" />
        <Command text="cargo xtask up --config switchboard.toml" />
      </div>
    </Panel>
  );
}

interface Entry {
  name: string;
  tool?: Tool;
  plugin?: Plugin;
  called?: PluginFunction;
}

/** Tools and plugins that a person runs instead of a model. */
export function ByHand() {
  const offered = useResource(tools).data;
  const installed = useResource(plugins).data;
  const [chosen, setChosen] = useState("");
  const entries = useMemo(() => {
    const found = new Map<string, Entry>(offered?.map((tool) => [tool.name, { name: tool.name, tool }]));
    for (const plugin of installed ?? [])
      for (const called of plugin.api) {
        const name = exposedName(plugin, called);
        const known = found.get(name);
        if (known || plugin.ui) found.set(name, { ...(known ?? { name }), plugin, called });
      }
    return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }, [offered, installed]);
  const entry = entries.find(({ name }) => name === chosen);
  return (
    <Panel title="Run a tool yourself">
      <div className="stack">
        <div className="field narrow-form">
          <label htmlFor="by-hand">Tool</label>
          <select id="by-hand" className="input" value={chosen} onChange={(event) => setChosen(event.target.value)}>
            <option value="">choose</option>
            {entries.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </div>
        {entry && <Entered key={entry.name} entry={entry} />}
      </div>
    </Panel>
  );
}

function Entered({ entry: { name, tool, plugin, called } }: { entry: Entry }) {
  const [shown, setShown] = useState<{ args: string; content: string; id: string }>();
  const description = tool?.description ?? called?.description;
  const done = (run: Run, args: Json) => {
    if (run.state === "done")
      setShown({
        args: JSON.stringify(args),
        content: typeof run.result === "string" ? run.result : JSON.stringify(run.result),
        id: run.callId ?? crypto.randomUUID(),
      });
  };
  return (
    <div className="stack">
      {description && (
        <p className="prose">
          <Prose text={description} />
        </p>
      )}
      {tool && <TryIt tool={tool} onRun={done} />}
      {!tool && called && (
        <PageForm called={called} onShow={(args) => setShown({ args, content: "", id: crypto.randomUUID() })} />
      )}
      {shown && plugin && called && isShown(plugin) && (
        <PluginView
          plugin={plugin}
          messageId={`hand:${name}:${shown.id}`}
          apiName={called.name}
          args={shown.args}
          content={shown.content}
          onContent={(content) =>
            setShown({ ...shown, content: typeof content === "string" ? content : JSON.stringify(content) })
          }
        />
      )}
      {shown?.content && !tool && (
        <p className="soft">
          The text for the model: <span className="message-text">{visible(shown.content)}</span>
        </p>
      )}
    </div>
  );
}

/** The arguments of a function that the plugin's own page runs. */
function PageForm({ called, onShow }: { called: PluginFunction; onShow: (args: string) => void }) {
  const field = useMemo(() => fieldOf(called.parameters), [called.parameters]);
  const [draft, setDraft] = useState<Draft>(() => emptyDraft(field));
  const [mistakes, setMistakes] = useState<Mistake[]>([]);
  return (
    <form
      className="stack"
      noValidate
      aria-label={visibleLine(called.name)}
      onSubmit={(event) => {
        event.preventDefault();
        const typed = typedValue(field, draft);
        setMistakes(typed.mistakes);
        if (typed.mistakes.length === 0) onShow(JSON.stringify(typed.value ?? {}));
      }}
    >
      <SchemaForm field={field} draft={draft} mistakes={mistakes} onChange={setDraft} />
      <div>
        <button type="submit" className="button primary">
          Open
        </button>
      </div>
    </form>
  );
}
