import { createStore } from "../lib/store";

/** Something that an app of an MCP server would like to do, and that the user decides. */
export type Wish = { app: string; server: string } & (
  | { kind: "link"; url: string }
  | { kind: "message"; text: string }
);

export interface Question {
  id: number;
  wish: Wish;
  answer(yes: boolean): void;
}

export const questions = createStore<readonly Question[]>([]);
let next = 1;

/** Asks the user. One question of an app at a time, so that nobody is worn down by them; the signal takes it off the page. */
export function askUser(wish: Wish, signal: AbortSignal): Promise<boolean> {
  const busy = questions.get().some(({ wish: { server } }) => server === wish.server);
  if (busy || signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const id = next++;
    const answer = (yes: boolean) => {
      questions.update((all) => all.filter((question) => question.id !== id));
      signal.removeEventListener("abort", no);
      resolve(yes);
    };
    const no = () => answer(false);
    signal.addEventListener("abort", no);
    questions.update((all) => [...all, { id, wish, answer }]);
  });
}
