import { useLayoutEffect, useMemo, useRef, type KeyboardEvent, type PointerEvent } from "react";

import { useDark } from "../theme";
import { largest, type Weights } from "../weights";
import { paint, sharpen } from "./painting";

export interface Cell {
  row: number;
  column: number;
}

const LABEL = 150; // pixels that labels may take
const GLYPH = 7.5;
const LARGEST = 32; // pixels of a cell

/** As large as is readable, as small as it must be. */
function cellSize(count: number, room: number): number {
  const fitting = room / Math.max(1, count);
  return fitting >= LARGEST ? LARGEST : fitting >= 1 ? Math.floor(fitting) : 1;
}

/** A matrix with its labels: rows look at columns. Arrow keys move the marked cell. */
export function Heatmap(props: {
  weights: Weights;
  rows: string[];
  columns: string[];
  room: number; // pixels across
  full: boolean; // the strongest colour is weight 1, not the largest weight
  cell: Cell | null;
  onCell(cell: Cell | null): void;
}) {
  const { weights, rows, columns, room, full, cell, onCell } = props;
  const dark = useDark();
  const canvas = useRef<HTMLCanvasElement>(null);
  const longest = (labels: string[]) => Math.min(LABEL, 14 + GLYPH * labels.reduce((most, label) => Math.max(most, [...label].length), 0));
  const left = Math.max(30, longest(rows));
  const top = Math.max(24, longest(columns));
  const across = cellSize(weights.columns, room - left);
  const down = Math.max(1, Math.min(cellSize(weights.rows, 620), weights.columns > 1 ? 3 * across : LARGEST));
  const width = across * weights.columns;
  const height = down * weights.rows;
  const most = useMemo(() => (full ? 1 : largest(weights.data)), [full, weights]);

  useLayoutEffect(() => {
    const context = sharpen(canvas.current!, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(paint(weights, most, dark), 0, 0, width, height);
  }, [weights, most, dark, width, height]);

  const point = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / down);
    const column = Math.floor((event.clientX - box.left) / across);
    const inside = row >= 0 && column >= 0 && row < weights.rows && column < weights.columns;
    if (!inside) onCell(null);
    else if (cell?.row !== row || cell.column !== column) onCell({ row, column });
  };
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const from = cell ?? { row: -step[0], column: -step[1] };
    const within = (value: number, count: number) => Math.min(count - 1, Math.max(0, value));
    onCell({ row: within(from.row + step[0], weights.rows), column: within(from.column + step[1], weights.columns) });
  };

  return (
    <div className="heatmap" tabIndex={0} role="group" aria-label={`Attention of ${weights.rows} rows over ${weights.columns} columns; arrow keys move the marked cell`} onKeyDown={move}>
      <div className="heatmap-body" style={{ width: left + width + 8, height: top + height + 8 }}>
        {across >= 11 && columns.map((label, index) => (
          <span key={index} className={`column-label${cell?.column === index ? " on" : ""}`} title={label}
            style={{ left: left + across * (index + 0.5), top: top - 4, maxWidth: top - 8 }}><bdi>{label}</bdi></span>
        ))}
        {down >= 11 && rows.map((label, index) => (
          <span key={index} className={`row-label${cell?.row === index ? " on" : ""}`} title={label}
            style={{ top: top + down * (index + 0.5), width: left - 6 }}><bdi>{label}</bdi></span>
        ))}
        <canvas ref={canvas} style={{ left, top, width, height }} onPointerMove={point} onPointerLeave={() => onCell(null)} data-testid="matrix" data-cell={`${across}x${down}`} />
        {cell && (
          <>
            <span className="band" style={{ left, top: top + down * cell.row, width, height: down }} />
            <span className="band" style={{ left: left + across * cell.column, top, width: across, height }} />
          </>
        )}
      </div>
    </div>
  );
}
