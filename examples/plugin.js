// How a plugin's page speaks with the chat around it, without any library. `@switchboard/plugin-sdk` has the same, typed, and hooks.

const PREFIX = "speraxos:";

/** Tells the host something. */
export function tell(channel, body = {}) {
  window.parent.postMessage({ ...body, type: PREFIX + channel }, "*");
}

/** Asks the host something, and waits for the message on the channel `answer`. */
export function ask(channel, answer, body = {}, isMine = () => true) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      stop();
      reject(new Error("This page is part of a chat. Open it there."));
    }, 10_000);
    const stop = hear(answer, (data) => {
      if (!isMine(data)) return;
      clearTimeout(timer);
      stop();
      resolve(data);
    });
    tell(channel, body);
  });
}

/** Calls back for every message of the host on a channel. Returns how to stop. */
export function hear(channel, callback) {
  const listener = (event) => {
    if (event.source === window.parent && event.data?.type === PREFIX + channel) callback(event.data);
  };
  window.addEventListener("message", listener);
  return () => window.removeEventListener("message", listener);
}

export const getState = async (key) =>
  (await ask("fetch-plugin-state", "render-plugin-state", { key }, (data) => data.key === key)).value;
export const setState = (key, value) => tell("update-plugin-state", { key, value });
export const getSettings = async () => (await ask("fetch-plugin-settings", "render-plugin-settings")).value ?? {};
