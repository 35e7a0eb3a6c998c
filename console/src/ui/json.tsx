import { Fragment, useMemo } from "react";
import type { Json } from "../lib/schema";
import { visible } from "../lib/text";

/** Texts beyond the first limit are shown without colours, and texts beyond the second are cut. */
const COLOURED = 20_000;
const SHOWN = 500_000;

export function JsonView({ value, label }: { value: Json; label: string }) {
  const text = useMemo(() => visible(typeof value === "string" ? value : JSON.stringify(value, null, 2)), [value]);
  const plain = typeof value === "string" || text.length > COLOURED;
  return (
    <pre className="json" aria-label={label} role="region" tabIndex={0}>
      {plain ? text.slice(0, SHOWN) : <Coloured text={text} />}
      {text.length > SHOWN && `\n… ${text.length - SHOWN} more characters`}
    </pre>
  );
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b/g;

function Coloured({ text }: { text: string }) {
  const parts = [];
  let done = 0;
  for (const match of text.matchAll(TOKEN)) {
    const key = match[2] !== undefined;
    const kind = match[1] === undefined ? (match[3] === undefined ? "w" : "n") : "s";
    parts.push(<Fragment key={done}>{text.slice(done, match.index)}</Fragment>);
    parts.push(
      key ? (
        <Fragment key={`k${match.index}`}>{match[0]}</Fragment>
      ) : (
        <span key={match.index} className={kind}>
          {match[0]}
        </span>
      ),
    );
    done = match.index + match[0].length;
  }
  parts.push(<Fragment key="end">{text.slice(done)}</Fragment>);
  return <>{parts}</>;
}
