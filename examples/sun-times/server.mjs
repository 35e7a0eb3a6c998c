// A plugin that answers with JSON and has a page that shows it.

import { PluginError, servePlugin } from "../serve.mjs";
import { sunTimes } from "./sun.mjs";

await servePlugin({
  folder: import.meta.url,
  files: ["index.html", "page.js", "style.css"],
  functions: {
    getSunTimes({ latitude, longitude, place, date, timeZone = "UTC" }, { hour12 = false }) {
      const day = date === undefined ? new Date() : new Date(`${date}T12:00:00Z`);
      if (!inRange(latitude, 90) || !inRange(longitude, 180)) {
        throw new PluginError(422, "PluginApiParamsError", "latitude and longitude have to be degrees.");
      }
      if (Number.isNaN(day.getTime()))
        throw new PluginError(422, "PluginApiParamsError", `"${date}" is not a date such as 2026-06-21.`);
      const { sunrise, noon, sunset, daylightMinutes } = sunTimes(day, latitude, longitude);
      const clock = clockFor(timeZone, hour12 === true);
      return {
        place: place ?? `${latitude}°, ${longitude}°`,
        date: day.toISOString().slice(0, 10),
        timeZone,
        sunrise: sunrise && clock(sunrise),
        noon: clock(noon),
        sunset: sunset && clock(sunset),
        daylightMinutes,
      };
    },
  },
});

function inRange(value, most) {
  return typeof value === "number" && Math.abs(value) <= most;
}

function clockFor(timeZone, hour12) {
  try {
    const format = new Intl.DateTimeFormat("en", {
      timeZone,
      hour12,
      hour: "2-digit",
      minute: "2-digit",
      ...(hour12 ? {} : { hourCycle: "h23" }),
    });
    return (instant) => format.format(instant);
  } catch {
    throw new PluginError(422, "PluginApiParamsError", `"${timeZone}" is not a time zone such as Europe/Oslo.`);
  }
}
