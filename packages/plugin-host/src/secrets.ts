import { isRecord } from "./json.js";

type Path = readonly string[];

/** A schema may refer to itself, so the walk is bounded in depth and in steps. */
const MAX_DEPTH = 16;
const MAX_STEPS = 10_000;

/**
 * Returns the paths of the settings that a schema marks as secret, by `format: password` or `writeOnly`. The empty path
 * means all settings.
 *
 * Unreadable parts, such as a reference without a target, count as secret.
 */
export function secretPaths(schema: unknown): Path[] {
  const found: Path[] = [];
  let steps = MAX_STEPS;
  const walk = (node: unknown, path: Path, depth: number): void => {
    if (!isRecord(node)) return;
    steps -= 1;
    if (depth === 0 || steps < 0) return void found.push(path);
    if (path.length > 0 && (node.format === "password" || node.writeOnly === true)) return void found.push(path);
    if (typeof node.$ref === "string") {
      const target = resolve(schema, node.$ref);
      if (target === undefined) return void found.push(path);
      walk(target, path, depth - 1);
    }
    for (const keyword of ["allOf", "anyOf", "oneOf"]) {
      const branches = node[keyword];
      if (Array.isArray(branches)) for (const branch of branches) walk(branch, path, depth - 1);
    }
    for (const keyword of ["then", "else"]) walk(node[keyword], path, depth - 1);
    if (isRecord(node.properties)) {
      for (const [name, property] of Object.entries(node.properties)) walk(property, [...path, name], depth - 1);
    }
    // A secret inside a list or a map has no fixed name, so the whole list or map is secret.
    const members = [node.items, node.additionalProperties];
    if (Array.isArray(node.prefixItems)) members.push(...node.prefixItems);
    if (isRecord(node.patternProperties)) members.push(...Object.values(node.patternProperties));
    const before = found.length;
    for (const member of members) walk(member, [...path, "*"], depth - 1);
    if (found.length > before) found.splice(before, found.length, path);
  };
  walk(schema, [], MAX_DEPTH);
  return found;
}

/** Splits settings into public ones and secret ones for a granted page, each with the shape of the whole. */
export function splitSecrets(
  settings: Record<string, unknown>,
  paths: readonly Path[],
): { open: Record<string, unknown>; secret: Record<string, unknown>; fields: string[] } {
  if (paths.some((path) => path.length === 0)) return { open: {}, secret: settings, fields: Object.keys(settings) };
  const open = structuredClone(settings);
  const secret: Record<string, unknown> = {};
  const fields: string[] = [];
  for (const path of paths) {
    let from: unknown = open;
    for (const step of path.slice(0, -1)) from = own(from, step);
    const last = path.at(-1);
    if (last === undefined || own(from, last) === undefined) continue;
    put(secret, path, own(from, last));
    fields.push(path.join("."));
    delete (from as Record<string, unknown>)[last];
  }
  return { open, secret, fields };
}

/** Returns settings with given secrets added by name. Values that the schema does not mark as secret are dropped. */
export function withSecrets(
  open: Record<string, unknown>,
  paths: readonly Path[],
  given: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const settings = structuredClone(open);
  if (paths.some((path) => path.length === 0)) {
    for (const [name, value] of Object.entries(given)) define(settings, name, value);
    return settings;
  }
  for (const path of paths) {
    const name = path.join(".");
    if (Object.hasOwn(given, name) && given[name] !== undefined) put(settings, path, given[name]);
  }
  return settings;
}

/**
 * Merges changes into settings, member by member, so that a page without access to a secret does not delete it with its
 * parent object.
 */
export function mergeSettings(
  settings: Record<string, unknown>,
  changes: Record<string, unknown>,
): Record<string, unknown> {
  const merged = { ...settings };
  for (const [key, value] of Object.entries(changes)) {
    const before = own(settings, key);
    define(merged, key, isRecord(before) && isRecord(value) ? mergeSettings(before, value) : value);
  }
  return merged;
}

function resolve(root: unknown, reference: string): unknown {
  if (!reference.startsWith("#/")) return undefined;
  let node: unknown = root;
  for (const step of reference.slice(2).split("/")) node = own(node, step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return node;
}

function own(value: unknown, key: string): unknown {
  return isRecord(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

function put(target: Record<string, unknown>, path: Path, value: unknown): void {
  let node = target;
  for (const step of path.slice(0, -1)) {
    if (!isRecord(own(node, step))) define(node, step, {});
    node = node[step] as Record<string, unknown>;
  }
  const last = path.at(-1);
  if (last !== undefined) define(node, last, value);
}

/** Defines a property. An assignment would follow a key `__proto__` into the prototype. */
function define(target: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });
}
