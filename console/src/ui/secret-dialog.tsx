import { type FormEvent, useMemo, useState } from "react";
import type { Plugin } from "../data/plugins";
import { type Draft, fieldOf, type Json, type Mistake, type Schema, typedValue } from "../lib/schema";
import { visibleLine } from "../lib/text";
import { Dialog } from "./dialog";
import { SchemaForm } from "./schema-form";

/** A request of a plugin's page for secret settings. */
export interface SecretRequest {
  origin: string;
  purpose: "read" | "write";
  fields: string[];
}

interface Props {
  plugin: Plugin;
  request: SecretRequest;
  /** Called with the values that the user typed for the page, if it requests to see them. */
  onYes: (values: Record<string, unknown>) => void;
  onNo: () => void;
  /** Closes without a decision. */
  onClose: () => void;
}

/** Asks whether a plugin's page may see or change secret settings. */
export function SecretDialog({ plugin, request, onYes, onNo, onClose }: Props) {
  const title = visibleLine(plugin.meta.title ?? plugin.identifier);
  const reads = request.purpose === "read";
  return (
    <Dialog title={reads ? "Let a plugin’s page see a secret?" : "Let a plugin’s page change a secret?"} onNo={onClose}>
      <dl className="facts">
        <dt>Plugin</dt>
        <dd>
          {title} <span className="soft">{visibleLine(plugin.identifier)}</span>
        </dd>
        <dt>Its page is at</dt>
        <dd className="mono">{visibleLine(request.origin)}</dd>
        <dt>{reads ? "It asks to see" : "It wants to set"}</dt>
        <dd>{request.fields.map((field) => titleOf(plugin, field)).join(", ")}</dd>
      </dl>
      {reads ? (
        <Typed plugin={plugin} fields={request.fields} onYes={onYes} onNo={onNo} />
      ) : (
        <>
          <p>The page’s value replaces the stored value. The page does not see the stored value.</p>
          <div className="row">
            <button type="button" className="button" data-first onClick={onNo}>
              Refuse
            </button>
            <button type="button" className="button primary" onClick={() => onYes({})}>
              Let it change this
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}

function Typed({ plugin, fields, onYes, onNo }: Omit<Props, "request" | "onClose"> & { fields: string[] }) {
  const field = useMemo(() => fieldOf(schemaOf(plugin.settings, fields)), [plugin.settings, fields]);
  const [draft, setDraft] = useState<Draft>({});
  const [mistakes, setMistakes] = useState<Mistake[]>([]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const typed = typedValue(field, draft);
    const values = (typed.value ?? {}) as Record<string, Json>;
    const empty = Object.values(values).every((value) => value === "");
    const wrong = empty ? [{ path: [fields[0] ?? ""], message: "is empty, so there is nothing to give" }] : [];
    setMistakes([...typed.mistakes, ...wrong]);
    if (typed.mistakes.length + wrong.length === 0) onYes(values);
  };
  return (
    <form className="stack" noValidate onSubmit={submit} autoComplete="off" data-first>
      <p>
        The gateway stores it encrypted and sends it only to the plugin’s server. It never shows it, not even here. Type
        it to give it to the plugin’s page as well.
      </p>
      <SchemaForm field={field} draft={draft} mistakes={mistakes} onChange={setDraft} />
      <p className="soft">
        This tab remembers it for this page until you revoke it, sign out or close the tab. A page at another address
        needs a new decision. So does this page after a change of the plugin.
      </p>
      <div className="row">
        <button type="button" className="button" onClick={onNo}>
          Refuse
        </button>
        <button type="submit" className="button primary">
          Let the page see it
        </button>
      </div>
    </form>
  );
}

const isObject = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Returns the schema of a nested setting, if it is known. */
function schemaAt(settings: Schema | undefined, name: string): Schema | undefined {
  let node: unknown = settings;
  for (const step of name.split(".")) {
    const properties: unknown = isObject(node) ? node.properties : undefined;
    node = isObject(properties) && Object.hasOwn(properties, step) ? properties[step] : undefined;
  }
  return isObject(node) ? node : undefined;
}

/** The fields in one list, with their full names. */
function schemaOf(settings: Schema | undefined, fields: string[]): Schema {
  const plain: Schema = { type: "string", format: "password" };
  const properties = Object.fromEntries(
    fields.map((name) => {
      const { default: _, ...known } = schemaAt(settings, name) ?? plain;
      return [name, known];
    }),
  );
  return { type: "object", properties, $defs: settings?.$defs, definitions: settings?.definitions };
}

/** The setting's name for the user. */
export function titleOf(plugin: Plugin, name: string): string {
  const title = schemaAt(plugin.settings, name)?.title;
  return visibleLine(typeof title === "string" && title !== "" ? title : name);
}
