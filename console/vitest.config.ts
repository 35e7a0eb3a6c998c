import { defineConfig } from "vitest/config";

export default defineConfig({
  // From its source, as the console itself is built.
  resolve: {
    alias: { "@switchboard/plugin-host": new URL("../packages/plugin-host/src/index.ts", import.meta.url).pathname },
  },
  test: { environment: "happy-dom", include: ["test/**/*.test.{ts,tsx}"] },
});
