import { memo, useCallback, useMemo, useRef } from "react";

import type { Cell } from "../draw/heatmap";
import { direction } from "../format";
import { columnOf, largest, rowOf, type Weights } from "../weights";

const MOST = 160; // tokens of a strip that are shown; of a longer one, those around the marked one

const EDGE = 12; // tokens that stay in sight beside the marked one; until then nothing moves

type Pointed = { row?: number; column?: number } | null;

/** One source, or the output: the positions `begin` to before `end` of a side. */
export interface Part {
  name: string;
  begin: number;
  end: number;
}

/** Both sides as text: pointing at a token shades the tokens of the other side by their weights. */
export function Linked(props: { weights: Weights; rows: string[]; columns: string[]; across: Part[]; down: Part[]; cell: Cell | null; pointed: Pointed; onPoint(pointed: Pointed): void }) {
  const { weights, rows, columns, across, down, cell, pointed, onPoint } = props;
  const row = pointed?.row ?? cell?.row;
  const column = pointed?.column ?? (pointed ? undefined : cell?.column);
  const pointColumn = useCallback((index: number | null) => onPoint(index === null ? null : { column: index }), [onPoint]);
  const pointRow = useCallback((index: number | null) => onPoint(index === null ? null : { row: index }), [onPoint]);
  return (
    <div className="linked">
      {across.map((part) => (
        <Strip key={part.name} part={part} labels={columns} shades={row !== undefined ? rowOf(weights, row) : null} marked={column} held={pointed?.column !== undefined} onPoint={pointColumn} />
      ))}
      {down.map((part) => (
        <Strip key={part.name} part={part} labels={rows} shades={column !== undefined ? columnOf(weights, column) : null} marked={row} held={pointed?.row !== undefined} onPoint={pointRow} />
      ))}
    </div>
  );
}

/** `held`: the pointer is on this strip, which must not move under it. */
const Strip = memo(function Strip(props: { part: Part; labels: string[]; shades: Float32Array | null; marked: number | undefined; held: boolean; onPoint(index: number | null): void }) {
  const { part, shades, marked, held, onPoint } = props;
  const labels = useMemo(() => props.labels.slice(part.begin, part.end), [props.labels, part]);
  const most = shades ? largest(shades) || 1 : 1;
  const begin = useRef(0);
  const meant = marked ?? (shades ? shades.indexOf(most) : undefined);
  const place = meant === undefined ? undefined : meant - part.begin;
  const out = place !== undefined && place >= 0 && place < labels.length && (place < begin.current + EDGE || place >= begin.current + MOST - EDGE);
  if (!held && out) begin.current = Math.max(0, Math.min(labels.length - MOST, place - MOST / 2));
  if (begin.current >= labels.length) begin.current = 0;
  const from = begin.current;
  return (
    <div className="strip">
      <span className="hint">{part.name}</span>
      <div className="tokens" dir={direction(labels.join(""))} onPointerLeave={() => onPoint(null)}>
        {from > 0 && <span className="hint">… {from} before</span>}
        {labels.slice(from, from + MOST).map((label, at) => {
          const index = part.begin + from + at;
          const look = shades ? Math.round((70 * shades[index]) / most) : 0;
          return (
            <span key={at} className={`token still${index === marked ? " marked" : ""}`} onPointerEnter={() => onPoint(index)}
              style={look ? ({ "--look": `${look}%` } as React.CSSProperties) : undefined}>
              <bdi>{label}</bdi>
            </span>
          );
        })}
        {from + MOST < labels.length && <span className="hint">… {labels.length - from - MOST} more</span>}
      </div>
    </div>
  );
});
