import { plural } from "../lib/format";
import { visible, visibleLine } from "../lib/text";

/** A difference between two JSON documents. */
export interface Difference {
  path: string;
  was?: string;
  now?: string;
}

const MOST = 50;

export function Differences({ of }: { of: Difference[] }) {
  return (
    <>
      <ul className="lines">
        {of.slice(0, MOST).map(({ path, was, now }) => (
          <li key={path}>
            <span className="stack tight grow">
              <code className="break">{visibleLine(path || "/")}</code>
              {was !== undefined && <del className="break">{visible(was)}</del>}
              {now !== undefined && <ins className="break">{visible(now)}</ins>}
            </span>
          </li>
        ))}
      </ul>
      {of.length > MOST && <p className="soft">and {plural(of.length - MOST, "more change")}</p>}
    </>
  );
}
