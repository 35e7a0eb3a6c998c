import { type FormEvent, useEffect, useMemo, useState } from "react";
import { type Plugin, pluginOf, plugins, readSettings, writeSettings } from "../data/plugins";
import { useResource } from "../data/resource";
import { Problem } from "../lib/api";
import { type Draft, draftOf, emptyDraft, fieldOf, type Json, type Mistake, typedValue } from "../lib/schema";
import { visible, visibleLine } from "../lib/text";
import { Panel, ProblemNote } from "./parts";
import { SchemaForm } from "./schema-form";

/** The settings of a tool's plugin, opened for a call that failed because of them. */
export function SettingsFor({ tool, reason }: { tool: string; reason: string | undefined }) {
  return reason === "settings_invalid" && <SettingsOfTool tool={tool} />;
}

function SettingsOfTool({ tool }: { tool: string }) {
  const plugin = pluginOf(useResource(plugins).data ?? [], tool)?.plugin;
  if (!plugin?.settings) return null;
  return (
    <Panel title={`Settings of ${visibleLine(plugin.meta.title ?? plugin.identifier)}`}>
      <PluginSettings plugin={plugin} open />
    </Panel>
  );
}

/**
 * The settings of a plugin's user. A stored secret is never shown: its field holds the mask. A mask that is sent back
 * means the stored value.
 */
export function PluginSettings({ plugin, open = false }: { plugin: Plugin; open?: boolean }) {
  const field = useMemo(() => fieldOf(plugin.settings), [plugin.settings]);
  const [draft, setDraft] = useState<Draft>();
  const [mistakes, setMistakes] = useState<Mistake[]>([]);
  const [lacking, setLacking] = useState<string>();
  const [problem, setProblem] = useState<Problem>();
  const [word, setWord] = useState("");
  const id = plugin.identifier;
  useEffect(() => {
    readSettings(id).then(
      ({ settings, problem: why }) => {
        setDraft({
          ...(emptyDraft(field) as object),
          ...(settings ? (draftOf(field, settings as Json) as object) : {}),
        });
        setLacking(why);
      },
      (error) => setProblem(Problem.of(error)),
    );
  }, [id, field]);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const typed = typedValue(field, draft);
    setMistakes(typed.mistakes);
    setWord("");
    if (typed.mistakes.length > 0 || typed.value === undefined) return;
    try {
      const stored = await writeSettings(id, typed.value);
      setLacking(stored.problem);
      setProblem(undefined);
      setWord("Saved.");
    } catch (error) {
      setProblem(Problem.of(error));
    }
  };
  if (draft === undefined)
    return (
      <details open={open}>
        <summary>Settings</summary>
        {problem ? <ProblemNote problem={problem} /> : <p className="soft">Loading…</p>}
      </details>
    );
  return (
    <details open={open || lacking !== undefined}>
      <summary>Settings</summary>
      <form className="stack" onSubmit={submit} noValidate aria-label="Settings">
        {lacking && <p className="soft">Calls are refused for now: {visible(lacking)}</p>}
        <SchemaForm
          field={field}
          draft={draft}
          mistakes={mistakes}
          onChange={(next) => {
            setWord("");
            setDraft(next);
          }}
        />
        {problem && <ProblemNote problem={problem} />}
        <div className="row">
          <button type="submit" className="button small primary">
            Save
          </button>
          <span className="soft" role="status">
            {word}
          </span>
        </div>
      </form>
    </details>
  );
}
