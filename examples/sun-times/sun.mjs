// The sun's position, to about a minute: the sunrise equation, with days counted from noon of 1 January 2000.

const RADIANS = Math.PI / 180;
const J2000 = Date.UTC(2000, 0, 1, 12);
const DAY_MS = 86_400_000;

const sin = (degrees) => Math.sin(degrees * RADIANS);
const cos = (degrees) => Math.cos(degrees * RADIANS);

/**
 * Returns sunrise, noon and sunset around the day's noon. If the sun stays up or down all day, there is neither sunrise
 * nor sunset.
 */
export function sunTimes(date, latitude, longitude) {
  const days = Math.round((date.getTime() - J2000) / DAY_MS) + 0.0008;
  const meanNoon = days - longitude / 360;
  const anomaly = (357.5291 + 0.98560028 * meanNoon) % 360;
  const centre = 1.9148 * sin(anomaly) + 0.02 * sin(2 * anomaly) + 0.0003 * sin(3 * anomaly);
  const ecliptic = (anomaly + centre + 180 + 102.9372) % 360;
  const transit = meanNoon + 0.0053 * sin(anomaly) - 0.0069 * sin(2 * ecliptic);
  const declination = Math.asin(sin(ecliptic) * sin(23.4397)) / RADIANS;
  // The sun's upper edge, raised by refraction: 0.833° below the horizon.
  const hourAngle = (sin(-0.833) - sin(latitude) * sin(declination)) / (cos(latitude) * cos(declination));
  const instant = (day) => new Date(J2000 + day * DAY_MS);
  const noon = instant(transit);
  if (hourAngle >= 1) return { noon, sunrise: null, sunset: null, daylightMinutes: 0 };
  if (hourAngle <= -1) return { noon, sunrise: null, sunset: null, daylightMinutes: 1440 };
  const half = Math.acos(hourAngle) / RADIANS / 360;
  return {
    noon,
    sunrise: instant(transit - half),
    sunset: instant(transit + half),
    daylightMinutes: Math.round(half * 2 * 1440),
  };
}
