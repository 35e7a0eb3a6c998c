import { createStore } from "./store";

/**
 * The sign-in state. The token belongs to the console, expires after some hours, and stays in this tab. A tab's storage
 * belongs to this address with its port, unlike a cookie, and survives a reload, unlike a variable.
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
    // An unreadable value is not a session.
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
    // There was no stored session.
  }
  signIn.set({ state: "out", ...(message === undefined ? {} : { message }), ...(hint === undefined ? {} : { hint }) });
}

export function token(): string {
  const current = signIn.get();
  return current.state === "in" ? current.session.token : "";
}

/** Removes the code from the address, so that neither the history nor a bookmark stores it. */
export function takeCode(): string | undefined {
  const match = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!match) return undefined;
  history.replaceState(null, "", location.pathname);
  return match[1];
}
