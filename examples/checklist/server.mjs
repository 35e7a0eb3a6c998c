// A plugin that runs in its page: the server has nothing to do but to serve it.

import { servePlugin } from "../serve.mjs";

await servePlugin({ folder: import.meta.url, files: ["index.html", "page.js", "style.css"], functions: {} });
