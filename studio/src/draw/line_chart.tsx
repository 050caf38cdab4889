import { memo, useMemo, useState, type PointerEvent } from "react";

import { runColour, runDashes } from "../colour";
import { number, tick, ticks } from "../format";

export interface Line {
  name: string;
  run: number; // which colour
  dots: boolean; // few points, each one a measurement
  points: [number, number][];
}

const HIGH = 190;
const EDGE = 20; // half of a number is not wider
const MARGIN = { left: 48, right: 12, top: 8, bottom: 24 };

/** Lines over one horizontal axis. The pointer reads the nearest value of each. */
export const LineChart = memo(function LineChart(props: { title: string; unit?: string; lines: Line[]; width: number; xName: string; fromZero?: boolean; log?: boolean; lit?: number | null }) {
  const { title, unit, lines, width, xName, fromZero, log, lit = null } = props; // lit: the run that stands out
  const [x, setX] = useState<number | null>(null);
  const shape = useMemo(() => {
    const all = lines.flatMap((line) => line.points);
    if (!all.length) return null;
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const [px, py] of all) {
      left = Math.min(left, px); right = Math.max(right, px);
      low = Math.min(low, py); high = Math.max(high, py);
    }
    if (fromZero) low = Math.min(0, low);
    if (high === low) { high += Math.abs(high) * 0.1 || 1; low -= fromZero && low >= 0 ? 0 : Math.abs(low) * 0.1 || 1; }
    const logs = !!log && low > 0;
    const space = logs ? (value: number) => Math.log10(value) : (value: number) => value;
    const pad = fromZero ? 0 : (space(high) - space(low)) * 0.04;
    const [bottom, top] = [space(low) - pad, space(high) + (fromZero ? (high - low) * 0.04 : pad)];
    const toX = (value: number) => MARGIN.left + ((value - left) / (right - left || 1)) * (width - MARGIN.left - MARGIN.right);
    const toY = (value: number) => HIGH - MARGIN.bottom - ((space(value) - bottom) / (top - bottom)) * (HIGH - MARGIN.top - MARGIN.bottom);
    const y = logs ? logTicks(low, high) : ticks(low, high, 4);
    return { left, right, toX, toY, x: ticks(left, right, 5), y };
  }, [lines, width, fromZero, log]);

  const point = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    setX(event.clientX - box.left);
  };
  const read = shape && x !== null ? lines.filter((line) => line.points.length).map((line) => ({ line, at: nearest(line.points, x, shape.toX) })) : [];
  return (
    <figure className="chart" data-testid={`chart-${title}`} data-points={lines.reduce((sum, line) => sum + line.points.length, 0)}>
      <figcaption>{title}{unit && <span className="hint"> {unit}</span>}</figcaption>
      {shape ? (
        <svg width={width} height={HIGH} role="img" aria-label={`${title}: ${lines.map((line) => `${line.name} last ${number(line.points[line.points.length - 1]?.[1], 4)}`).join("; ")}`}
          onPointerMove={point} onPointerLeave={() => setX(null)}>
          {shape.y.values.map((value) => (
            <g key={value}>
              <line className="grid" x1={MARGIN.left} x2={width - MARGIN.right} y1={shape.toY(value)} y2={shape.toY(value)} />
              <text className="left" x={MARGIN.left - 6} y={shape.toY(value) + 4}>{tick(value, shape.y.step || value)}</text>
            </g>
          ))}
          {shape.x.values.map((value) => {
            const at = shape.toX(value);
            const last = at > width - EDGE; // centred, it would be cut off
            return <text key={value} className={last ? "below last" : "below"} x={last ? width - 1 : at} y={HIGH - 6}>{tick(value, shape.x.step)}</text>;
          })}
          {lines.map((line) => (
            <g key={line.name} className={lit === null ? "" : lit === line.run ? "lit" : "faint"} style={{ color: runColour(line.run) }}>
              <polyline className={line.dots ? "thin" : ""} strokeDasharray={runDashes(line.run)}
                points={line.points.map(([px, py]) => `${shape.toX(px).toFixed(1)},${shape.toY(py).toFixed(1)}`).join(" ")} />
              {line.dots && line.points.map(([px, py], index) => <circle key={index} cx={shape.toX(px)} cy={shape.toY(py)} r={2.6} />)}
            </g>
          ))}
          {read.length > 0 && <line className="cross" x1={shape.toX(read[0].at[0])} x2={shape.toX(read[0].at[0])} y1={MARGIN.top} y2={HIGH - MARGIN.bottom} />}
          {read.map(({ line, at }) => <circle key={line.name} className="at" cx={shape.toX(at[0])} cy={shape.toY(at[1])} r={4} style={{ color: runColour(line.run) }} />)}
        </svg>
      ) : (
        <div className="no-points" style={{ width, height: HIGH }}>no values yet</div>
      )}
      <div className="reading">
        {read.map(({ line, at }) => (
          <span key={line.name}><Swatch run={line.run} /> {line.name} <b>{number(at[1], Math.abs(at[1]) >= 100 ? 0 : 4)}</b> at {xName} {tick(at[0], 1)}</span>
        ))}
      </div>
    </figure>
  );
});

export function Swatch({ run }: { run: number }) {
  return (
    <svg className="swatch" width={22} height={8} aria-hidden="true" style={{ color: runColour(run) }}>
      <line x1={0} x2={22} y1={4} y2={4} strokeDasharray={runDashes(run)} />
    </svg>
  );
}

function logTicks(low: number, high: number): { values: number[]; step: number } {
  const values: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of [1, 2, 5]) if (factor * 10 ** power >= low && factor * 10 ** power <= high) values.push(factor * 10 ** power);
  if (values.length < 2) return { values: ticks(low, high, 3).values.filter((value) => value > 0), step: ticks(low, high, 3).step };
  return { values: values.length > 6 ? values.filter((_, index) => index % 2 === 0) : values, step: 0 };
}

/** Points are in the order of x. */
function nearest(points: [number, number][], x: number, toX: (value: number) => number): [number, number] {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (toX(points[middle][0]) < x) low = middle;
    else high = middle;
  }
  return Math.abs(toX(points[low][0]) - x) <= Math.abs(toX(points[high][0]) - x) ? points[low] : points[high];
}
