import { type AppView as Mounted, mountMcpApp } from "@switchboard/plugin-host";
import { useEffect, useRef, useState } from "react";
import { appOf, callFor, readApp, readResource, textOf, toolsOf } from "../data/apps";
import { tools } from "../data/live";
import { askUser } from "../data/questions";
import { useResource } from "../data/resource";
import type { Tool } from "../data/types";
import { Problem } from "../lib/api";
import type { Json } from "../lib/schema";
import { visible } from "../lib/text";

interface Props {
  tool: Tool;
  args: Json;
  result: Record<string, unknown>;
  /** Sends a message in the user's name. Absent if there is no conversation. */
  onMessage?: (text: string) => void;
}

/** An upstream MCP server's view of a call: its app, in frames without an origin. */
export function AppView({ tool, args, result, onMessage }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  const all = useResource(tools).data;
  const latest = useRef({ all: all ?? [], tool, args, result, onMessage });
  latest.current = { all: all ?? [], tool, args, result, onMessage };
  const server = tool.provider.id;
  const uri = appOf(tool);
  // Compared by content: reloaded lists have new objects, which are no reason to reload the page.
  const shown = JSON.stringify([args, result]);
  const talks = onMessage !== undefined;
  useEffect(() => {
    if (!uri || !shown) return;
    let mounted: Mounted | undefined;
    let gone = false;
    const show = async () => {
      const resource = await readApp(server, uri);
      if (gone || !place.current) return;
      const { all, tool, args, result } = latest.current;
      const own = toolsOf(server, all);
      const shownTool = [...own.values()].find(({ exposed }) => exposed === tool.name)?.tool ?? { name: tool.name };
      mounted = mountMcpApp(place.current, {
        resource,
        tool: shownTool,
        tools: [...own.values()].map(({ tool }) => tool),
        context: { theme: isDark() ? "dark" : "light", locale: navigator.language },
        // The console's own policy allows no inline scripts, and a frame made from text would inherit it.
        sandboxUrl: new URL("sandbox.html", document.baseURI).href,
        actions: {
          callTool: (name, given, signal) => {
            const called = own.get(name);
            if (!called) throw new Error(`"${name}" is not a tool of this app's server.`);
            return callFor(called.exposed, given, signal);
          },
          readResource: (other) => readResource(server, other),
          // Actions outside its frame need the user's permission each time.
          openLink: (url, signal) => askUser({ kind: "link", app: tool.name, server, url }, signal),
          ...(talks
            ? {
                sendMessage: async (blocks: unknown[], signal: AbortSignal) => {
                  const text = textOf(blocks);
                  const yes = await askUser({ kind: "message", app: tool.name, server, text }, signal);
                  if (yes) latest.current.onMessage?.(text);
                  return yes;
                },
              }
            : {}),
        },
        onProblem: (text) => !gone && setProblem(text),
      });
      mounted.setInput(args as Record<string, unknown>);
      mounted.setResult(result);
    };
    show().catch((error: unknown) => !gone && setProblem(Problem.of(error).message));
    return () => {
      gone = true;
      mounted?.destroy();
    };
  }, [server, uri, shown, talks]);
  return (
    <section className="stack tight" aria-label="The tool’s app">
      <div ref={place} />
      {problem && <span className="soft">The tool’s app: {visible(problem)}</span>}
    </section>
  );
}

function isDark(): boolean {
  const chosen = document.documentElement.getAttribute("data-theme");
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
