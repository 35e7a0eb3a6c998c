import { type FormEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { appOf, mcpResult } from "../data/apps";
import { nodes, status } from "../data/live";
import { useProgram } from "../data/program";
import { useResource } from "../data/resource";
import { type Run, run } from "../data/run";
import type { Provider, Tool } from "../data/types";
import { span } from "../lib/format";
import { useRoute } from "../lib/route";
import { type Draft, draftOf, emptyDraft, fieldOf, type Json, type Mistake, misfit, typedValue } from "../lib/schema";
import { snippetsOf } from "../lib/snippets";
import { visibleLine } from "../lib/text";
import { AppView } from "../ui/app-view";
import { JsonView } from "../ui/json";
import { Choice, Command, Line, Prose, State } from "../ui/parts";
import { SettingsFor } from "../ui/plugin-settings";
import { RunView } from "../ui/run-view";
import { SchemaForm } from "../ui/schema-form";
import { leftAs } from "./nodes";

/** A tool: its description, a form to try it, and the same call as a snippet. */
export function ToolDetail({ tool }: { tool: Tool }) {
  const hints = Object.entries(tool.annotations ?? {}).filter(
    ([name, value]) => value === true && name.endsWith("Hint"),
  );
  return (
    <article className="stack" aria-label={visibleLine(tool.name)}>
      <div className="stack tight">
        <h2 className="tool-name">
          <Line text={tool.name} />
        </h2>
        <div className="row">
          <State mood={tool.online ? "good" : "off"}>
            {tool.online ? "Online" : "Offline"}, {tool.provider.kind} <Line text={tool.provider.id} />
          </State>
          {tool.title && tool.title !== tool.name && (
            <span className="soft">
              <Line text={tool.title} />
            </span>
          )}
          {hints.map(([name]) => (
            <span key={name} className="chip">
              {name
                .replace(/Hint$/, "")
                .replaceAll(/([A-Z])/g, " $1")
                .toLowerCase()}
            </span>
          ))}
        </div>
      </div>
      <p className="prose">
        <Prose text={tool.description ?? "It has no description."} />
      </p>
      <TryIt tool={tool} />
      <Schemas tool={tool} />
    </article>
  );
}

function Schemas({ tool }: { tool: Tool }) {
  if (!tool.input_schema && !tool.output_schema)
    return <p className="soft">It does not describe its arguments. Any JSON object is passed on.</p>;
  return (
    <details>
      <summary>Schema</summary>
      <div className="stack">
        {tool.input_schema && (
          <div className="stack tight">
            <h3>Arguments</h3>
            <JsonView value={tool.input_schema as Json} label="Schema of the arguments" />
          </div>
        )}
        {tool.output_schema && (
          <div className="stack tight">
            <h3>Result</h3>
            <JsonView value={tool.output_schema as Json} label="Schema of the result" />
          </div>
        )}
      </div>
    </details>
  );
}

type Mode = "form" | "json";

/** A form for a tool's arguments, and the outcome of the call. */
export function TryIt({ tool, onRun }: { tool: Tool; onRun?: (run: Run, args: Json) => void }) {
  const given = useGiven();
  const field = useMemo(() => fieldOf(tool.input_schema ?? { type: "object" }), [tool.input_schema]);
  const formless = field.kind !== "object" || (field.fields.length === 0 && field.open);
  const [mode, setMode] = useState<Mode>(formless || (given !== undefined && misfit(field, given)) ? "json" : "form");
  const [draft, setDraft] = useState<Draft>(() => (given === undefined ? emptyDraft(field) : draftOf(field, given)));
  const [text, setText] = useState(() => JSON.stringify(given ?? {}, null, 2));
  const [mistakes, setMistakes] = useState<Mistake[]>([]);
  const [refusals, setRefusals] = useState(0);
  const [notice, setNotice] = useState("");
  const [current, setCurrent] = useState<Run>();
  const [sent, setSent] = useState<Json>({});
  const cancel = useRef<() => void>(undefined);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => () => cancel.current?.(), []);
  // In the same frame as the mistakes, so that a user who continues typing types into the invalid field.
  useLayoutEffect(() => {
    if (refusals > 0) form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [refusals]);

  const typed = useMemo(() => (mode === "form" ? typedValue(field, draft) : read(text)), [mode, field, draft, text]);
  const change = (next: Mode) => {
    setNotice("");
    setMistakes([]);
    if (next === "json") setText(JSON.stringify(typed.value ?? {}, null, 2));
    else {
      const { value, mistakes: wrong } = read(text);
      const problem = wrong[0]?.message ?? (value === undefined ? undefined : misfit(field, value));
      if (problem) return setNotice(`It stays JSON: ${problem}.`);
      setDraft(draftOf(field, value));
    }
    setMode(next);
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setMistakes(typed.mistakes);
    if (typed.mistakes.length > 0 || typed.value === undefined) {
      setRefusals((count) => count + 1);
      return;
    }
    const args = typed.value;
    setSent(args);
    cancel.current = run(tool.name, args, (now) => {
      setCurrent(now);
      onRun?.(now, args);
    });
  };
  const running = current?.state === "running";
  return (
    <>
      <form ref={form} className="stack" onSubmit={submit} noValidate aria-label="Try it">
        <div className="row apart">
          <h3>Try it</h3>
          {!formless && (
            <Choice
              label="How to give the arguments"
              value={mode}
              options={[
                ["form", "Form"],
                ["json", "JSON"],
              ]}
              onChange={change}
            />
          )}
        </div>
        {notice && (
          <p className="soft" role="status">
            {notice}
          </p>
        )}
        {mode === "form" && field.kind === "object" && field.fields.length === 0 && (
          <p className="soft">It takes no arguments.</p>
        )}
        {mode === "form" ? (
          <SchemaForm field={field} draft={draft} mistakes={mistakes} onChange={setDraft} />
        ) : (
          <div className="field">
            <label htmlFor="raw">Arguments as JSON</label>
            <textarea
              id="raw"
              className="input code"
              rows={6}
              spellCheck={false}
              value={text}
              aria-invalid={mistakes.length > 0}
              aria-describedby={mistakes.length > 0 ? "raw-wrong" : undefined}
              onChange={(event) => setText(event.target.value)}
            />
            {mistakes[0] && (
              <span className="wrong" id="raw-wrong">
                This {mistakes[0].message}
              </span>
            )}
          </div>
        )}
        <div className="row">
          <button type="submit" className="button primary" disabled={running}>
            Call
          </button>
          <button type="button" className="button" disabled={!running} onClick={() => cancel.current?.()}>
            Cancel
          </button>
          {!tool.online && <Away provider={tool.provider} />}
        </div>
      </form>
      {current && <RunView run={current} />}
      <SettingsFor tool={tool.name} reason={current?.problem?.reason} />
      {current?.state === "done" && appOf(tool) && (
        <AppView key={current.callId} tool={tool} args={sent} result={mcpResult(current.result, current.blocks)} />
      )}
      <Elsewhere tool={tool.name} args={typed.value ?? {}} />
    </>
  );
}

/** The outcome of a call to a tool with an offline provider. */
function Away({ provider: { kind, id } }: { provider: Provider }) {
  const away = useResource(nodes).data?.find((node) => kind === "node" && node.id === id && !node.online);
  return (
    <span className="soft">
      {away ? `Its node was ${leftAs(away)} ${span(away.for_ms)} ago. ` : "Its provider is not connected. "}A call waits
      for it only shortly after it left; later it fails at once.
    </span>
  );
}

/** The arguments in the address, such as those of a call to repeat. */
function useGiven(): Json | undefined {
  const { query } = useRoute();
  const [given] = useState(() => {
    const text = query.get("args");
    return text === null ? undefined : read(text).value;
  });
  return given;
}

function read(text: string): { value: Json | undefined; mistakes: Mistake[] } {
  try {
    return { value: JSON.parse(text || "{}") as Json, mistakes: [] };
  } catch (error) {
    return { value: undefined, mistakes: [{ path: [], message: `is not JSON: ${(error as Error).message}` }] };
  }
}

/** The same call, for a terminal, a script or an agent. */
function Elsewhere({ tool, args }: { tool: string; args: Json }) {
  const [chosen, setChosen] = useState("curl");
  const program = useProgram();
  const dir = useResource(status).data?.data_dir ?? "~/.local/share/switchboard";
  const snippets = snippetsOf(tool, args, { url: location.origin, program, tokenFile: `${dir}/operator.token` });
  const shown = snippets.find(({ label }) => label === chosen) ?? snippets[0];
  return (
    <div className="stack tight">
      <div className="row apart">
        <h3>The same call elsewhere</h3>
        <Choice
          label="Where"
          value={chosen}
          options={snippets.map(({ label }) => [label, label] as const)}
          onChange={setChosen}
        />
      </div>
      {shown && <Command text={shown.text} label={`Copy as ${shown.label}`} />}
    </div>
  );
}
