import { type Question, questions } from "../data/questions";
import { useStore } from "../lib/store";
import { visible, visibleLine } from "../lib/text";
import { Dialog } from "./dialog";

/** The requests of MCP servers' apps, one question after the other. */
export function Questions() {
  const [first] = useStore(questions);
  return first ? <Asked key={first.id} question={first} /> : null;
}

function Asked({ question: { request, answer } }: { question: Question }) {
  const no = () => answer(false);
  const who = (
    <>
      The app of <strong>{visibleLine(request.app)}</strong>, of the MCP server{" "}
      <strong>{visibleLine(request.server)}</strong>,
    </>
  );
  if (request.kind === "link") {
    return (
      <Dialog title="Open a page?" onNo={no}>
        <p>{who} would like to open this address in a new tab:</p>
        <p className="quoted mono">{visibleLine(request.url)}</p>
        <div className="row">
          <button type="button" className="button" data-first onClick={no}>
            Stay here
          </button>
          <a
            className="button primary"
            href={request.url}
            target="_blank"
            rel="noopener noreferrer nofollow"
            onClick={() => answer(true)}
          >
            Open {visibleLine(new URL(request.url).host)}
          </a>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Send this in your name?" onNo={no}>
      <p>{who} would like to send this message to the model, as if you had typed it:</p>
      <p className="quoted message-text">{visible(request.text)}</p>
      <div className="row">
        <button type="button" className="button" data-first onClick={no}>
          Do not send it
        </button>
        <button type="button" className="button primary" onClick={() => answer(true)}>
          Send it
        </button>
      </div>
    </Dialog>
  );
}
