import { type PointerEvent, useState } from "react";

export interface Series {
  values: number[];
  kind: "area" | "line" | "second" | "bars";
}

const WIDTH = 100;
const HEIGHT = 40;

/**
 * A small curve over time. It is stretched to the available width, so that it needs no measuring and causes no layout
 * shift. The labels are ordinary text.
 */
export function Chart({
  series,
  label,
  describe,
  log = false,
}: {
  series: Series[];
  label: string;
  describe: (at: number | undefined) => [string, string];
  /** A logarithmic scale, for values that differ by orders of magnitude. */
  log?: boolean;
}) {
  const [at, setAt] = useState<number>();
  const length = Math.max(2, ...series.map(({ values }) => values.length));
  const top = Math.max(...series.flatMap(({ values }) => values), 0) || 1;
  const x = (index: number) => (index / (length - 1)) * WIDTH;
  const scaled = (value: number) => (log ? Math.log10(1 + value) / Math.log10(1 + top) : value / top);
  const y = (value: number) => HEIGHT - scaled(value) * (HEIGHT - 2);
  const point = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.min(length - 1, Math.max(0, Math.round(((event.clientX - box.left) / box.width) * (length - 1)))));
  };
  const [left, right] = describe(at);
  return (
    <>
      <svg
        className="chart"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={label}
        onPointerMove={point}
        onPointerLeave={() => setAt(undefined)}
      >
        <line className="base" x1="0" x2={WIDTH} y1={HEIGHT} y2={HEIGHT} vectorEffect="non-scaling-stroke" />
        {series.map(({ values, kind }) => {
          if (values.length === 0) return null;
          const path = values
            .map((value, index) => `${index === 0 ? "M" : "L"}${x(index).toFixed(2)} ${y(value).toFixed(2)}`)
            .join("");
          if (kind === "bars") {
            const width = (WIDTH / length) * 0.8;
            const bars = values
              .map((value, index) =>
                value > 0
                  ? `M${(x(index) - width / 2).toFixed(2)} ${HEIGHT}v${(y(value) - HEIGHT).toFixed(2)}h${width.toFixed(2)}V${HEIGHT}z`
                  : "",
              )
              .join("");
            return <path key={kind} className="bars" d={bars} />;
          }
          return (
            <g key={kind}>
              {kind === "area" && <path className="area" d={`${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}z`} />}
              <path className={kind === "second" ? "line second" : "line"} d={path} vectorEffect="non-scaling-stroke" />
            </g>
          );
        })}
        {at !== undefined && (
          <line className="at" x1={x(at)} x2={x(at)} y1="0" y2={HEIGHT} vectorEffect="non-scaling-stroke" />
        )}
      </svg>
      <div className="axis">
        <span>{left}</span>
        <span>{right}</span>
      </div>
    </>
  );
}
