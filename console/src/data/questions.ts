import { createStore } from "../lib/store";

/** A request of an MCP server's app that the user decides. */
export type UserRequest = { app: string; server: string } & (
  | { kind: "link"; url: string }
  | { kind: "message"; text: string }
);

export interface Question {
  id: number;
  request: UserRequest;
  answer(yes: boolean): void;
}

export const questions = createStore<readonly Question[]>([]);
let next = 1;

/**
 * Asks the user. Only one question per server at a time, so that an app cannot flood the user; the signal removes it
 * from the page.
 */
export function askUser(request: UserRequest, signal: AbortSignal): Promise<boolean> {
  const busy = questions.get().some(({ request: { server } }) => server === request.server);
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
    questions.update((all) => [...all, { id, request, answer }]);
  });
}
