import { useLayoutEffect, useMemo, useRef, type KeyboardEvent, type PointerEvent } from "react";

import { direction } from "../format";
import type { Part } from "../parts/linked";
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
const READABLE = 11; // pixels that a label needs

/** The pixels of a cell: as many as fit, up to a readable size. */
function cellSize(count: number, room: number): number {
  const fitting = room / Math.max(1, count);
  return fitting >= LARGEST ? LARGEST : fitting >= 1 ? Math.floor(fitting) : 1;
}

/** A matrix with its labels: rows look at columns. Arrow keys move the marked cell. */
export function Heatmap(props: {
  weights: Weights;
  rows: string[];
  columns: string[];
  parts: Part[]; // of the columns, if there are several sources
  room: number; // pixels across
  full: boolean; // the strongest colour is weight 1, not the largest weight
  cell: Cell | null;
  onCell(cell: Cell | null): void;
}) {
  const { weights, rows, columns, parts, room, full, cell, onCell } = props;
  const dark = useDark();
  const canvas = useRef<HTMLCanvasElement>(null);
  const longest = (labels: string[]) => Math.min(LABEL, 14 + GLYPH * labels.reduce((most, label) => Math.max(most, [...label].length), 0));
  const left = Math.max(30, longest(rows));
  const across = cellSize(weights.columns, room - left);
  const top = across >= READABLE ? Math.max(24, longest(columns)) : 4;
  const down = Math.max(1, Math.min(cellSize(weights.rows, 620), weights.columns > 1 ? 3 * across : LARGEST));
  const width = across * weights.columns;
  const height = down * weights.rows;
  const turned = useMemo(() => direction(columns.join("")) === "rtl", [columns]); // the first column is at the right, as it is read
  const placeOf = (column: number) => (turned ? weights.columns - 1 - column : column);
  const most = useMemo(() => (full ? 1 : largest(weights.data)), [full, weights]);

  useLayoutEffect(() => {
    const context = sharpen(canvas.current!, width, height);
    context.imageSmoothingEnabled = false;
    if (turned) {
      context.translate(width, 0);
      context.scale(-1, 1);
    }
    context.drawImage(paint(weights, most, dark), 0, 0, width, height);
  }, [weights, most, dark, width, height, turned]);

  const point = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / down);
    const column = placeOf(Math.floor((event.clientX - box.left) / across));
    const inside = row >= 0 && column >= 0 && row < weights.rows && column < weights.columns;
    if (!inside) onCell(null);
    else if (cell?.row !== row || cell.column !== column) onCell({ row, column });
  };
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const aside = turned ? -step[1] : step[1];
    const from = cell ?? { row: -step[0], column: -aside };
    const within = (value: number, count: number) => Math.min(count - 1, Math.max(0, value));
    onCell({ row: within(from.row + step[0], weights.rows), column: within(from.column + aside, weights.columns) });
  };

  return (
    <div className="heatmap" tabIndex={0} role="group" aria-label={`Attention of ${weights.rows} rows over ${weights.columns} columns; arrow keys move the marked cell`} onKeyDown={move}>
      <div className="heatmap-body" style={{ width: left + width + 8, height: top + height + 8 }}>
        {across >= READABLE && columns.map((label, index) => (
          <span key={index} className={`column-label${cell?.column === index ? " on" : ""}`} title={label}
            style={{ left: left + across * (placeOf(index) + 0.5), top: top - 4, maxWidth: top - 8 }}><bdi>{label}</bdi></span>
        ))}
        {down >= READABLE && rows.map((label, index) => (
          <span key={index} className={`row-label${cell?.row === index ? " on" : ""}`} title={label}
            style={{ top: top + down * (index + 0.5), width: left - 6 }}><bdi>{label}</bdi></span>
        ))}
        <canvas ref={canvas} style={{ left, top, width, height }} onPointerMove={point} onPointerLeave={() => onCell(null)} data-testid="matrix" data-cell={`${across}x${down}`} />
        {parts.slice(1).map((part) => (
          <span key={part.name} className="divide" title={`${part.name} begins here`}
            style={{ left: left + across * (turned ? weights.columns - part.begin : part.begin) - 1, top, height }} />
        ))}
        {cell && (
          <>
            <span className="band" style={{ left, top: top + down * cell.row, width, height: down }} />
            <span className="band" style={{ left: left + across * placeOf(cell.column), top, width: across, height }} />
          </>
        )}
      </div>
    </div>
  );
}
