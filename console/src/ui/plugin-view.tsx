import { type PluginView as Mounted, mountPlugin, webStorageStore } from "@switchboard/plugin-host";
import { useEffect, useRef, useState } from "react";
import { type Plugin, readSettings, writeSettings } from "../data/plugins";
import type { Json } from "../lib/schema";
import { visible, visibleLine } from "../lib/text";

interface Props {
  plugin: Plugin;
  /** What the call belongs to; the page's state is kept by it. */
  messageId: string;
  apiName: string;
  /** As JSON text. */
  args: string;
  /** What the plugin's server answered. */
  content: string;
  onContent?: (content: unknown) => void;
  onTrigger?: () => void;
  onSay?: (text: string) => void;
}

/** What a plugin shows of a call: its page in a sandboxed frame, or its Markdown. */
export function PluginView(props: Props) {
  const { plugin, messageId, apiName, args, content } = props;
  const place = useRef<HTMLDivElement>(null);
  const mounted = useRef<Mounted>(undefined);
  const latest = useRef(props);
  latest.current = props;
  // A list of plugins that was asked for again has new objects with the same content, which are no reason to load a page anew.
  const shown = JSON.stringify([plugin.identifier, plugin.type, plugin.ui, plugin.settings]);
  const [problem, setProblem] = useState("");
  const [kept, setKept] = useState<string[]>([]);
  useEffect(() => {
    if (!place.current || !shown) return;
    const { plugin } = latest.current;
    const id = plugin.identifier;
    mounted.current = mountPlugin(place.current, {
      manifest: plugin,
      call: { messageId, apiName, arguments: args },
      content: latest.current.content,
      store: webStorageStore(localStorage),
      settings: {
        read: async () => (await readSettings(id)).settings ?? {},
        write: async (changes) => {
          const stored = (await readSettings(id)).settings ?? {};
          await writeSettings(id, { ...stored, ...changes } as Json);
        },
      },
      // The gateway gives secrets to the plugin's server alone, so there is none that a page could be given, and none that it may set.
      requestSecrets: ({ fields }) => {
        setKept(fields);
        return false;
      },
      actions: {
        setMessage: (next) => latest.current.onContent?.(next),
        triggerAi: () => latest.current.onTrigger?.(),
        createAssistantMessage: (text) => latest.current.onSay?.(text),
      },
      onProblem: setProblem,
    });
    return () => mounted.current?.destroy();
  }, [shown, messageId, apiName, args]);
  useEffect(() => mounted.current?.setContent(content), [content]);
  return (
    <div className="stack tight">
      <div ref={place} />
      {kept.length > 0 && (
        <span className="soft">
          Not given to the page: {kept.map(visibleLine).join(", ")}. The gateway sends secrets to the plugin’s server
          alone.
        </span>
      )}
      {problem && <span className="soft">The plugin’s page: {visible(problem)}</span>}
    </div>
  );
}
