/** What a frame may do, and the origin that its messages carry. */
export interface FrameRules {
  url: string;
  origin: string;
  sandbox: string;
}

/** Scripts and forms, and pages in new tabs, which stay as confined as the frame. Nothing that reaches the host's page or tab. */
const PLUGIN_SANDBOX = "allow-scripts allow-forms allow-popups";

/** A page's address cannot be shown. The message says why and what to do. */
export class FrameAddressError extends Error {
  override readonly name = "FrameAddressError";
}

/**
 * Decides how a page is framed.
 *
 * A page of another origin keeps its origin: it needs its own storage and its own server, and its messages can be told from those of
 * whatever it navigates to. A page of the host's own origin must not keep it: with scripts it could reach through `parent` into the
 * host and take its sandbox off. It gets an origin of its own that nothing else has, as do pages without one.
 */
export function frameRules(address: string, hostUrl: string): FrameRules {
  let url: URL;
  try {
    url = new URL(address, hostUrl);
  } catch {
    throw new FrameAddressError(
      `The page's address "${address}" is not a URL. The plugin's manifest has it in ui.url.`,
    );
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw new FrameAddressError(
      `The page's address begins with "${url.protocol}", and only https: and http: are shown. The plugin's manifest has it in ui.url.`,
    );
  }
  if (url.username !== "" || url.password !== "") {
    throw new FrameAddressError(
      "The page's address has a user name or password in it. Take it out of the manifest's ui.url.",
    );
  }
  if (url.origin === new URL(hostUrl).origin) return { url: url.href, origin: "null", sandbox: PLUGIN_SANDBOX };
  return { url: url.href, origin: url.origin, sandbox: `${PLUGIN_SANDBOX} allow-same-origin` };
}

/** A frame that is not in the document yet, so that its limits are in place before anything loads. */
export function createFrame(document: Document, sandbox: string, title: string): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", sandbox);
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.setAttribute("allow", "");
  frame.title = title;
  frame.className = "switchboard-plugin__frame";
  frame.style.border = "0";
  frame.style.display = "block";
  frame.style.width = "100%";
  frame.style.height = "100%";
  return frame;
}

/** What the manifest asks for, within what a page can bear. The width never exceeds the container's. */
export function frameSize(ui: { width?: number; height?: number }): { width: string; height: string } {
  const pixels = (value: number | undefined, least: number, most: number): number | undefined =>
    typeof value === "number" && Number.isFinite(value)
      ? Math.min(most, Math.max(least, Math.round(value)))
      : undefined;
  const width = pixels(ui.width, 160, 4_000);
  return {
    width: width === undefined ? "100%" : `${width}px`,
    height: `${pixels(ui.height, 40, 2_000) ?? 320}px`,
  };
}
