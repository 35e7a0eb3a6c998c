import { isRecord } from "../json.js";

/** The domains that an app declares. */
export interface AppCsp {
  connectDomains?: string[];
  resourceDomains?: string[];
  frameDomains?: string[];
  baseUriDomains?: string[];
}

/** Browser features that an app may request, with their names in the `allow` attribute. */
export const PERMISSIONS = {
  camera: "camera",
  microphone: "microphone",
  geolocation: "geolocation",
  clipboardWrite: "clipboard-write",
} as const;
export type AppPermission = keyof typeof PERMISSIONS;

/**
 * An origin, with an optional wildcard for the first part of its name. Other values could inject directives into the
 * policy.
 */
const ORIGIN = /^(https?|wss?):\/\/(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?(:\d{1,5})?\/?$/i;

/** Reads an app's declaration; values that are not origins are dropped. */
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
 * Returns the content security policy of an app: the declared domains and nothing else.
 *
 * Forms are forbidden, and so is navigation of the frame to addresses outside `frame-src`. Otherwise an app without any
 * allowed connection could send data in an address.
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
