import { memo, useCallback, useRef } from "react";

import type { Cell } from "../draw/heatmap";
import { columnOf, largest, rowOf, type Weights } from "../weights";

const MOST = 160; // tokens of a side in sight; of more, those around the one that is meant

const EDGE = 12; // tokens that stay in sight beside it; until then nothing moves

type Pointed = { row?: number; column?: number } | null;

/** Both sides as text: pointing at one shades the other by its weights. */
export function Linked(props: { weights: Weights; rows: string[]; columns: string[]; names: [string, string]; cell: Cell | null; pointed: Pointed; onPoint(pointed: Pointed): void }) {
  const { weights, rows, columns, names, cell, pointed, onPoint } = props;
  const row = pointed?.row ?? cell?.row;
  const column = pointed?.column ?? (pointed ? undefined : cell?.column);
  const pointColumn = useCallback((index: number | null) => onPoint(index === null ? null : { column: index }), [onPoint]);
  const pointRow = useCallback((index: number | null) => onPoint(index === null ? null : { row: index }), [onPoint]);
  return (
    <div className="linked">
      <Strip name={names[0]} labels={columns} shades={row !== undefined ? rowOf(weights, row) : null} marked={column} held={pointed?.column !== undefined} onPoint={pointColumn} />
      <Strip name={names[1]} labels={rows} shades={column !== undefined ? columnOf(weights, column) : null} marked={row} held={pointed?.row !== undefined} onPoint={pointRow} />
    </div>
  );
}

/** `held`: the pointer is on this strip, which must not move under it. */
const Strip = memo(function Strip(props: { name: string; labels: string[]; shades: Float32Array | null; marked: number | undefined; held: boolean; onPoint(index: number | null): void }) {
  const { name, labels, shades, marked, held, onPoint } = props;
  const most = shades ? largest(shades) || 1 : 1;
  const begin = useRef(0);
  const meant = marked ?? (shades ? shades.indexOf(most) : undefined);
  const out = meant !== undefined && (meant < begin.current + EDGE || meant >= begin.current + MOST - EDGE);
  if (!held && out) begin.current = Math.max(0, Math.min(labels.length - MOST, meant - MOST / 2));
  if (begin.current >= labels.length) begin.current = 0;
  const from = begin.current;
  return (
    <div className="strip">
      <span className="hint">{name}</span>
      <div className="tokens" dir="auto" onPointerLeave={() => onPoint(null)}>
        {from > 0 && <span className="hint">… {from} before</span>}
        {labels.slice(from, from + MOST).map((label, at) => {
          const index = from + at;
          const look = shades ? Math.round((70 * shades[index]) / most) : 0;
          return (
            <span key={at} className={`token still${index === marked ? " marked" : ""}`} onPointerEnter={() => onPoint(index)}
              style={look ? ({ "--look": `${look}%` } as React.CSSProperties) : undefined}>
              {label}
            </span>
          );
        })}
        {from + MOST < labels.length && <span className="hint">… {labels.length - from - MOST} more</span>}
      </div>
    </div>
  );
});
