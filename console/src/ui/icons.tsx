/** Drawn on a grid of 16, in the colour of the adjacent text. */
const PATHS = {
  overview: "M2.5 13.5v-5M6.2 13.5v-8M9.800 13.5v-4M13.500 13.500v-11",
  tools: "M9.8 6.200l-6.600 6.600M9.300 3.200a3.200 3.200 0 0 0 3.500 4.400l.9-.9-1.600-1.600.3-1.500L11 2.300z",
  calls: "M2.500 4h6M5 8h8.500M2.500 12h5",
  nodes: "M2.500 3.500h11v6h-11zM6 12.500h4M8 9.500v3",
  upstream: "M8 13V4M4.500 7.500L8 4l3.500 3.500M3 2h10",
  plugins: "M6 2.500v3H3.500v7h9v-7H10v-3M6 5.500h4",
  sessions: "M8 8a2.600 2.600 0 1 0 0-5.200A2.600 2.600 0 0 0 8 8zM3 13.500c.4-2.700 2.300-4 5-4s4.600 1.300 5 4",
  channels: "M6 2.500L5 13.500M11 2.500l-1 11M2.700 6h11M2.300 10h11",
  chat: "M2.500 3h11v8H7l-3 2.500V11H2.500z",
  sun: "M8 5.200a2.800 2.800 0 1 0 0 5.600 2.800 2.800 0 0 0 0-5.600zM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1 1M11.600 11.600l1 1M12.600 3.400l-1 1M4.400 11.600l-1 1",
  moon: "M13 9.800A5.500 5.500 0 0 1 6.200 3 5.500 5.500 0 1 0 13 9.800z",
  auto: "M8 2.500a5.500 5.500 0 1 0 0 11zM8 2.500a5.500 5.500 0 0 1 0 11",
  copy: "M5.500 5.500v-3h8v8h-3M2.500 5.500h8v8h-8z",
  done: "M3 8.500l3.200 3.200L13 4.800",
  close: "M4 4l8 8M12 4l-8 8",
  back: "M9.500 3.500L5 8l4.500 4.500",
  menu: "M2.500 4.500h11M2.500 8h11M2.500 11.500h11",
  add: "M8 3v10M3 8h10",
  out: "M6.500 2.500h-4v11h4M10 5l3 3-3 3M13 8H6",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo({ size = 20 }: { size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 32 32"
      fill="none"
      stroke="currentColor"
      strokeWidth="3"
      strokeLinecap="round"
      aria-hidden="true"
    >
      <circle cx="7.500" cy="7.500" r="4" />
      <circle cx="24.500" cy="24.500" r="4" />
      <path d="M11.500 7.500h4.500c6.500 0 8.500 4 8.500 13" />
      <path d="M7.500 11.500c0 9 2 13 8.500 13h4.500" opacity=".45" />
    </svg>
  );
}
