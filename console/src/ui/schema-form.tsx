import { useId } from "react";
import { type Draft, emptyDraft, type Field, type Mistake } from "../lib/schema";
import { visible, visibleLine } from "../lib/text";
import { Icon } from "./icons";
import { Prose } from "./parts";

interface Props<F extends Field = Field> {
  name: string;
  field: F;
  draft: Draft;
  path: string[];
  mistakes: Mistake[];
  onChange: (draft: Draft) => void;
}

/** The fields of an object, one below the other. */
export function SchemaForm({
  field,
  draft,
  mistakes,
  onChange,
}: {
  field: Field;
  draft: Draft;
  mistakes: Mistake[];
  onChange: (draft: Draft) => void;
}) {
  if (field.kind !== "object")
    return <FieldView name="Arguments" field={field} draft={draft} path={[]} mistakes={mistakes} onChange={onChange} />;
  return <Fields field={field} draft={draft} path={[]} mistakes={mistakes} onChange={onChange} />;
}

function Fields({ field, draft, path, mistakes, onChange }: Omit<Props<Extract<Field, { kind: "object" }>>, "name">) {
  const given = (draft ?? {}) as Record<string, Draft>;
  return (
    <div className="stack">
      {field.fields.map(({ name, field: inner }) => (
        <FieldView
          key={name}
          name={name}
          field={inner}
          draft={given[name]}
          path={[...path, name]}
          mistakes={mistakes}
          onChange={(next) => onChange({ ...given, [name]: next })}
        />
      ))}
    </div>
  );
}

function FieldView(props: Props) {
  const { name, field, draft, path, mistakes, onChange } = props;
  const id = useId();
  const wrong = mistakes.find((mistake) => mistake.path.join("\n") === path.join("\n"))?.message;
  const described = [field.description ? `${id}h` : "", wrong ? `${id}w` : ""].filter(Boolean).join(" ") || undefined;
  const about = (
    <>
      {field.description && (
        <span className="hint" id={`${id}h`}>
          <Prose text={field.description} />
        </span>
      )}
      {wrong && (
        <span className="wrong" id={`${id}w`}>
          {visibleLine(name)} {visible(wrong)}
        </span>
      )}
    </>
  );
  const label = (
    <>
      {visibleLine(field.title ?? name)} {field.required && <span className="must">required</span>}
    </>
  );
  if (field.kind === "object" || field.kind === "list") return <Group {...props} label={label} about={about} />;
  if (field.kind === "switch" && field.required) {
    return (
      <div className="field">
        <label className="check" htmlFor={id}>
          <input
            id={id}
            type="checkbox"
            checked={draft === true}
            aria-describedby={described}
            onChange={(event) => onChange(event.target.checked)}
          />
          {label}
        </label>
        {about}
      </div>
    );
  }
  const common = {
    id,
    className: "input",
    "aria-invalid": wrong !== undefined,
    "aria-describedby": described,
    "aria-required": field.required,
  };
  const text = typeof draft === "string" ? draft : "";
  const change = (value: string) => onChange(value === "" && !field.required ? undefined : value);
  let control: React.ReactNode;
  if (field.kind === "switch") {
    control = (
      <select
        {...common}
        value={draft === undefined ? "" : String(draft)}
        onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.value === "true")}
      >
        <option value="">not set</option>
        <option value="true">true</option>
        <option value="false">false</option>
      </select>
    );
  } else if (field.kind === "choice") {
    control = (
      <select
        {...common}
        value={text}
        onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.value)}
      >
        <option value="">{field.required ? "choose" : "not set"}</option>
        {field.options.map((option, at) => (
          <option key={JSON.stringify(option)} value={String(at)}>
            {visibleLine(typeof option === "string" ? option : JSON.stringify(option))}
          </option>
        ))}
      </select>
    );
  } else if (field.kind === "number") {
    const bounds = [
      field.minimum !== undefined ? `from ${field.minimum}` : "",
      field.maximum !== undefined ? `to ${field.maximum}` : "",
    ]
      .filter(Boolean)
      .join(" ");
    control = (
      <input
        {...common}
        inputMode={field.integer ? "numeric" : "decimal"}
        value={text}
        placeholder={bounds || (field.integer ? "whole number" : "number")}
        onChange={(event) => change(event.target.value)}
      />
    );
  } else if (field.kind === "json") {
    control = (
      <textarea
        {...common}
        className="input code"
        rows={3}
        spellCheck={false}
        value={text}
        placeholder={`JSON. ${field.why}`}
        onChange={(event) => change(event.target.value)}
      />
    );
  } else if (field.multiline || text.includes("\n")) {
    control = (
      <textarea
        {...common}
        rows={3}
        value={text}
        placeholder={field.placeholder}
        onChange={(event) => change(event.target.value)}
      />
    );
  } else {
    control = (
      <input
        {...common}
        type={field.secret ? "password" : "text"}
        autoComplete="off"
        spellCheck={false}
        value={text}
        placeholder={field.placeholder}
        onChange={(event) => change(event.target.value)}
      />
    );
  }
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {control}
      {about}
    </div>
  );
}

/** A nested object or list. An optional one is absent at first. */
function Group({
  name,
  field,
  draft,
  path,
  mistakes,
  onChange,
  label,
  about,
}: Props & { label: React.ReactNode; about: React.ReactNode }) {
  const absent = draft === undefined && !field.required;
  const shown = visibleLine(name);
  const add = () => onChange(emptyDraft({ ...field, required: true }));
  return (
    <fieldset className="stack tight">
      <legend>{label}</legend>
      {about}
      {absent && (
        <div>
          <button type="button" className="button small" onClick={add}>
            <Icon name="add" size={12} /> Set {shown}
          </button>
        </div>
      )}
      {!absent && field.kind === "object" && (
        <Fields field={field} draft={draft} path={path} mistakes={mistakes} onChange={onChange} />
      )}
      {!absent && field.kind === "list" && (
        <Items name={name} field={field} draft={draft} path={path} mistakes={mistakes} onChange={onChange} />
      )}
      {!absent && !field.required && (
        <div>
          <button type="button" className="button small quiet" onClick={() => onChange(undefined)}>
            Leave {shown} out
          </button>
        </div>
      )}
    </fieldset>
  );
}

function Items({ name, field, draft, path, mistakes, onChange }: Props<Extract<Field, { kind: "list" }>>) {
  const items = Array.isArray(draft) ? draft : [];
  const shown = visibleLine(name);
  const set = (at: number, next: Draft) => onChange(items.map((item, index) => (index === at ? next : item)));
  return (
    <div className="stack tight">
      {items.map((item, at) => (
        <div key={at} className="row">
          <div className="grow">
            <FieldView
              name={`${at + 1}`}
              field={field.item}
              draft={item}
              path={[...path, String(at)]}
              mistakes={mistakes}
              onChange={(next) => set(at, next)}
            />
          </div>
          <button
            type="button"
            className="button icon quiet"
            title={`Remove ${shown} ${at + 1}`}
            onClick={() => onChange(items.filter((_, index) => index !== at))}
          >
            <Icon name="close" />
            <span className="hide">
              Remove {shown} {at + 1}
            </span>
          </button>
        </div>
      ))}
      <div>
        <button type="button" className="button small" onClick={() => onChange([...items, emptyDraft(field.item)])}>
          <Icon name="add" size={12} /> Add to {shown}
        </button>
      </div>
    </div>
  );
}
