import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Conversation, STATE_PREFIX } from "../src/data/conversation";

/** Answers of the model, which the test sends at chosen times. */
let answers: ((text: string) => void)[];
let asked: { messages: { role: string; content: string }[] }[];
let storage: Storage;

beforeEach(() => {
  answers = [];
  asked = [];
  sessionStorage.clear();
  storage = sessionStorage;
  vi.stubGlobal("fetch", (_: string, { body, signal }: { body: string; signal: AbortSignal }) => {
    asked.push(JSON.parse(body) as (typeof asked)[number]);
    return new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
      answers.push((text) =>
        resolve(new Response(`data: ${JSON.stringify({ choices: [{ delta: { content: text } }] })}\n\n`)),
      );
    });
  });
});

afterEach(() => vi.unstubAllGlobals());

const said = (chat: Conversation) => chat.turns.get().map(({ role, text }) => `${role}: ${text}`);
const answered = (chat: Conversation) => vi.waitFor(() => expect(chat.running).toBe(false));

test("what is said while the model answers is said afterwards, in order", async () => {
  const chat = new Conversation(storage);
  chat.ask("one");
  chat.ask("two", "the app");
  expect(said(chat)).toEqual(["user: one", "assistant: "]);
  answers[0]?.("first");
  await vi.waitFor(() => expect(asked).toHaveLength(2));
  answers[1]?.("second");
  await answered(chat);
  expect(said(chat)).toEqual(["user: one", "assistant: first", "user: two", "assistant: second"]);
  expect(chat.turns.get()[2]).toMatchObject({ by: "the app" });
  expect(asked[1]?.messages.map(({ content }) => content)).toEqual(["one", "first", "two"]);
});

test("a page that triggers the model again and again triggers it once", async () => {
  const chat = new Conversation(storage);
  chat.ask("one");
  for (let count = 0; count < 5; count += 1) chat.goOn();
  answers[0]?.("first");
  await vi.waitFor(() => expect(asked).toHaveLength(2));
  answers[1]?.("second");
  await answered(chat);
  expect(asked).toHaveLength(2);
});

test("stopping stops what is to come as well", async () => {
  const chat = new Conversation(storage);
  chat.ask("one");
  chat.ask("two");
  chat.stop();
  await answered(chat);
  expect(said(chat)).toEqual(["user: one", "assistant: "]);
  expect(chat.turns.get()[1]).toMatchObject({ state: "stopped" });
});

describe("after a reload", () => {
  test("it is still there, and an answer that was being written is stopped", () => {
    const chat = new Conversation(storage);
    chat.ask("one");
    chat.save();
    const again = new Conversation(storage);
    expect(said(again)).toEqual(["user: one", "assistant: "]);
    expect(again.running).toBe(false);
  });

  test("a very long one begins later", () => {
    const chat = new Conversation(storage);
    for (let count = 0; count < 4; count += 1) chat.say("x".repeat(400_000), "plugin");
    chat.save();
    expect(new Conversation(storage).turns.get()).toHaveLength(2);
  });

  test("nothing is there of one that was ended, nor of what plugins kept for it", () => {
    const chat = new Conversation(storage);
    chat.ask("one");
    chat.save();
    storage.setItem(`${STATE_PREFIX}m-1`, "{}");
    storage.setItem("other", "stays");
    chat.clear();
    expect(Object.keys(storage)).toEqual(["other"]);
    expect(new Conversation(storage).turns.get()).toEqual([]);
  });

  test.each(["", "{}", "null", "[1]"])("what cannot be read (%s) is none", (text) => {
    storage.setItem("switchboard.chat", text);
    expect(new Conversation(storage).turns.get()).toEqual([]);
  });
});
