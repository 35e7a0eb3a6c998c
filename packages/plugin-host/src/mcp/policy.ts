import { isRecord } from "../json.js";

/** The addresses that an app says it needs. */
export interface AppCsp {
  connectDomains?: string[];
  resourceDomains?: string[];
  frameDomains?: string[];
  baseUriDomains?: string[];
}

/** Features of the browser that an app would like to have, as the `allow` attribute names them. */
export const PERMISSIONS = {
  camera: "camera",
  microphone: "microphone",
  geolocation: "geolocation",
  clipboardWrite: "clipboard-write",
} as const;
export type AppPermission = keyof typeof PERMISSIONS;

/** An origin, perhaps with a wildcard for the first part of its name. Anything else could smuggle directives into the policy. */
const ORIGIN = /^(https?|wss?):\/\/(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?(:\d{1,5})?\/?$/i;

/** Reads what an app declares; whatever is not an origin is left out. */
export function readCsp(value: unknown): AppCsp {
  if (!isRecord(value)) return {};
  const csp: AppCsp = {};
  for (const name of ["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"] as const) {
    const domains = value[name];
    if (!Array.isArray(domains)) continue;
    const good = domains.filter((domain): domain is string => typeof domain === "string" && ORIGIN.test(domain));
    if (good.length > 0) csp[name] = good.slice(0, 64).map((domain) => domain.replace(/\/$/, ""));
  }
  return csp;
}

/**
 * The content security policy that an app runs under: what it declared and no more.
 *
 * Forms go nowhere, and neither does the frame itself, as frames outside of `frame-src` cannot be navigated to: otherwise an app
 * that may connect to nobody could still carry data away in an address.
 */
export function appPolicy(csp: AppCsp): string {
  const list = (...sources: (readonly string[] | undefined)[]): string =>
    sources.flatMap((source) => source ?? []).join(" ") || "'none'";
  const { connectDomains, resourceDomains, frameDomains, baseUriDomains } = csp;
  return [
    "default-src 'none'",
    `script-src ${list(["'unsafe-inline'"], resourceDomains)}`,
    `style-src ${list(["'unsafe-inline'"], resourceDomains)}`,
    `img-src ${list(["data:", "blob:"], resourceDomains)}`,
    `media-src ${list(["data:", "blob:"], resourceDomains)}`,
    `font-src ${list(["data:"], resourceDomains)}`,
    `connect-src ${list(connectDomains)}`,
    `frame-src ${list(frameDomains)}`,
    `base-uri ${list(baseUriDomains)}`,
    "object-src 'none'",
    "form-action 'none'",
  ].join("; ");
}
