import { Problem, stream } from "../lib/api";
import { signIn } from "../lib/session";
import { createStore } from "../lib/store";
import { type AssistantTurn, messagesOf, type Turn, withEvent } from "./chat";

/** The model and the functions of a request. */
export interface Equipment {
  model: string | undefined;
  /** Functions that run in plugins' pages; they are not tools of the gateway. */
  functions: readonly object[];
}

const KEY = "switchboard.chat";
/** The prefix of the keys with plugins' state, by message. */
export const STATE_PREFIX = "switchboard:plugin-state:";
/** The maximum number of characters that survive a reload; of a longer conversation, the oldest turns are dropped. */
const MAX_KEPT = 1_000_000;
const SAVE_MS = 250;

/**
 * The conversation of this tab. It continues while the user visits other pages of the console. It survives a reload
 * together with the state of plugins' pages. It ends with a new conversation, at sign-out, and with the tab.
 */
export class Conversation {
  readonly turns;
  equipment: Equipment = { model: undefined, functions: [] };
  #abort: AbortController | undefined;
  /** The steps after the current answer. */
  #next: (() => void)[] = [];
  #due: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly storage: Storage) {
    this.turns = createStore<readonly Turn[]>(this.#restored());
  }

  get running(): boolean {
    return isRunning(this.turns.get());
  }

  /** Adds a message in the user's name; `by` is the author, if it was not the user. */
  ask(text: string, by?: string): void {
    this.#afterwards(() => {
      this.#set([...this.turns.get(), { id: crypto.randomUUID(), role: "user", text, ...(by ? { by } : {}) }]);
      void this.#answer();
    });
  }

  /** Lets the model continue. During an answer, it continues once afterwards. */
  goOn(): void {
    if (this.running && this.#next.length > 0) return;
    this.#afterwards(() => void this.#answer());
  }

  /** Adds a message of a plugin's page at the assistant's position; it is marked as the plugin's. */
  say(text: string, by: string): void {
    const turn: Turn = { id: crypto.randomUUID(), role: "assistant", text, uses: [], state: "done", by };
    this.#set([...this.turns.get(), turn]);
  }

  /** Stores the content that a plugin's page set for its message. */
  fill(turnId: string, useId: string, result: string): void {
    const turn = this.turns.get().find((each) => each.id === turnId);
    if (turn?.role === "assistant")
      this.#replace({ ...turn, uses: turn.uses.map((use) => (use.id === useId ? { ...use, result } : use)) });
  }

  stop(): void {
    this.#next = [];
    this.#abort?.abort();
  }

  clear(): void {
    this.stop();
    this.#set([]);
    clearTimeout(this.#due);
    this.storage.removeItem(KEY);
    const keys = Array.from({ length: this.storage.length }, (_, at) => this.storage.key(at) ?? "");
    for (const key of keys) if (key.startsWith(STATE_PREFIX)) this.storage.removeItem(key);
  }

  /** Saves at once, because the page may be about to close. */
  save(): void {
    clearTimeout(this.#due);
    let turns = this.turns.get();
    let text = JSON.stringify(turns);
    while (text.length > MAX_KEPT && turns.length > 1) {
      turns = turns.slice(1);
      text = JSON.stringify(turns);
    }
    try {
      if (turns.length > 0) this.storage.setItem(KEY, text);
    } catch {
      // The storage is full. The conversation continues, but does not survive a reload.
    }
  }

  #afterwards(step: () => void): void {
    if (this.running) this.#next.push(step);
    else step();
  }

  async #answer(): Promise<void> {
    const { model, functions } = this.equipment;
    const messages = messagesOf(this.turns.get());
    let turn: AssistantTurn = { id: crypto.randomUUID(), role: "assistant", text: "", uses: [], state: "running" };
    this.#set([...this.turns.get(), turn]);
    const abort = new AbortController();
    this.#abort = abort;
    // Later parts of an answer are ignored after the conversation was cleared.
    const change = (next: AssistantTurn) => {
      turn = next;
      this.#replace(turn);
    };
    try {
      const body = {
        model,
        messages,
        stream: true,
        switchboard: { events: true },
        ...(functions.length > 0 ? { tools: functions } : {}),
      };
      await stream("/v1/chat/completions", { method: "POST", body, signal: abort.signal }, (event) =>
        change(withEvent(turn, event)),
      );
      change({ ...turn, state: "done" });
    } catch (error) {
      const problem = Problem.of(error);
      const stopped = problem.kind === "cancelled";
      change(stopped ? { ...turn, state: "stopped" } : { ...turn, state: "done", problem: problem.message });
    }
    this.#next.shift()?.();
  }

  #set(next: readonly Turn[]): void {
    this.turns.set(next);
    clearTimeout(this.#due);
    this.#due = setTimeout(() => this.save(), SAVE_MS);
  }

  #replace(turn: Turn): void {
    const turns = this.turns.get();
    if (turns.some(({ id }) => id === turn.id)) this.#set(turns.map((each) => (each.id === turn.id ? turn : each)));
  }

  #restored(): readonly Turn[] {
    try {
      const turns = JSON.parse(this.storage.getItem(KEY) ?? "[]") as Turn[];
      // The rest of an answer is lost if the page closed during it.
      return turns
        .filter(isTurn)
        .map((turn) => (turn.role === "assistant" && turn.state === "running" ? { ...turn, state: "stopped" } : turn));
    } catch {
      return [];
    }
  }
}

function isTurn(value: unknown): value is Turn {
  const { role, text } = Object(value) as Partial<Turn>;
  return (role === "user" || role === "assistant") && typeof text === "string";
}

export function isRunning(turns: readonly Turn[]): boolean {
  return turns.some((turn) => turn.role === "assistant" && turn.state === "running");
}

let current: Conversation | undefined;

/** Returns the conversation of this tab. */
export function conversation(): Conversation {
  if (current) return current;
  const made = new Conversation(sessionStorage);
  addEventListener("pagehide", () => made.save());
  signIn.subscribe(() => signIn.get().state === "out" && made.clear());
  current = made;
  return made;
}
