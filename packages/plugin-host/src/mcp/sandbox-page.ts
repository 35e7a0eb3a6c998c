/**
 * The page between a host and an MCP App.
 *
 * It gets the app's HTML and its policy from the host, and applies the policy to itself. It shows the HTML in its own
 * frame, which inherits the policy. It forwards messages in both directions, except its own ones. It has no origin, so
 * that neither it nor the app can access the host.
 */
const SCRIPT = `
"use strict";
(() => {
  const host = window.parent;
  if (host === window) return;
  let app;
  addEventListener("message", (event) => {
    const data = event.data;
    if (typeof data !== "object" || data === null) return;
    const own = typeof data.method === "string" && data.method.startsWith("ui/notifications/sandbox-");
    if (event.source === host) {
      if (!own) { if (app) app.contentWindow.postMessage(data, "*"); return; }
      if (data.method !== "ui/notifications/sandbox-resource-ready" || app) return;
      const policy = document.createElement("meta");
      policy.httpEquiv = "Content-Security-Policy";
      policy.content = data.params.policy;
      document.head.append(policy);
      app = document.createElement("iframe");
      app.setAttribute("sandbox", data.params.sandbox);
      app.setAttribute("allow", data.params.allow);
      app.title = document.title;
      app.srcdoc = data.params.html;
      document.body.append(app);
    } else if (app && event.source === app.contentWindow && !own) host.postMessage(data, "*");
  });
  host.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, "*");
})();
`;

export const sandboxPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>MCP App</title>
<style>html, body { margin: 0; height: 100%; overflow: hidden } iframe { border: 0; display: block; width: 100%; height: 100% }</style>
</head>
<body><script>${SCRIPT}</script></body>
</html>
`;

/**
 * For hosts with a policy that forbids inline scripts. Frames that are made from text inherit that policy, so a server
 * must serve the page, with these headers. The policy is wide because each app's narrower policy is added to it.
 * `sandbox` removes its origin even if a user opens it directly.
 */
export const sandboxPageHeaders: Readonly<Record<string, string>> = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy":
    "sandbox allow-scripts allow-forms; default-src 'none'; script-src 'unsafe-inline' http: https:; style-src 'unsafe-inline' http: https:; img-src data: blob: http: https:; media-src data: blob: http: https:; font-src data: http: https:; connect-src http: https: ws: wss:; frame-src http: https:; frame-ancestors 'self'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-cache",
};
