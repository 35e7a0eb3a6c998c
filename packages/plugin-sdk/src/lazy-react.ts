import type { ReactParts } from "./hooks.js";

let loaded: ReactParts | undefined;
let failed: unknown;

/**
 * Starts at once, so that React is loaded before a component is rendered. It may fail, so that pages without React
 * work.
 */
const loading: Promise<void> = import("react").then(
  (module) => {
    loaded = module.default ?? module;
  },
  (error: unknown) => {
    failed = error;
  },
);

/**
 * React, for hooks that are exported together with code that does not need React.
 *
 * A component that is rendered before React is loaded suspends until then. `@switchboard/plugin-sdk/react` has the same
 * hooks with an ordinary import, for pages that always have React.
 */
export function lazyReact(): ReactParts {
  if (loaded) return loaded;
  if (failed !== undefined)
    throw new Error("The hooks of the plugin SDK need React: install the package react.", { cause: failed });
  throw loading;
}
