import { createStore } from "./store";

/**
 * Who is signed in. The token is the console's own, ends by itself after some hours, and stays in this tab: the storage of a tab
 * belongs to this address with its port, which a cookie does not, and survives a reload, which a variable does not.
 */
export interface Session {
  token: string;
  expires_ms: number;
}

export type SignInState =
  | { state: "out"; message?: string; hint?: string }
  | { state: "entering" }
  | { state: "in"; session: Session };

const KEY = "switchboard.session";

export const signIn = createStore<SignInState>(restored());

function restored(): SignInState {
  try {
    const session = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Session | null;
    if (session && typeof session.token === "string" && session.expires_ms > Date.now())
      return { state: "in", session };
  } catch {
    // What cannot be read is no session.
  }
  return { state: "out" };
}

export function enter(session: Session): void {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(session));
  } catch {
    // Without storage the session lasts until the next reload.
  }
  signIn.set({ state: "in", session });
}

export function leave(message?: string, hint?: string): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There was none to remove.
  }
  signIn.set({ state: "out", ...(message === undefined ? {} : { message }), ...(hint === undefined ? {} : { hint }) });
}

export function token(): string {
  const current = signIn.get();
  return current.state === "in" ? current.session.token : "";
}

/** Takes the code out of the address, so that neither the history nor a bookmark keeps it. */
export function takeCode(): string | undefined {
  const match = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!match) return undefined;
  history.replaceState(null, "", location.pathname);
  return match[1];
}
