// A page made with the SDK of published plugins, with that SDK's names.

import {
  lobeChat,
  useOnStandalonePluginInit,
  usePluginSettings,
  usePluginState,
  useWatchPluginMessage,
} from "@lobehub/chat-plugin-sdk/client";
import { useState } from "react";
import { createRoot } from "react-dom/client";

function Page() {
  const { data, loading } = useWatchPluginMessage();
  const [count, setCount] = usePluginState("count", 5);
  const [settings, setSettings] = usePluginSettings({ theme: "light" });
  const [payload, setPayload] = useState("");
  const [read, setRead] = useState("");
  useOnStandalonePluginInit<{ city: string }>(({ name, arguments: args }) => setPayload(`${name} ${args?.city}`));
  const finish = () => {
    lobeChat.setPluginMessage({ title: "Done" });
    lobeChat.triggerAIMessage("m-1");
    lobeChat.createAssistantMessage("Hello");
  };
  const readAll = async () => {
    const all = [lobeChat.getPluginMessage(), lobeChat.getPluginSettings(), lobeChat.getPluginState("count")];
    setRead(JSON.stringify(await Promise.all(all)));
  };
  return (
    <>
      <h1 id="title">{loading ? "Loading" : (data as { title: string }).title}</h1>
      <p id="payload">{payload}</p>
      <button type="button" id="count" onClick={() => setCount(count + 1)}>
        {count}
      </button>
      <button type="button" id="theme" onClick={() => setSettings({ theme: "dark" })}>
        {settings.theme}
      </button>
      <button type="button" id="finish" onClick={finish}>
        Finish
      </button>
      <button type="button" id="read" onClick={readAll}>
        Read
      </button>
      <output id="everything">{read}</output>
    </>
  );
}

createRoot(document.body.appendChild(document.createElement("main"))).render(<Page />);
