import { type ReactNode, useEffect, useRef, useState } from "react";
import { callList } from "./data/calls";
import { connection, nodes, tools } from "./data/live";
import { useResource } from "./data/resource";
import { signOut } from "./lib/api";
import { count } from "./lib/format";
import { href, useRoute } from "./lib/route";
import { signIn } from "./lib/session";
import { useStore } from "./lib/store";
import { type Theme, theme } from "./lib/theme";
import { CallsPage } from "./pages/calls";
import { ChannelsPage } from "./pages/channels";
import { ChatPage } from "./pages/chat";
import { NodesPage } from "./pages/nodes";
import { OverviewPage } from "./pages/overview";
import { PluginsPage } from "./pages/plugins";
import { SessionsPage } from "./pages/sessions";
import { SignInPage } from "./pages/sign-in";
import { ToolsPage } from "./pages/tools";
import { UpstreamPage } from "./pages/upstream";
import { Icon, type IconName, Logo } from "./ui/icons";
import { Choice, Head, State } from "./ui/parts";
import { Questions } from "./ui/questions";

interface Page {
  id: string;
  title: string;
  icon: IconName;
  show: () => ReactNode;
  /** Whether the link starts a new group. */
  gap?: boolean;
}

const PAGES: Page[] = [
  { id: "overview", title: "Overview", icon: "overview", show: () => <OverviewPage /> },
  { id: "tools", title: "Tools", icon: "tools", show: () => <ToolsPage /> },
  { id: "calls", title: "Calls", icon: "calls", show: () => <CallsPage /> },
  { id: "chat", title: "Chat", icon: "chat", show: () => <ChatPage /> },
  { id: "nodes", title: "Nodes", icon: "nodes", show: () => <NodesPage />, gap: true },
  { id: "upstream", title: "MCP servers", icon: "upstream", show: () => <UpstreamPage /> },
  { id: "plugins", title: "Plugins", icon: "plugins", show: () => <PluginsPage /> },
  { id: "sessions", title: "Sessions", icon: "sessions", show: () => <SessionsPage /> },
  { id: "channels", title: "Channels", icon: "channels", show: () => <ChannelsPage /> },
];

export function App() {
  return useStore(signIn).state === "in" ? <Frame /> : <SignInPage />;
}

function Frame() {
  const route = useRoute();
  const page = PAGES.find(({ id }) => id === route.page);
  const [open, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const shown = useRef(route.page);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Switchboard`;
    if (shown.current === route.page) return;
    shown.current = route.page;
    setOpen(false);
    // On a narrow screen the window scrolls, and would keep the position of the previous page.
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [route.page, page]);
  useEffect(() => {
    const find = (event: KeyboardEvent) => {
      const typing =
        event.target instanceof HTMLElement && event.target.closest("input, textarea, select, [contenteditable]");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const search = document.querySelector<HTMLInputElement>("input[type=search]");
      if (!search) return;
      event.preventDefault();
      search.focus();
    };
    addEventListener("keydown", find);
    return () => removeEventListener("keydown", find);
  }, []);
  return (
    <div className="app">
      <button type="button" className="button skip" onClick={() => main.current?.focus()}>
        Skip to the page
      </button>
      <header className={open ? "side open" : "side"}>
        <a className="brand" href={href("overview")}>
          <Logo /> Switchboard
        </a>
        <button
          type="button"
          className="button quiet menu"
          aria-expanded={open}
          aria-controls="nav"
          onClick={() => setOpen(!open)}
        >
          <Icon name={open ? "close" : "menu"} /> Menu
        </button>
        <nav className="nav" id="nav" aria-label="Pages">
          <ul>
            {PAGES.map(({ id, title, icon, gap }) => (
              <li key={id} className={gap ? "gap" : undefined}>
                <a href={href(id)} aria-current={id === route.page ? "page" : undefined} onClick={() => setOpen(false)}>
                  <Icon name={icon} /> {title} <Tally id={id} />
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <div className="foot">
          <Connection />
          <ThemeSwitch />
          <button type="button" className="button small quiet" onClick={() => void signOut()}>
            <Icon name="out" /> Sign out
          </button>
        </div>
      </header>
      <main ref={main} id="main" tabIndex={-1} className="main">
        <Lost />
        {page ? page.show() : <Missing name={route.page} />}
      </main>
      <Questions />
    </div>
  );
}

function Missing({ name }: { name: string }) {
  return (
    <>
      <Head title="Nothing is here" />
      <p>
        The console has no page “{name}”. <a href={href("overview")}>Go to the overview</a>
      </p>
    </>
  );
}

/** The number of items, next to the name of their page. */
function Tally({ id }: { id: string }) {
  if (id === "tools") return <ToolTally />;
  if (id === "calls") return <RunningTally />;
  if (id === "nodes") return <NodeTally />;
  return null;
}

function ToolTally() {
  const { data } = useResource(tools);
  return data ? <span className="tally">{count(data.length)}</span> : null;
}

function NodeTally() {
  const { data } = useResource(nodes);
  const online = data?.filter((node) => node.online).length ?? 0;
  return data ? (
    <span className="tally">
      {count(online)}
      <span className="hide"> connected</span>
    </span>
  ) : null;
}

function RunningTally() {
  const running = useStore(callList.store).calls.reduce((sum, call) => sum + Number(call.state === "running"), 0);
  return running > 0 ? <span className="tally">{count(running)} running</span> : null;
}

function Connection() {
  const state = useStore(connection);
  return (
    <span role="status">
      {state === "live" && <State mood="good">Live, {location.host}</State>}
      {state === "connecting" && <State mood="busy">Connecting</State>}
      {state === "lost" && <State mood="bad">No connection</State>}
    </span>
  );
}

function Lost() {
  if (useStore(connection) !== "lost") return null;
  return (
    <div className="lost" role="alert">
      The gateway does not answer. This page shows older data, and updates when the gateway answers again.
    </div>
  );
}

function ThemeSwitch() {
  const chosen = useStore(theme);
  const options: [Theme, string][] = [
    ["system", "Auto"],
    ["light", "Light"],
    ["dark", "Dark"],
  ];
  return <Choice label="Colours" value={chosen} options={options} onChange={theme.set} />;
}
