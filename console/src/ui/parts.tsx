import { type MouseEvent, type ReactNode, useEffect, useState } from "react";
import type { Problem } from "../lib/api";
import { linked, visible, visibleLine } from "../lib/text";
import { Icon } from "./icons";

/** External text, on one line. */
export function Line({ text }: { text: string }) {
  return <>{visibleLine(text)}</>;
}

/** External text, with its web addresses as links. They open in a separate tab, without a referrer. */
export function Prose({ text }: { text: string }) {
  return (
    <>
      {linked(visible(text)).map((part, at) =>
        part.href === undefined ? (
          part.text
        ) : (
          <a key={at} href={part.href} target="_blank" rel="noopener noreferrer nofollow">
            {part.text}
          </a>
        ),
      )}
    </>
  );
}

export type Mood = "good" | "bad" | "busy" | "off" | "plain";

export function State({ mood, children }: { mood: Mood; children: ReactNode }) {
  return (
    <span className="state">
      <span className={`dot ${mood}`} aria-hidden="true" />
      {children}
    </span>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1_500);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <button type="button" className="button quiet icon" title={label} onClick={() => void copy(text).then(setDone)}>
      <Icon name={done ? "done" : "copy"} />
      <span className="hide" aria-live="polite">
        {done ? "Copied" : label}
      </span>
    </button>
  );
}

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page without TLS from another machine has no clipboard API; the older method still works there.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hide";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A command to type elsewhere. */
export function Command({ text, label }: { text: string; label?: string }) {
  return (
    <div className="command">
      <pre>{text}</pre>
      <CopyButton text={text} label={label ?? "Copy the command"} />
    </div>
  );
}

export function ProblemNote({ problem }: { problem: Problem }) {
  return (
    <div className="note" role="alert">
      <span>
        <strong>{problem.kind.replaceAll("_", " ")}</strong> {visible(problem.message)}
      </span>
      {problem.hint && <span className="soft">{visible(problem.hint)}</span>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Panel({ title, more, children }: { title: string; more?: ReactNode; children: ReactNode }) {
  return (
    <section className="panel" aria-label={title}>
      <div className="top">
        <h2>{title}</h2>
        {more}
      </div>
      <div className="body">{children}</div>
    </section>
  );
}

/** A page's title gets the focus when the page opens, so that keyboards and screen readers start there. */
export function Head({ title, children }: { title: ReactNode; children?: ReactNode }) {
  return (
    <div className="head">
      <h1>{title}</h1>
      {children}
    </div>
  );
}

export function Choice<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <div className="tabs" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => onChange(option)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/**
 * A button that needs two presses for an irreversible action. It asks for confirmation while it has the focus, so that
 * there is no timeout for reading; a double click is one press.
 */
export function Sure({ label, sure, onSure }: { label: string; sure: string; onSure: () => void }) {
  const [asked, setAsked] = useState(false);
  const press = (event: MouseEvent<HTMLButtonElement>) => {
    if (asked && event.detail > 1) return;
    // Some browsers do not focus a clicked button.
    event.currentTarget.focus();
    if (asked) onSure();
    setAsked(!asked);
  };
  return (
    <button
      type="button"
      className="button small danger"
      onClick={press}
      onBlur={() => setAsked(false)}
      onKeyDown={(event) => event.key === "Escape" && setAsked(false)}
    >
      {asked ? sure : label}
    </button>
  );
}

/** The current time, for ages on the page. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
