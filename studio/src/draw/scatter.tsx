import { memo, useMemo, type KeyboardEvent, type PointerEvent } from "react";

import { colour } from "../colour";
import type { Neighbours, Point } from "../records";
import { useDark } from "../theme";

const NEAR = 14; // pixels within which a point is meant

/** Points in the plane. The one nearest to the pointer is shown below. */
export function Scatter(props: { points: Point[]; lengths: number[]; near: Neighbours | null; at: number | null; onPoint(index: number | null): void; width: number }) {
  const { points, lengths, near, at, onPoint, width } = props;
  const height = Math.min(560, Math.round(0.72 * width));
  const places = useMemo(() => {
    const every = near ? [...points, near] : points;
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of every) {
      left = Math.min(left, x); right = Math.max(right, x);
      low = Math.min(low, y); high = Math.max(high, y);
    }
    const scale = Math.min((width - 32) / (right - left || 1), (height - 32) / (high - low || 1));
    const toX = (x: number) => width / 2 + (x - (left + right) / 2) * scale;
    const toY = (y: number) => height / 2 - (y - (low + high) / 2) * scale;
    return { all: points.map((point): [number, number] => [toX(point.x), toY(point.y)]), own: near ? [toX(near.x), toY(near.y)] : null };
  }, [points, near, width, height]);
  const order = useMemo(() => places.all.map((_, index) => index).sort((a, b) => places.all[a][0] - places.all[b][0]), [places]);

  const point = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    let [best, found] = [NEAR * NEAR, -1];
    places.all.forEach(([x, y], index) => {
      const distance = (x - event.clientX + box.left) ** 2 + (y - event.clientY + box.top) ** 2;
      if (distance < best) [best, found] = [distance, index];
    });
    onPoint(found < 0 ? null : found);
  };
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 10, ArrowDown: -10 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = at === null ? -step : order.indexOf(at);
    onPoint(order[Math.min(order.length - 1, Math.max(0, from + step))]);
  };
  return (
    <div className="scatter" tabIndex={0} role="group" aria-label={`Map of ${points.length} examples; the arrow keys move between points`} onKeyDown={move}>
      <svg width={width} height={height} aria-hidden="true" data-testid="scatter" onPointerMove={point} onPointerLeave={() => onPoint(null)}>
        <Dots places={places.all} lengths={lengths} />
        {places.own && near!.neighbours.map((one, index) => one.index !== null && (
          <line key={index} className="tie" x1={places.own![0]} y1={places.own![1]} x2={places.all[one.index][0]} y2={places.all[one.index][1]} />
        ))}
        {near?.neighbours.map((one, index) => one.index !== null && <circle key={index} className="near" cx={places.all[one.index][0]} cy={places.all[one.index][1]} r={6} />)}
        {places.own && ["own halo", "own"].map((name) => <path key={name} className={name} d={`M${places.own![0] - 8} ${places.own![1]}h16M${places.own![0]} ${places.own![1] - 8}v16`} />)}
        {at !== null && places.all[at] && <circle className="at" cx={places.all[at][0]} cy={places.all[at][1]} r={7} />}
      </svg>
    </div>
  );
}

const Dots = memo(function Dots({ places, lengths }: { places: [number, number][]; lengths: number[] }) {
  const [least, most] = [Math.min(...lengths), Math.max(...lengths)];
  const dark = useDark();
  return (
    <g className="dots">
      {places.map(([x, y], index) => (
        <circle key={index} cx={x.toFixed(1)} cy={y.toFixed(1)} r={3.6} fill={colour(dark, 0.2 + (0.75 * (lengths[index] - least)) / (most - least || 1))} />
      ))}
    </g>
  );
});
