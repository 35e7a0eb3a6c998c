import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = fileURLToPath(new URL("./src/index.ts", import.meta.url));

export default defineConfig({
  // Both package names that programs use; both resolve to the sources.
  resolve: { alias: { "@natstack/agentic-messaging": source, "@switchboard/messaging": source } },
  test: {
    include: ["test/**/*.test.ts"],
    typecheck: { enabled: true, include: ["test/**/*.test-d.ts"], tsconfig: "./tsconfig.json" },
    testTimeout: 20_000,
  },
});
