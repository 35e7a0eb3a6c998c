/** The permissions of a frame, and the origin of its messages. */
export interface FrameRules {
  url: string;
  origin: string;
  sandbox: string;
}

/**
 * Allows scripts, forms, and pages in new tabs, which are as confined as the frame. Allows no access to the host's page
 * or tab.
 */
const PLUGIN_SANDBOX = "allow-scripts allow-forms allow-popups";

/** A page's address cannot be shown. The message has the reason and a suggested action. */
export class FrameAddressError extends Error {
  override readonly name = "FrameAddressError";
}

/**
 * Decides how a page is framed.
 *
 * A page of another origin keeps its origin. It needs its own storage and its own server, and after a navigation its
 * messages have a different origin. A page of the host's own origin must not keep it: with scripts it could access the
 * host through `parent` and remove its sandbox. It gets a unique opaque origin, and so do pages without an origin.
 */
export function frameRules(address: string, hostUrl: string): FrameRules {
  let url: URL;
  try {
    url = new URL(address, hostUrl);
  } catch {
    throw new FrameAddressError(
      `The page address "${address}" is not a URL. It is set in ui.url of the plugin's manifest.`,
    );
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw new FrameAddressError(
      `The page address starts with "${url.protocol}", but only https: and http: are allowed. It is set in ui.url of the plugin's manifest.`,
    );
  }
  if (url.username !== "" || url.password !== "") {
    throw new FrameAddressError(
      "The page address contains a user name or password. Remove it from ui.url of the plugin's manifest.",
    );
  }
  if (url.origin === new URL(hostUrl).origin) return { url: url.href, origin: "null", sandbox: PLUGIN_SANDBOX };
  return { url: url.href, origin: url.origin, sandbox: `${PLUGIN_SANDBOX} allow-same-origin` };
}

/** Creates a frame outside the document, so that its limits are set before anything loads. */
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

/** Returns the size in the manifest, within reasonable limits. The width never exceeds the container's width. */
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
