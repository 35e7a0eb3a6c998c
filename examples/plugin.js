// The messages between a plugin's page and its host, without a library. `@switchboard/plugin-sdk` has the same
// functions with types and hooks.

const PREFIX = "speraxos:";

/** Sends a message to the host. */
export function send(channel, body = {}) {
  window.parent.postMessage({ ...body, type: PREFIX + channel }, "*");
}

/** Sends a request to the host, and waits for the message on the channel `answer`. */
export function ask(channel, answer, body = {}, isMine = () => true) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      stop();
      reject(new Error("This page is part of a chat. Open it there."));
    }, 10_000);
    const stop = listen(answer, (data) => {
      if (!isMine(data)) return;
      clearTimeout(timer);
      stop();
      resolve(data);
    });
    send(channel, body);
  });
}

/** Calls back for every message of the host on a channel. Returns a function that stops it. */
export function listen(channel, callback) {
  const listener = (event) => {
    if (event.source === window.parent && event.data?.type === PREFIX + channel) callback(event.data);
  };
  window.addEventListener("message", listener);
  return () => window.removeEventListener("message", listener);
}

export const getState = async (key) =>
  (await ask("fetch-plugin-state", "render-plugin-state", { key }, (data) => data.key === key)).value;
export const setState = (key, value) => send("update-plugin-state", { key, value });
export const getSettings = async () => (await ask("fetch-plugin-settings", "render-plugin-settings")).value ?? {};
