import {
  speraxOS,
  useOnStandalonePluginInit,
  usePluginSettings,
  usePluginState,
  useWatchPluginMessage,
} from "@sperax/plugin-sdk/client";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

interface MyDataType {
  title: string;
}

interface MySettings {
  theme: string;
  apiKey?: string;
}

function Message() {
  const { data, loading } = useWatchPluginMessage<MyDataType>();

  if (loading) return <div>Loading...</div>;

  return <h1 id="title">{data.title}</h1>;
}

function Fetched() {
  const [data, setData] = useState(null);
  const [loading, setLoading] = useState(true);

  useEffect(() => {
    speraxOS
      .getPluginMessage()
      .then(setData)
      .finally(() => setLoading(false));
  }, []);

  if (loading) return <div>Loading...</div>;

  return <div id="message">{JSON.stringify(data)}</div>;
}

function Counter() {
  const [count, setCount] = usePluginState("count", 0);

  return (
    <div>
      <span id="count">{count}</span>
      <button type="button" id="increment" onClick={() => setCount(count + 1)}>
        +
      </button>
    </div>
  );
}

function Standalone() {
  const [name, setName] = useState("");
  useOnStandalonePluginInit<{ city: string }>((payload) => {
    setName(`${payload.name} ${payload.arguments?.city}`);
  });

  return <div id="payload">{name}</div>;
}

function Settings() {
  const [settings, setSettings] = usePluginSettings<MySettings>({ theme: "light" });
  return (
    <button type="button" id="theme" onClick={() => setSettings({ theme: "dark" })}>
      {settings.theme}
      {settings.apiKey ? " with a key" : " without a key"}
    </button>
  );
}

async function askAI() {
  await speraxOS.setPluginMessage({ title: "User completed the form", data: { name: "Alice", age: 25 } });
  await speraxOS.triggerAIMessage();
}

async function sendMessage() {
  await speraxOS.createAssistantMessage("Based on my analysis, here are the results...");
}

async function readEverything() {
  const payload = await speraxOS.getPluginPayload();
  const message = await speraxOS.getPluginMessage<MyDataType>();
  const settings = await speraxOS.getPluginSettings<MySettings>();
  await speraxOS.setPluginState("counter", 0);
  const counter = await speraxOS.getPluginState<number>("counter");
  await speraxOS.setPluginState("counter", counter + 1);
  await speraxOS.setPluginSettings({ theme: "blue" });
  const next = await speraxOS.getPluginState<number>("counter");
  const read = [payload.name, message.title, settings.theme, counter, next].join(" ");
  document.body.append(Object.assign(document.createElement("output"), { id: "everything", textContent: read }));
}

function Page() {
  return (
    <>
      <Message />
      <Fetched />
      <Counter />
      <Standalone />
      <Settings />
      <button type="button" id="ask" onClick={askAI}>
        Ask
      </button>
      <button type="button" id="send" onClick={sendMessage}>
        Send
      </button>
      <button type="button" id="read" onClick={readEverything}>
        Read
      </button>
    </>
  );
}

createRoot(document.body.appendChild(document.createElement("main"))).render(<Page />);
