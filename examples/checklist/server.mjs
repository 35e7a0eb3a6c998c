// A plugin that runs in its page: the server only serves the page.

import { servePlugin } from "../serve.mjs";

await servePlugin({ folder: import.meta.url, files: ["index.html", "page.js", "style.css"], functions: {} });
