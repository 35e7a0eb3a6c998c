import type { Anything } from "./anything.js";

/**
 * The headers with a user's settings for a plugin's server, with the names of the hosts of this family. The first one
 * present counts.
 */
export const PLUGIN_SETTINGS_HEADERS = [
  "X-Sperax-Plugin-Settings",
  "Sperax-Plugin-Settings",
  "SperaxOS-Plugin-Settings",
  "X-Lobe-Plugin-Settings",
] as const;

/** Headers of a web request, or of Node's. */
type AnyHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** Returns the user's settings. `undefined` if the request has none, or no readable ones. */
export function getPluginSettingsFromRequest<T = Anything>(request: { headers: AnyHeaders }): T | undefined {
  return getPluginSettingsFromHeaders<T>(request.headers);
}

export function getPluginSettingsFromHeaders<T = Anything>(headers: AnyHeaders): T | undefined {
  for (const name of PLUGIN_SETTINGS_HEADERS) {
    const written = readHeader(headers, name);
    if (!written) continue;
    try {
      const settings: unknown = JSON.parse(written);
      // Settings are an object. Any other value would fail later, far from its cause.
      if (typeof settings === "object" && settings !== null && !Array.isArray(settings)) return settings as T;
    } catch {
      // The header does not come from a host.
    }
    return undefined;
  }
  return undefined;
}

/** Returns headers with the settings added, as a host sends them: JSON in ASCII. */
export function createHeadersWithPluginSettings(settings: unknown, headers: HeadersInit = {}): Record<string, string> {
  const written = (typeof settings === "string" ? settings : JSON.stringify(settings)).replace(
    /[^\x20-\x7e]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  const made = Object.fromEntries(new Headers(headers));
  return { ...made, ...Object.fromEntries(PLUGIN_SETTINGS_HEADERS.map((name) => [name, written])) };
}

function readHeader(headers: AnyHeaders, name: string): string | undefined {
  if (typeof (headers as Headers).get === "function") return (headers as Headers).get(name) ?? undefined;
  const wanted = name.toLowerCase();
  const found = Object.entries(headers).find(([key]) => key.toLowerCase() === wanted)?.[1];
  return typeof found === "string" ? found : (found?.[0] ?? undefined);
}
