import { useCallback, useEffect, useMemo, useState } from "react";

import type { View } from "../app";
import type { Backend } from "../backend";
import { gradient } from "../colour";
import { useAttention, type Decoding, type Which } from "../decoding";
import { HeadGrid } from "../draw/head_grid";
import { Heatmap, type Cell } from "../draw/heatmap";
import { PictureAttention } from "../draw/picture";
import { SoundAttention } from "../draw/sound";
import { isolated, number, shortened } from "../format";
import { Check, Segments } from "../parts/controls";
import { Linked, type Part } from "../parts/linked";
import { useRoom } from "../parts/room";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { Attention, Axis, Prediction } from "../records";
import { useDark } from "../theme";
import { chosenWeights, columnsOf, largest, type Choice } from "../weights";

const NAMES: Record<Which, string> = { cross: "output → source", encoder: "source → source", decoder: "output → output" };

export function AttentionView({ backend, decoding, go }: { backend: Backend; decoding: Decoding; go(view: View): void }) {
  const { prediction, chosen, choose } = decoding;
  const [wanted, setWhich] = useState<Which>("cross");
  const kinds = (["cross", "encoder", "decoder"] as const).filter(
    (kind) => prediction && prediction[kind].layers > 0 && (!decoding.inspected || kind === "cross" || decoding.inspected.attention.some((one) => one.which === kind)),
  );
  const which = kinds.includes(wanted) ? wanted : (kinds[0] ?? "cross");
  const attention = useAttention(backend, decoding, which, kinds.length > 0);
  if (!prediction)
    return <Empty title="Nothing to show yet">First enter an input under <button className="link" onClick={() => go("predict")}>Predict</button>.</Empty>;
  if (!kinds.length) return <Empty title="This model has no attention">Its decoder reads the source as a whole, not position by position.</Empty>;
  return (
    <>
      <div className="toolbar">
        <label className="inline">
          Output
          <select value={chosen} onChange={(event) => choose(Number(event.target.value))}>
            {prediction.outputs.map((output, index) => (
              <option key={index} value={index}>{`${index + 1}. ${isolated(shortened(output.text) || "(empty)")} (${number(output.score)})`}</option>
            ))}
          </select>
        </label>
        {kinds.length > 1 && (
          <Segments label="Attention of" value={which} onChange={setWhich} options={kinds.map((kind) => ({ value: kind, text: NAMES[kind] }))} />
        )}
      </div>
      {attention.problem && <ProblemNote text={attention.problem} />}
      {attention.busy && <Loading what="Reading the attention…" />}
      {attention.answer ? (
        <AttentionPanel attention={attention.answer} prediction={prediction} />
      ) : (
        !attention.busy && !attention.problem && <Empty title="This page does not contain the attention of this output" />
      )}
    </>
  );
}

/** The columns and the rows of the matrix, by source where there are several. */
function sides(attention: Attention, axes: Axis[]): [Part[], Part[]] {
  const sources = axes.length > 1 ? axes.map(({ name, begin, end }) => ({ name, begin, end })) : [{ name: "source", begin: 0, end: attention.columns.length }];
  const output = [{ name: "output", begin: 0, end: attention.rows.length }];
  if (attention.which === "cross") return [sources, output];
  if (attention.which === "encoder") {
    const isWhole = sources[sources.length - 1].end === attention.columns.length;
    const read = isWhole ? sources : [{ name: "source", begin: 0, end: attention.columns.length }];
    return [read.map((one) => ({ ...one, name: axes.length > 1 ? `attended: ${one.name}` : "attended" })), read];
  }
  return [[{ name: "attended", begin: 0, end: attention.columns.length }], output];
}

const BESIDE = 40; // columns that leave room for the heads beside the matrix

type Pointed = { row?: number; column?: number } | null;

