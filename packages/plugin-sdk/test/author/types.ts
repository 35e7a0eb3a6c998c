import type { PluginChannel } from "@sperax/plugin-sdk";
import {
  fetchPluginMessage,
  type PluginPayload,
  speraxOS,
  usePluginSettings,
  usePluginState,
  useWatchPluginMessage,
} from "@sperax/plugin-sdk/client";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <_T extends true>(): void => undefined;

interface WeatherData {
  temperature: number;
  condition: string;
}

export function useTypes(): void {
  const { data } = useWatchPluginMessage<WeatherData>();
  holds<Equal<typeof data, WeatherData | undefined>>();
  const [count, setCount] = usePluginState("count", 0);
  holds<Equal<typeof count, number>>();
  setCount((last) => last + 1);
  // @ts-expect-error: a number was kept.
  setCount("one");
  const [settings, setSettings] = usePluginSettings({ theme: "dark", size: 1 });
  holds<Equal<typeof settings, { theme: string; size: number }>>();
  setSettings({ size: 2 });
  // @ts-expect-error: there is no such setting.
  setSettings({ colour: "red" });
  const state = speraxOS.getPluginState<number>("count");
  holds<Equal<typeof state, Promise<number>>>();
  const message = fetchPluginMessage<WeatherData>();
  holds<Equal<typeof message, Promise<WeatherData>>>();
  const payload = speraxOS.getPluginPayload<{ city: string }>();
  holds<Equal<typeof payload, Promise<PluginPayload<{ city: string }>>>>();
  // @ts-expect-error: a message is text.
  void speraxOS.createAssistantMessage({ text: "no" });
  holds<Equal<typeof PluginChannel.renderPlugin, "speraxos:render-plugin">>();
}
