import type { ReactParts } from "./hooks.js";

let loaded: ReactParts | undefined;
let failed: unknown;

/** Begun at once, so that React is here long before a component is rendered, and allowed to fail, so that pages without it work. */
const loading: Promise<void> = import("react").then(
  (module) => {
    loaded = module.default ?? module;
  },
  (error: unknown) => {
    failed = error;
  },
);

/**
 * React, for hooks that are exported beside what needs no React.
 *
 * A component that is rendered before it is here suspends until it is. `@switchboard/plugin-sdk/react` has the same hooks with an
 * ordinary import, for pages that always have React.
 */
export function lazyReact(): ReactParts {
  if (loaded) return loaded;
  if (failed !== undefined)
    throw new Error("The hooks of the plugin SDK need React: install the package react.", { cause: failed });
  throw loading;
}
