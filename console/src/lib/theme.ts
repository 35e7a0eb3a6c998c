import { createStore } from "./store";

export type Theme = "system" | "light" | "dark";

const KEY = "switchboard.theme";

function storedTheme(): Theme {
  try {
    const text = localStorage.getItem(KEY);
    return text === "light" || text === "dark" ? text : "system";
  } catch {
    return "system";
  }
}

export const theme = createStore<Theme>(storedTheme());

export function applyTheme(): void {
  const show = () => {
    const chosen = theme.get();
    if (chosen === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", chosen);
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // Without storage the choice lasts until the next reload.
    }
  };
  theme.subscribe(show);
  show();
}
