/** Stores plugins' state, by the message that the plugin belongs to. Values are JSON. */
export interface StateStore {
  read(messageId: string): Promise<Record<string, unknown>> | Record<string, unknown>;
  /** `undefined` removes the key. */
  write(messageId: string, key: string, value: unknown): Promise<void> | void;
}

/** State that lives as long as the page. */
export function memoryStore(): StateStore {
  const messages = new Map<string, Map<string, unknown>>();
  return {
    // `fromEntries` defines its keys: an assignment would follow a key `__proto__`.
    read: (messageId) => structuredClone(Object.fromEntries(messages.get(messageId) ?? [])),
    write(messageId, key, value) {
      const state = messages.get(messageId) ?? new Map<string, unknown>();
      if (value === undefined) state.delete(key);
      else state.set(key, structuredClone(value));
      messages.set(messageId, state);
    },
  };
}

/** State that survives a reload, in `localStorage` or `sessionStorage`, one entry per message. */
export function webStorageStore(storage: Storage, prefix = "switchboard:plugin-state:"): StateStore {
  const read = (messageId: string): Record<string, unknown> => {
    const text = storage.getItem(prefix + messageId);
    if (text === null) return {};
    try {
      return Object(JSON.parse(text)) as Record<string, unknown>;
    } catch {
      // Another program wrote this value. A plugin with an empty state is better than a plugin that cannot start.
      return {};
    }
  };
  return {
    read,
    write(messageId, key, value) {
      const state = new Map(Object.entries(read(messageId)));
      if (value === undefined) state.delete(key);
      else state.set(key, value);
      storage.setItem(prefix + messageId, JSON.stringify(Object.fromEntries(state)));
    },
  };
}