export function AttentionPanel({ attention, prediction }: { attention: Attention; prediction: Prediction }) {
  const dark = useDark();
  const [choice, setChoice] = useState<Choice>({ layer: null, head: null });
  const [cell, setCell] = useState<Cell | null>(null);
  const [pointed, setPointed] = useState<Pointed>(null);
  const [full, setFull] = useState(false);
  const [body, room] = useRoom<HTMLDivElement>();
  const many = attention.maps !== null && attention.layers * attention.heads > 1;
  const beside = many && attention.columns.length <= BESIDE && attention.heads <= 8;
  const weights = useMemo(() => chosenWeights(attention, choice), [attention, choice]);
  const most = useMemo(() => largest(weights.data), [weights]);
  useEffect(() => {
    setCell(null);
    setPointed(null);
  }, [attention]);
  useEffect(() => setChoice({ layer: null, head: null }), [attention.layers, attention.heads, attention.which]);
  const onCell = useCallback((next: Cell | null) => {
    setPointed(null);
    setCell(next);
  }, []);
  const onPoint = useCallback((next: Pointed) => {
    setCell(null);
    setPointed(next);
  }, []);
  const onRow = useCallback((row: number | null) => {
    setCell(null);
    setPointed(row === null ? null : { row });
  }, []);
  const cross = attention.which === "cross";
  const media = cross ? prediction.axes.filter((axis) => axis.media && (axis.grid || axis.media.spectrogram)) : [];
  const text = cross ? prediction.axes.some((axis) => axis.kind === "text") || !prediction.axes.length : true;
  const row = pointed?.row ?? cell?.row ?? null;
  const [across, down] = useMemo(() => sides(attention, prediction.axes), [attention, prediction]);
  return (
    <div className={beside ? "beside" : "attention"}>
    {many && <HeadGrid attention={attention} choice={choice} onChoose={setChoice} />}
    <div ref={body} className="attention">
      {media.map((axis) => <Media key={axis.name} axis={axis} weights={weights} rows={attention.rows} row={row} room={room} onRow={onRow} />)}
      {text && <Linked weights={weights} rows={attention.rows} columns={attention.columns} across={across} down={down} cell={cell} pointed={pointed} onPoint={onPoint} />}
      <p className="readout" data-testid="readout">
        {cell ? (
          <>
            <bdi className="piece">{attention.rows[cell.row]}</bdi> attends to <bdi className="piece">{attention.columns[cell.column]}</bdi>
            {across.length > 1 && <span className="hint"> ({across.find((one) => cell.column < one.end)?.name})</span>}:{" "}
            <b data-testid="weight">{weights.data[cell.row * weights.columns + cell.column].toFixed(4)}</b>
          </>
        ) : (
          <span className="hint">{many ? label(choice) + ". " : ""}Hover over a cell to read its weight, or focus the matrix and use the arrow keys.</span>
        )}
      </p>
      <div className="scales">
        <span className="legend" aria-hidden="true">0 <span className="scale" style={{ background: gradient(dark) }} /> {full ? "1" : number(most, 2)}</span>
        <Check label="full scale to 1" checked={full} onChange={setFull} />
      </div>
      {room > 0 && <Heatmap weights={weights} rows={attention.rows} columns={attention.columns} parts={across} room={room} full={full} cell={cell} onCell={onCell} />}
    </div>
    </div>
  );
}

function label(choice: Choice): string {
  const layer = choice.layer === null ? "mean of the layers" : `layer ${choice.layer + 1}`;
  return `${layer}, ${choice.head === null ? "mean of the heads" : `head ${choice.head + 1}`}`;
}

function Media(props: { axis: Axis; weights: ReturnType<typeof chosenWeights>; rows: string[]; row: number | null; room: number; onRow(row: number | null): void }) {
  const { axis, weights, rows, row, room, onRow } = props;
  const own = useMemo(() => columnsOf(weights, axis.begin, axis.end), [weights, axis]);
  return axis.grid ? (
    axis.media!.url ? <PictureAttention axis={axis} weights={own} tokens={rows} row={row} onRow={onRow} /> : null
  ) : (
    <SoundAttention axis={axis} weights={own} tokens={rows} row={row} room={room} onRow={onRow} />
  );
}
