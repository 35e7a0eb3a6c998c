import type { CallOptions } from "./calls.js";
import { AgenticError } from "./errors.js";
import type { DiscoveredMethod, MethodResultValue } from "./methods.js";
import type { JsonSchema } from "./schemas.js";
import type { AgenticClient } from "./types.js";

/** A participant's method as a tool for models. */
export interface AgentSDKToolDefinition {
  /** Unique, and valid for every model's API: at most 64 of `a-z A-Z 0-9 _ -`. */
  name: string;
  /** Begins with the provider's name in brackets. */
  description: string;
  parameters: JsonSchema;
  providerId: string;
  originalMethodName: string;
}

export interface AgentSDKTools {
  definitions: AgentSDKToolDefinition[];
  /**
   * Calls a tool by its name. Resolves with the result's content, or with `{ content, attachments }` if there are
   * attachments.
   */
  execute(name: string, args: unknown, signal?: AbortSignal): Promise<unknown>;
}

export interface ToolsOptions {
  /** Default `pubsub`. */
  namePrefix?: string;
  filter?: (method: DiscoveredMethod) => boolean;
}

const MAX_NAME = 64;

/** Returns the methods of all participants as tools for a model. */
export function createToolsForAgentSDK(
  client: Pick<AgenticClient, "discoverMethodDefs" | "callMethod">,
  { namePrefix = "pubsub", filter = () => true }: ToolsOptions = {},
): AgentSDKTools {
  const methods = client.discoverMethodDefs().filter(filter);
  const names = toolNames(methods, namePrefix);
  const byName = new Map(methods.map((method, index) => [names[index] as string, method]));
  const definitions = [...byName].map(([name, method]) => ({
    name,
    description: `[${method.providerName}] ${method.description ?? method.name}`,
    parameters: method.parameters,
    providerId: method.providerId,
    originalMethodName: method.name,
  }));
  return {
    definitions,
    async execute(name, args, signal) {
      const method = byName.get(name);
      if (!method) throw new AgenticError(`there is no tool "${name}"`, "method-not-found");
      const options: CallOptions = signal ? { signal } : {};
      const value: MethodResultValue = await client.callMethod(method.providerId, method.name, args, options).result;
      return value.attachments?.length ? value : value.content;
    },
  };
}

/** Returns a name for each method. If two would have the same name, or one was cut, a hash of the method is added. */
function toolNames(methods: readonly DiscoveredMethod[], prefix: string): string[] {
  const preferredNames = methods.map(({ providerId, name }) =>
    `${prefix}_${providerId}_${name}`.replace(/[^a-zA-Z0-9_-]/g, "_"),
  );
  const taken = new Set<string>();
  return methods.map(({ providerId, name }, index) => {
    const preferred = preferredNames[index] as string;
    const isUnique = preferredNames.filter((other) => other === preferred).length === 1;
    let unique = preferred;
    for (let round = 0; (round === 0 && !(isUnique && preferred.length <= MAX_NAME)) || taken.has(unique); round += 1) {
      const suffix = `_${hash(JSON.stringify([providerId, name, round]))}`;
      unique = preferred.slice(0, MAX_NAME - suffix.length) + suffix;
    }
    taken.add(unique);
    return unique;
  });
}

/** FNV-1a, as eight hexadecimal digits. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value.toString(16).padStart(8, "0");
}
