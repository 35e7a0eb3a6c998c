import {
  type PluginView as Mounted,
  mountPlugin,
  renderMarkdown,
  type SecretsAnswer,
  webStorageStore,
} from "@switchboard/plugin-host";
import { useCallback, useEffect, useRef, useState } from "react";
import { STATE_PREFIX } from "../data/conversation";
import { decide, findGrant, type Grant, grants, takeBack } from "../data/grants";
import { type Plugin, readSettings, writeSettings } from "../data/plugins";
import type { Json } from "../lib/schema";
import { useStore } from "../lib/store";
import { visible } from "../lib/text";
import { SecretDialog, type SecretRequest, titleOf } from "./secret-dialog";

interface Props {
  plugin: Plugin;
  /** The message of the call; it is the key of the page's state. */
  messageId: string;
  apiName: string;
  /** As JSON text. */
  args: string;
  /** The answer of the plugin's server. */
  content: string;
  onContent?: (content: unknown) => void;
  onTrigger?: () => void;
  onSay?: (text: string) => void;
}

interface Asked {
  request: SecretRequest;
  answer: (answer: SecretsAnswer) => void;
}

/** A plugin's view of a call: its page in a sandboxed frame, or its Markdown. */
export function PluginView(props: Props) {
  const { plugin, messageId, apiName, args, content } = props;
  const place = useRef<HTMLDivElement>(null);
  const mounted = useRef<Mounted>(undefined);
  const latest = useRef(props);
  latest.current = props;
  // A reloaded list of plugins has new objects with the same content, which are no reason to reload the page.
  const shown = JSON.stringify([plugin.identifier, plugin.type, plugin.ui, plugin.settings]);
  const [problem, setProblem] = useState("");
  const [asked, setAsked] = useState<Asked[]>([]);
  useEffect(() => {
    if (!place.current || !shown) return;
    const { plugin } = latest.current;
    const id = plugin.identifier;
    setAsked([]);
    mounted.current = mountPlugin(place.current, {
      manifest: plugin,
      call: { messageId, apiName, arguments: args },
      content: latest.current.content,
      store: webStorageStore(sessionStorage, STATE_PREFIX),
      settings: {
        read: async () => (await readSettings(id)).settings ?? {},
        write: async (changes) => {
          const stored = (await readSettings(id)).settings ?? {};
          await writeSettings(id, { ...stored, ...changes } as Json);
        },
      },
      grantedSecrets: ({ origin }) => answerOf(findGrant(grants.get(), latest.current.plugin, origin)),
      requestSecrets: (request) => {
        const before =
          request.purpose === "read" ? findGrant(grants.get(), latest.current.plugin, request.origin) : undefined;
        const earlier = answerOf(before);
        return (
          earlier ??
          new Promise<SecretsAnswer>((answer) =>
            setAsked((all) => [...all.filter((each) => each.request.purpose !== request.purpose), { request, answer }]),
          )
        );
      },
      actions: {
        setMessage: (next) => latest.current.onContent?.(next),
        triggerAi: () => latest.current.onTrigger?.(),
        createAssistantMessage: (text) => latest.current.onSay?.(text),
      },
      renderMarkdown: (text, document) => renderMarkdown(visible(text), document),
      limits: { maxStateBytes: 262_144 },
      onProblem: setProblem,
    });
    return () => mounted.current?.destroy();
  }, [shown, messageId, apiName, args]);
  useEffect(() => mounted.current?.setContent(content), [content]);
  const beginAnew = useCallback(() => {
    setAsked([]);
    mounted.current?.reload();
  }, []);
  return (
    <div className="stack tight">
      <div ref={place} />
      <Secrets plugin={plugin} asked={asked} onAnswered={setAsked} onChange={beginAnew} />
      {problem && <span className="soft">The plugin’s page: {visible(problem)}</span>}
    </div>
  );
}

function answerOf(grant: Grant | undefined): SecretsAnswer | undefined {
  return grant && (grant.values === undefined ? false : { values: grant.values });
}

interface SecretsProps {
  plugin: Plugin;
  asked: Asked[];
  onAnswered: (left: Asked[]) => void;
  /** Called when the page must restart, because it may see other settings now. */
  onChange: () => void;
}

/**
 * The requests of the plugin's page, and its granted fields. The dialog opens only when the user requests it, so that
 * no page can open one in front of a user who is typing.
 */
function Secrets({ plugin, asked, onAnswered, onChange }: SecretsProps) {
  const all = useStore(grants);
  const origin = pageOrigin(plugin);
  const grant = origin === undefined ? undefined : findGrant(all, plugin, origin);
  const [open, setOpen] = useState<SecretRequest>();
  // Derived from the grant itself, because it may be revoked on another page of the console.
  const given = grant?.values !== undefined;
  const had = useRef(given);
  useEffect(() => {
    if (had.current && !given) onChange();
    had.current = given;
  }, [given, onChange]);
  const close = (answer: SecretsAnswer) => {
    setOpen(undefined);
    if (!open) return;
    const values = typeof answer === "object" ? answer.values : undefined;
    if (open.purpose === "read") decide(plugin, open.origin, open.fields, values);
    const waiting = asked.find(({ request }) => request === open);
    onAnswered(asked.filter((each) => each !== waiting));
    if (waiting) waiting.answer(answer);
    else if (answer !== false) onChange();
  };
  const names = (fields: string[]) => fields.map((field) => titleOf(plugin, field)).join(", ");
  return (
    <>
      {asked.map(({ request }) => (
        <div key={request.purpose} className="row" role="status">
          <span>
            The page {request.purpose === "read" ? "asks to see" : "wants to change"} a secret:{" "}
            <strong>{names(request.fields)}</strong>
          </span>
          <button type="button" className="button small" onClick={() => setOpen(request)}>
            Decide…
          </button>
        </div>
      ))}
      {grant && asked.every(({ request }) => request.purpose !== "read") && (
        <div className="row soft">
          <span>
            {given ? "The page may see" : "Not given to the page"}:{" "}
            {names(given ? Object.keys(grant.values ?? {}) : grant.fields)}
          </span>
          {given ? (
            <button type="button" className="button small" onClick={() => takeBack(grant)}>
              Revoke
            </button>
          ) : (
            <button
              type="button"
              className="button small"
              onClick={() => setOpen({ origin: grant.origin, purpose: "read", fields: grant.fields })}
            >
              Change…
            </button>
          )}
        </div>
      )}
      {open && (
        <SecretDialog
          plugin={plugin}
          request={open}
          onYes={(values) => close(open.purpose === "read" ? { values } : true)}
          onNo={() => close(false)}
          onClose={() => setOpen(undefined)}
        />
      )}
    </>
  );
}

/** Returns the plugin page's origin as the host reports it, or its address if it may not keep its origin. */
function pageOrigin({ ui }: Plugin): string | undefined {
  try {
    const url = new URL(ui?.url ?? "", document.baseURI);
    return url.origin === location.origin ? url.href : url.origin;
  } catch {
    return undefined;
  }
}
