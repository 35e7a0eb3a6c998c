import type { Anything } from "./anything.js";

/** The headers that carry a user's settings to a plugin's server, as the hosts of this family name them. The first that is there counts. */
export const PLUGIN_SETTINGS_HEADERS = [
  "X-Sperax-Plugin-Settings",
  "Sperax-Plugin-Settings",
  "SperaxOS-Plugin-Settings",
  "X-Lobe-Plugin-Settings",
] as const;

/** Headers of a web request, or of Node's. */
type AnyHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The user's settings. `undefined` if the request has none, or none that can be read. */
export function getPluginSettingsFromRequest<T = Anything>(request: { headers: AnyHeaders }): T | undefined {
  return getPluginSettingsFromHeaders<T>(request.headers);
}

export function getPluginSettingsFromHeaders<T = Anything>(headers: AnyHeaders): T | undefined {
  for (const name of PLUGIN_SETTINGS_HEADERS) {
    const written = readHeader(headers, name);
    if (!written) continue;
    try {
      const settings: unknown = JSON.parse(written);
      // Settings are an object. Anything else would fail later, and further away from its cause.
      if (typeof settings === "object" && settings !== null && !Array.isArray(settings)) return settings as T;
    } catch {
      // Not from a host, then.
    }
    return undefined;
  }
  return undefined;
}

/** Headers with the settings added, as a host sends them: JSON in ASCII. */
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
