import "../../packages/plugin-host/styles.css";
import "./style/base.css";
import "./style/frame.css";
import "./style/parts.css";
import "./style/pages.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { follow } from "./data/live";
import { signInWithCode } from "./lib/api";
import { readRoute } from "./lib/route";
import { takeCode } from "./lib/session";
import { applyTheme } from "./lib/theme";

applyTheme();
const useCode = () => {
  const code = takeCode();
  if (!code) return;
  readRoute();
  void signInWithCode(code);
};
useCode();
// Pasting a link into a tab with the console changes the address without a load.
addEventListener("hashchange", useCode);
follow();

const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
