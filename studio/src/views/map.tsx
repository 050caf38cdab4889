import { useMemo, useRef, useState } from "react";

import { useValue } from "../address";
import type { Layout, View } from "../app";
import { useAnswer, useAsking } from "../asking";
import type { Backend } from "../backend";
import { gradient } from "../colour";
import type { Decoding } from "../decoding";
import { Scatter } from "../draw/scatter";
import { count, fileName, percent } from "../format";
import { NumberField, Segments } from "../parts/controls";
import { FileChoice, OWN } from "../parts/file_choice";
import { useRoom } from "../parts/room";
import { SourceCell } from "../parts/source_cell";
import { SourceInput } from "../parts/source_input";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { Neighbours, RepresentationMap, Run } from "../records";
import { useDark } from "../theme";
import { inputOf } from "../wish";

export function MapView({ backend, decoding, run, layouts }: { backend: Backend; decoding: Decoding; run: Run; layouts: Layout[]; go(view: View): void }) {
  const [rows, setRows] = useValue<string>("map", run.train_files.length ? OWN : "");
  const [wantedPoints, setPoints] = useValue<string>("points", "500");
  const [wantedLayout, setLayout] = useValue<Layout>("layout", "pca");
  const layout = layouts.includes(wantedLayout) ? wantedLayout : "pca";
  const points = Math.min(5000, Math.max(2, Number.parseInt(wantedPoints, 10) || 500));
  const file = rows === OWN ? null : rows;
  const able = backend.page !== null || (run.ready && rows !== "");
  const map = useAnswer<RepresentationMap>(able ? JSON.stringify(["map", run.id, rows, points, layout]) : null, () => backend.map(run.id, { file, n: points, layout }));
  const last = useRef<RepresentationMap | null>(null); // it stays in sight while another is drawn, and if that fails
  if (map.answer) last.current = map.answer;
  const [near, ask, forget] = useAsking<Neighbours>();
  if (!backend.page && !run.ready) return <Empty title="This run has no weights yet">The map can be drawn once training has saved the run for the first time.</Empty>;
  return (
    <>
      {!backend.page && (
        <div className="map-controls">
          <FileChoice backend={backend} label="Examples of" own={run.train_files.length ? "the training rows" : null} known={run.test_files} chosen={rows} button="Draw" busy={map.busy} onFile={(next) => { forget(); setRows(next); }} />
          <NumberField label="Points" value={points} least={2} most={5000} onChange={(next) => { forget(); setPoints(String(next)); }} />
          {layouts.length > 1 ? (
            <Segments label="Layout" value={layout} onChange={(next) => { forget(); setLayout(next); }} options={layouts.map((one) => ({ value: one, text: one.toUpperCase() }))} />
          ) : (
            <span className="hint">Layout: PCA. For UMAP: <code>pip install 'dragoman[umap]'</code></span>
          )}
        </div>
      )}
      {map.problem && <ProblemNote text={map.problem} />}
      {map.busy && <Loading what={layout === "umap" ? "Encoding the examples and computing the layout; the first time takes longer…" : "Encoding the examples…"} />}
      {!able && <Empty title="Which examples?">{run.data === "memory" ? "This run was trained on a table in memory, of which no rows are kept." : "The training file no longer exists."} Choose a file of pairs.</Empty>}
      {last.current && able && (
        <Mapped map={last.current} near={near.answer}>
          {!backend.page && (
            <section aria-label="Nearest examples" className="nearest">
              <h2>Examples nearest to an input</h2>
              {run.sources.map((source) => <SourceInput key={source.name} source={source} decoding={{ ...decoding, decode: () => undefined }} />)}
              <button className="main" disabled={near.busy || !Object.values(decoding.wish.input).some(Boolean)}
                onClick={() => void ask(() => backend.neighbours(run.id, { input: inputOf(run, decoding.wish.input), file, n: points, layout, count: 10 }))}>
                {near.busy ? "Searching…" : "Find"}
              </button>
              {near.problem && <ProblemNote text={near.problem} />}
              {near.answer && (
                <>
                  <p className="hint">of {count(near.answer.examples)} examples, by cosine similarity</p>
                  <ol data-testid="neighbours">
                    {near.answer.neighbours.map((one, index) => (
                      <li key={index}>
                        <span className="figure">{one.similarity.toFixed(3)}</span>
                        <span><SourceCell source={one.source} files={one.files} /><span className="hint below-text">→ <bdi>{one.target}</bdi>, line {one.line}</span></span>
                      </li>
                    ))}
                  </ol>
                </>
              )}
            </section>
          )}
        </Mapped>
      )}
    </>
  );
}

function Mapped({ map, near, children }: { map: RepresentationMap; near: Neighbours | null; children: React.ReactNode }) {
  const dark = useDark();
  const [at, setAt] = useState<number | null>(null);
  const [body, room] = useRoom<HTMLDivElement>();
  const measured = map.points.every((one) => one.source_length !== null); // the length of a picture means nothing
  const [wantedBy, setBy] = useState<"source" | "target">("source");
  const by = measured ? wantedBy : "target";
  const lengths = useMemo(() => map.points.map((one) => (by === "source" ? (one.source_length ?? 0) : [...one.target].length)), [map, by]);
  const [shortest, longest] = [Math.min(...lengths), Math.max(...lengths)];
  const unit = by === "target" ? "characters" : Object.keys(map.points[0]?.files ?? {}).length ? "positions" : "tokens";
  const point = at === null ? undefined : map.points[at];
  return (
    <div className={children ? "columns right" : ""}>
      <div ref={body} className="map">
        <p className="hint">
          {count(map.points.length)} examples of <bdi>{fileName(map.file)}</bdi>: {map.representation};{" "}
          {map.explained
            ? <>the axes explain {percent(map.explained[0])} and {percent(map.explained[1])} of the variance</>
            : "neighbours stay close; axes and distances between groups have no meaning"}
        </p>
        {room > 0 && <Scatter points={map.points} lengths={lengths} near={near} at={at} onPoint={setAt} width={room} />}
        <div className="heading">
          <span className="legend" aria-hidden="true">{shortest} <span className="scale" style={{ background: gradient(dark) }} /> {longest} {unit}</span>
          {measured
            ? <Segments label="Colour: length of the" value={by} onChange={setBy} options={[{ value: "source", text: "source" }, { value: "target", text: "target" }]} />
            : <span className="hint">Colour: length of the target</span>}
        </div>
        <div className="point" data-testid="point" aria-live="polite">
          {point ? (
            <><SourceCell source={point.source} files={point.files} /> <span className="hint">→</span> <bdi>{point.target}</bdi> <span className="hint">line {point.line}</span></>
          ) : (
            <span className="hint">Hover over a point to read its example, or focus the map and use the arrow keys.</span>
          )}
        </div>
      </div>
      {children}
    </div>
  );
}
