import { renderMarkdown } from "@switchboard/plugin-host";
import { useLayoutEffect, useRef } from "react";
import { visible } from "../lib/text";

/** A model's text, without HTML and images, because both could come from another source. */
export function Markdown({ text }: { text: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    place.current?.replaceChildren(renderMarkdown(visible(text), document));
  }, [text]);
  return <div ref={place} className="markdown" />;
}
