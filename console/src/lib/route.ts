import { createStore, useStore } from "./store";

/**
 * The position in the console: `#/tools/demo_echo?args=…`. It is behind the `#`, so that the gateway serves only one
 * page.
 */
export interface Route {
  page: string;
  /** The item on the page, such as the name of a tool. */
  item?: string;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/");
  const item = decoded(rest.join("/"));
  return { page: page || "overview", query: new URLSearchParams(query), ...(item ? { item } : {}) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function href(page: string, item?: string, query?: Record<string, string>): string {
  const more = query ? `?${new URLSearchParams(query)}` : "";
  return `#/${page}${item === undefined ? "" : `/${encodeURIComponent(item)}`}${more}`;
}

const route = createStore(parseRoute(location.hash));

/** Reads the address again, for changes without a browser event. */
export const readRoute = () => route.set(parseRoute(location.hash));

addEventListener("hashchange", readRoute);

export const useRoute = () => useStore(route);

export function go(page: string, item?: string, query?: Record<string, string>): void {
  location.hash = href(page, item, query);
}
