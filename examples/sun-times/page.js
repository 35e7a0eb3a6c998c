// Shows the function's result: requests it once, and shows every new one that the host sends.

import { ask, listen } from "./plugin.js";

const at = (id) => document.getElementById(id);

function show({ place, date, sunrise, noon, sunset, daylightMinutes = 0, timeZone = "" } = {}) {
  at("place").textContent = place ?? "";
  at("date").textContent = [date, timeZone].filter(Boolean).join(" · ");
  at("sunrise").textContent = sunrise ?? "—";
  at("noon").textContent = noon ?? "—";
  at("sunset").textContent = sunset ?? "—";
  at("length").textContent = dayLength(daylightMinutes);
  drawArc(daylightMinutes / 1440);
}

function dayLength(minutes) {
  if (minutes === 0) return "The sun does not rise on this day.";
  if (minutes === 1440) return "The sun does not set on this day.";
  return `${Math.floor(minutes / 60)} hours ${minutes % 60} minutes of daylight`;
}

/** Draws an arc whose width is the length of the day, with the sun on top of it. */
function drawArc(share) {
  const half = 216 * Math.max(share, 0.02);
  const height = 88 * share + 12;
  at("arc").setAttribute("d", `M ${240 - half} 118 Q 240 ${118 - 2 * height} ${240 + half} 118`);
  at("sun").setAttribute("cx", "240");
  at("sun").setAttribute("cy", String(118 - height));
}

const contentOf = (data) => (data.props ?? data.payload).content;
listen("render-plugin", (data) => show(contentOf(data)));
ask("plugin-ready-for-render", "render-plugin").catch((error) => {
  at("length").textContent = error.message;
});
