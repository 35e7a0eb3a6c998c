// A list that stores the ticked items with its message, and sends the result to the model when the user is done.

import { ask, getSettings, getState, send, setState } from "./plugin.js";

const at = (id) => document.getElementById(id);

async function start() {
  const { payload } = await ask("plugin-ready-for-render", "init-standalone-plugin");
  const { title = "Checklist", items = [] } = JSON.parse(payload.arguments || "{}");
  // Two requests: a new list has no stored state, and an empty list of ticks is a state, too.
  const [ticked = [], settings] = await Promise.all([getState("ticked"), getSettings()]);
  const done = new Set(ticked);
  at("title").textContent = title;
  at("items").replaceChildren(...items.map((item, index) => row(item, index, done, items.length)));
  showProgress(done.size, items.length);
  paint(settings.accent ?? "green");
  at("finish").addEventListener("click", () => finish(title, items, done));
  at("note").addEventListener("click", () => note(title, items, done));
}

function row(item, index, done, count) {
  const [line, label, box, text] = ["li", "label", "input", "span"].map((tag) => document.createElement(tag));
  box.type = "checkbox";
  box.checked = done.has(index);
  box.addEventListener("change", () => {
    if (box.checked) done.add(index);
    else done.delete(index);
    setState("ticked", [...done]);
    showProgress(done.size, count);
  });
  text.textContent = item;
  label.append(box, text);
  line.append(label);
  return line;
}

function showProgress(done, count) {
  at("progress").max = Math.max(count, 1);
  at("progress").value = done;
}

/** Sets the result as the content of the message, and lets the model answer it. */
function finish(title, items, done) {
  const ticked = items.filter((_, index) => done.has(index));
  const open = items.filter((_, index) => !done.has(index));
  send("fill-plugin-content", { content: { title, ticked, open } });
  send("trigger-ai-message");
  at("message").textContent = "Sent to the chat.";
}

/** Writes a message of the assistant, without a request to the model. */
function note(title, items, done) {
  send("create-assistant-message", { content: `**${title}**: ${done.size} of ${items.length} done.` });
  at("message").textContent = "Noted in the chat.";
}

function paint(accent) {
  document.documentElement.dataset.accent = accent;
  at("accent").value = accent;
}

at("accent").addEventListener("change", ({ target }) => {
  paint(target.value);
  send("update-plugin-settings", { value: { accent: target.value } });
});
start().catch((error) => {
  at("message").textContent = error.message;
});
