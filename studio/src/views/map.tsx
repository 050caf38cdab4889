import { useMemo, useState } from "react";

import type { View } from "../app";
import { useAnswer, useAsking } from "../asking";
import type { Backend } from "../backend";
import { gradient } from "../colour";
import { inputOf, type Decoding } from "../decoding";
import { Scatter } from "../draw/scatter";
import { count, fileName, percent, sourceText } from "../format";
import { NumberField, Segments } from "../parts/controls";
import { FileChoice } from "../parts/file_choice";
import { useRoom } from "../parts/room";
import { SourceInput } from "../parts/source_input";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { MapRequest, Neighbours, RepresentationMap, Run } from "../records";
import { useDark } from "../theme";

export function MapView({ backend, decoding, run }: { backend: Backend; decoding: Decoding; run: Run; go(view: View): void }) {
  const [file, setFile] = useState<string | null>(null);
  const [points, setPoints] = useState(500);
  const [layout, setLayout] = useState<NonNullable<MapRequest["layout"]>>("pca");
  const able = backend.page !== null || (run.ready && (file !== null || run.train_files.length > 0));
  const map = useAnswer<RepresentationMap>(able ? JSON.stringify(["map", run.id, file, points, layout]) : null, () => backend.map(run.id, { file, n: points, layout }));
  const [near, ask, forget] = useAsking<Neighbours>();
  if (!backend.page && !run.ready) return <Empty title="This run has no weights yet">There is nothing to draw before training has saved a first time.</Empty>;
  return (
    <>
      {!backend.page && (
        <div className="map-controls">
          <FileChoice backend={backend} label="Examples of" own={run.train_files.length ? "the training rows" : null} known={run.test_files} button="Draw" busy={map.busy} onFile={(next) => { forget(); setFile(next); }} />
          <NumberField label="Points" value={points} least={2} most={5000} onChange={(next) => { forget(); setPoints(next); }} />
          <Segments label="Layout" value={layout} onChange={(next) => { forget(); setLayout(next); }} options={[{ value: "pca", text: "PCA" }, { value: "umap", text: "UMAP" }]} />
        </div>
      )}
      {map.problem && <ProblemNote text={map.problem} />}
      {map.busy && <Loading what={layout === "umap" ? "Encoding the examples and folding them into the plane; the first time takes longer…" : "Encoding the examples…"} />}
      {!able && <Empty title="Which examples?">The training file is no longer where it was; choose a file of pairs.</Empty>}
      {map.answer && (
        <Mapped map={map.answer} near={near.answer}>
          {!backend.page && (
            <section aria-label="Nearest examples" className="nearest">
              <h2>Nearest examples of an input</h2>
              {run.sources.map((source) => <SourceInput key={source.name} source={source} decoding={{ ...decoding, decode: () => undefined }} />)}
              <button className="main" disabled={near.busy || !Object.values(decoding.wish.input).some(Boolean)}
                onClick={() => void ask(() => backend.neighbours(run.id, { input: inputOf(run, decoding.wish.input), file, n: points, layout, count: 10 }))}>
                {near.busy ? "Looking…" : "Find"}
              </button>
              {near.problem && <ProblemNote text={near.problem} />}
              {near.answer && (
                <>
                  <p className="hint">nearest of {count(near.answer.examples)}, by cosine</p>
                  <ol data-testid="neighbours">
                    {near.answer.neighbours.map((one, index) => (
                      <li key={index}>
                        <span className="figure">{one.similarity.toFixed(3)}</span>
                        <span><span dir="auto" className="text">{sourceText(one.source)}</span><span className="hint below-text">→ <bdi>{one.target}</bdi>, line {one.line}</span></span>
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
  const [by, setBy] = useState<"source" | "target">("source");
  const lengths = useMemo(() => map.points.map((one) => [...(by === "source" ? sourceText(one.source) : one.target)].length), [map, by]);
  const [shortest, longest] = [Math.min(...lengths), Math.max(...lengths)];
  const point = at === null ? undefined : map.points[at];
  return (
    <div className={children ? "columns right" : ""}>
      <div ref={body} className="map">
        <p className="hint">
          {count(map.points.length)} examples of <bdi>{fileName(map.file)}</bdi>: {map.representation};{" "}
          {map.explained
            ? <>the axes hold {percent(map.explained[0])} and {percent(map.explained[1])} of the variance</>
            : "who is near whom is kept, distances between groups and axes mean nothing"}
        </p>
        {room > 0 && <Scatter points={map.points} lengths={lengths} near={near} at={at} onPoint={setAt} width={room} />}
        <div className="heading">
          <span className="legend" aria-hidden="true">{shortest} <span className="scale" style={{ background: gradient(dark) }} /> {longest} characters</span>
          <Segments label="Colour: length of the" value={by} onChange={setBy} options={[{ value: "source", text: "source" }, { value: "target", text: "target" }]} />
        </div>
        <div className="point" data-testid="point" aria-live="polite">
          {point ? (
            <><span dir="auto" className="text">{sourceText(point.source)}</span> <span className="hint">→</span> <bdi>{point.target}</bdi> <span className="hint">line {point.line}</span></>
          ) : (
            <span className="hint">Hover a point, or focus the map and use the arrow keys, to read its example.</span>
          )}
        </div>
      </div>
      {children}
    </div>
  );
}
