import { type FormEvent, useState } from "react";
import { Problem, signInWithToken } from "../lib/api";
import { signIn } from "../lib/session";
import { useStore } from "../lib/store";
import { sentence } from "../lib/text";
import { Logo } from "../ui/icons";
import { Command, ProblemNote } from "../ui/parts";

export function SignInPage() {
  const state = useStore(signIn);
  const [pasted, setPasted] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      await signInWithToken(pasted);
    } catch (error) {
      setProblem(Problem.of(error));
      setBusy(false);
    }
  };
  return (
    <div className="signin">
      <main>
        <div className="brand">
          <Logo size={26} /> Switchboard
        </div>
        <div className="panel">
          <div className="body stack">
            <h1>Sign in</h1>
            {state.state === "entering" && <p role="status">Signing you in…</p>}
            {state.state === "out" && state.message && (
              <div role="status">
                <p>{sentence(state.message)}</p>
                {state.hint && <p className="soft">{sentence(state.hint)}</p>}
              </div>
            )}
            <p className="soft">
              By a link that works once. The gateway prints one when it starts, and this prints another:
            </p>
            <Command text="switchboard console" />
            <hr className="rule" />
            <form className="stack" onSubmit={submit}>
              <div className="field">
                <label htmlFor="token">Or by an operator’s token</label>
                <input
                  id="token"
                  className="input code"
                  type="password"
                  autoComplete="off"
                  required
                  value={pasted}
                  onChange={(event) => setPasted(event.target.value)}
                  aria-describedby="where"
                />
                <span className="hint" id="where">
                  It is in the data directory, in <code>operator.token</code>. The page exchanges it for one of its own,
                  which ends after 12 hours or when you sign out.
                </span>
              </div>
              {problem && <ProblemNote problem={problem} />}
              <div>
                <button type="submit" className="button primary" disabled={busy || pasted.trim() === ""}>
                  Sign in
                </button>
              </div>
            </form>
          </div>
        </div>
      </main>
    </div>
  );
}
