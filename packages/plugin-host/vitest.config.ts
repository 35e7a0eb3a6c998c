import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    environment: "happy-dom",
    // Frames stay empty: what would be in them is played by the tests, and real pages are for the tests in a browser.
    environmentOptions: { happyDOM: { settings: { disableIframePageLoading: true } } },
    onConsoleLog: (log) => !log.includes("Iframe page loading is disabled"),
    include: ["test/**/*.test.ts"],
  },
});
