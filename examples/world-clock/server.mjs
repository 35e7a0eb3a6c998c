// A plugin that answers with Markdown, which its host shows unchanged.

import { PluginError, servePlugin } from "../serve.mjs";

await servePlugin({
  folder: import.meta.url,
  functions: {
    compareTimes({ timeZones, instant }) {
      if (!Array.isArray(timeZones) || timeZones.length === 0 || timeZones.length > 20) {
        throw new PluginError(422, "PluginApiParamsError", "timeZones has to be a list of one to twenty names.");
      }
      const at = instant === undefined ? new Date() : new Date(instant);
      if (Number.isNaN(at.getTime())) {
        throw new PluginError(
          422,
          "PluginApiParamsError",
          `"${instant}" is not an instant such as 2026-06-21T15:00:00Z.`,
        );
      }
      return [
        `## ${at.toISOString().slice(0, 16).replace("T", " ")} UTC`,
        "",
        "| place | time | day | |",
        "|---|---|---|---|",
        ...timeZones.map((zone) => row(zone, at)),
        "",
        "*At work* is nine to five on weekdays.",
      ].join("\n");
    },
  },
});

function row(timeZone, at) {
  let parts;
  try {
    const format = new Intl.DateTimeFormat("en", {
      timeZone,
      hourCycle: "h23",
      hour: "2-digit",
      minute: "2-digit",
      weekday: "long",
    });
    parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]));
  } catch {
    throw new PluginError(422, "PluginApiParamsError", `"${timeZone}" is not a time zone such as Europe/Oslo.`);
  }
  const place = timeZone.split("/").pop().replaceAll("_", " ");
  return `| ${place} | **${parts.hour}:${parts.minute}** | ${parts.weekday} | ${mood(Number(parts.hour), parts.weekday)} |`;
}

function mood(hour, weekday) {
  if (hour < 7 || hour >= 23) return "🌙 asleep";
  if (hour < 9 || hour >= 17 || weekday === "Saturday" || weekday === "Sunday") return "☕ free";
  return "💼 *at work*";
}
