import { memo } from "react";

import type { Cell } from "../draw/heatmap";
import { columnOf, largest, rowOf, type Weights } from "../weights";

/** Both sides as text: pointing at one shades the other by its weights. */
export function Linked(props: { weights: Weights; rows: string[]; columns: string[]; names: [string, string]; cell: Cell | null; onCell(cell: { row?: number; column?: number } | null): void; pointed: { row?: number; column?: number } | null }) {
  const { weights, rows, columns, names, cell, pointed, onCell } = props;
  const row = pointed?.row ?? cell?.row;
  const column = pointed?.column ?? (pointed ? undefined : cell?.column);
  const overColumns = row !== undefined ? rowOf(weights, row) : null;
  const overRows = column !== undefined ? columnOf(weights, column) : null;
  return (
    <div className="linked">
      <Strip name={names[0]} labels={columns} shades={overColumns} marked={column} onPoint={(index) => onCell(index === null ? null : { column: index })} />
      <Strip name={names[1]} labels={rows} shades={overRows} marked={row} onPoint={(index) => onCell(index === null ? null : { row: index })} />
    </div>
  );
}

const Strip = memo(function Strip(props: { name: string; labels: string[]; shades: Float32Array | null; marked: number | undefined; onPoint(index: number | null): void }) {
  const { name, labels, shades, marked, onPoint } = props;
  const most = shades ? largest(shades) || 1 : 1;
  return (
    <div className="strip">
      <span className="hint">{name}</span>
      <div className="tokens" dir="auto" onPointerLeave={() => onPoint(null)}>
        {labels.map((label, index) => (
          <span key={index} className={`token still${index === marked ? " marked" : ""}`} onPointerEnter={() => onPoint(index)}
            style={shades ? ({ "--look": `${Math.round((70 * shades[index]) / most)}%` } as React.CSSProperties) : undefined}>
            {label}
          </span>
        ))}
      </div>
    </div>
  );
});
