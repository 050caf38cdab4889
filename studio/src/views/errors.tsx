import { useEffect, useMemo, useRef, useState } from "react";

import type { View } from "../app";
import { setValues, useAddress, useFlag, useValue } from "../address";
import { forgetAnswer, useAnswer } from "../asking";
import type { Backend } from "../backend";
import type { Decoding } from "../decoding";
import { count, number } from "../format";
import { Check, Segments } from "../parts/controls";
import { EvaluationPanel } from "../parts/evaluation";
import { FileChoice, OWN, ownRows } from "../parts/file_choice";
import { SourceCell } from "../parts/source_cell";
import { Marked, SpanLegend } from "../parts/spans";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { ErrorRow, Errors, Run, SourceFile } from "../records";
import { CompareView } from "./compare";
import { filtered, filterFrom, filterValues, sorted, sortingFrom, type Filter, type Sorting } from "./filtering";

export interface Shared {
  backend: Backend;
  decoding: Decoding;
  run: Run;
  runs: Run[];
  go(view: View): void;
}

export function ErrorsView(props: Shared) {
  const { backend, run, runs } = props;
  const [two, setTwo] = useFlag("two");
  const reads = (one: Run) => one.sources.map((source) => `${source.name}: ${source.kind}`).sort().join("\n");
  const others = runs.filter((one) => one.id !== run.id && one.ready && reads(one) === reads(run));
  if (!backend.page && !run.ready) return <Empty title="This run has no weights yet">It can be measured once training has saved it for the first time.</Empty>;
  return (
    <>
      {others.length > 0 && (
        <Segments label="Show" value={two ? "two" : "one"} onChange={(wanted) => setTwo(wanted === "two")} options={[{ value: "one", text: "this run" }, { value: "two", text: "two runs side by side" }]} />
      )}
      {two && others.length ? <CompareView {...props} others={others} /> : <OneRun {...props} />}
    </>
  );
}

/** Open a row in the view Predict; a file is given by its id. */
export function openRow(row: { index: number; line: number; unit?: string; source: Record<string, string>; files: Record<string, SourceFile>; references: string[] }, { decoding, go }: Pick<Shared, "decoding" | "go">): void {
  setValues({ row: String(row.index) }); // where the reader comes back to
  go("predict");
  document.getElementById("tab-predict")?.focus();
  decoding.tryExample({ source: row.source, files: row.files, target: row.references[0] ?? "", line: 0 }, `${row.unit ?? "line"} ${row.line}`);
}

function OneRun(props: Shared) {
  const { backend, run } = props;
  const [rows, setRows] = useValue<string>("rows", "");
  const [turn, setTurn] = useState(0);
  const file = rows === OWN ? null : rows;
  const key = backend.page ? "errors" : rows ? JSON.stringify(["errors", run.id, rows]) : null;
  const errors = useAnswer<Errors>(key, () => backend.errors(run.id, { file }), turn);
  const measure = (wanted: string) => {
    forgetAnswer(JSON.stringify(["errors", run.id, wanted]));
    setRows(wanted);
    setTurn((before) => before + 1);
  };
  return (
    <>
      {!backend.page && (
        <FileChoice backend={backend} label="Rows" own={ownRows(run)} known={[...new Set([...run.test_files, ...run.train_files])]} chosen={rows} button="Measure" busy={errors.busy} onFile={measure} />
      )}
      {errors.problem && <ProblemNote text={errors.problem} />}
      {errors.answer ? (
        <ErrorTable errors={errors.answer} open={backend.page ? null : (row) => openRow(row, props)} />
      ) : errors.busy ? (
        <Loading what="Predicting every row and measuring…" />
      ) : (
        !errors.problem && <Empty title="Where does the model go wrong?">
          Choose a file of pairs. Every row is predicted and compared with its reference.
          {run.data === "memory" && " This run was trained on a table in memory, of which no rows are kept, so it has no rows of its own to measure."}
        </Empty>
      )}
    </>
  );
}

const PAGE = 100;

function ErrorTable({ errors, open }: { errors: Errors; open: ((row: ErrorRow) => void) | null }) {
  const { values } = useAddress();
  const filter = useMemo(() => filterFrom(values), [values]);
  const headline = errors.metrics[0];
  // A class is right or wrong, which the row says already.
  const metrics = errors.metrics.filter((metric) => !errors.evaluation.classes || metric.name !== "exact");
  const sorting = useMemo((): Sorting => sortingFrom(values, { by: headline?.name ?? "line", down: headline?.better === "lower" }), [values, headline]);
  const [shown, setShown] = useState(PAGE);
  const rows = useMemo(() => sorted(filtered(errors.rows, filter, errors.evaluation.confusion?.labels), sorting), [errors, filter, sorting]);
  const opened = useRef<HTMLTableRowElement>(null);
  useEffect(() => {
    const place = rows.findIndex((row) => String(row.index) === values.row);
    if (place >= PAGE) setShown(place + PAGE);
  }, [filter, sorting]);
  useEffect(() => {
    opened.current?.scrollIntoView({ block: "center" });
  }, []);
  const set = (changes: Partial<Filter>) => setValues(filterValues({ ...filter, ...changes }));
  const setSorting = ({ by, down }: Sorting) => setValues({ sort: `${down ? "-" : ""}${by}` });
  const head = (by: string, text: string, figure = false, title?: string) => (
    <th scope="col" key={by} className={figure ? "figure" : ""} aria-sort={sorting.by === by ? (sorting.down ? "descending" : "ascending") : undefined} title={title}>
      <button className="sort" onClick={() => setSorting({ by, down: sorting.by === by ? !sorting.down : false })}>
        {text}{"\u00a0"}<span aria-hidden="true">{sorting.by === by ? (sorting.down ? "↓" : "↑") : "↕"}</span>
      </button>
    </th>
  );
  const range = (label: string, least: keyof Filter, most: keyof Filter) => (
    <span className="range-fields">
      {label}
      <input type="number" aria-label={`${label}: at least`} value={filter[least] as string} onChange={(event) => set({ [least]: event.target.value })} />
      to
      <input type="number" aria-label={`${label}: at most`} value={filter[most] as string} onChange={(event) => set({ [most]: event.target.value })} />
    </span>
  );
  return (
    <>
      <EvaluationPanel evaluation={errors.evaluation} onCell={(gold, label) => set({ gold, label })} />
      <div className="toolbar filters" role="search" aria-label="Filter">
        <label className="inline">Find <input dir="auto" value={filter.text} onChange={(event) => set({ text: event.target.value })} /></label>
        <Check label="wrong only" checked={filter.wrong} onChange={(wrong) => set({ wrong })} />
        <Check label="with unknown words" checked={filter.unknown} onChange={(unknown) => set({ unknown })} />
        <Check label={`with rare tokens (seen < ${errors.rare_below} times)`} checked={filter.rare} onChange={(rare) => set({ rare })} />
        {range("Source length", "shortest", "longest")}
        {headline && metrics.includes(headline) && range(headline.label, "lowest", "highest")}
        {filter.gold && (
          <button className="chip" aria-label="Show the rows of all classes" onClick={() => set({ gold: "", label: "" })}>
            reference <bdi>{filter.gold}</bdi>, output <bdi>{filter.label}</bdi> ×
          </button>
        )}
      </div>
      <div className="heading">
        <h2 data-testid="rows-shown">{count(rows.length)} of {count(errors.rows.length)} rows</h2>
        <SpanLegend />
        {errors.left_out > 0 && <span className="hint">{count(errors.left_out)} more rows were measured but are not listed</span>}
      </div>
      {rows.length === 0 ? (
        <Empty title="No row matches the filter" />
      ) : (
        <div className="scroll wide" tabIndex={0} role="region" aria-label="Rows">
          <table className="errors">
            <thead>
              <tr>
                {head("line", "Line", true)}
                {head("source", "Source")}
                {head("output", "Output against reference")}
                {metrics.map((metric) => head(metric.name, metric.label, true, `${metric.better} is better`))}
                {head("length", "Length", true, "of the source")}
                {head("surprise", "log\u00a0p", true, "of the output")}
                {open && <td />}
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, shown).map((row) => (
                <tr key={row.index} ref={String(row.index) === values.row ? opened : undefined} className={String(row.index) === values.row ? "on" : ""}>
                  <td className="figure" data-label="Line">{row.line}</td>
                  <td className="text-cell">
                    <SourceCell source={row.source} files={row.files} />
                    <Words name="unknown" words={row.unknown} />
                    <Words name="rare" words={row.rare} />
                  </td>
                  <td className="text-cell">
                    <Marked spans={row.spans} text={row.output} />
                    {row.correct && <span className="tag good">right</span>}
                    {row.references.length > 1 && <span className="tag">{row.references.length} references</span>}
                  </td>
                  {metrics.map((metric) => <td key={metric.name} className="figure" data-label={metric.label}>{number(row.values[metric.name], 1)}</td>)}
                  <td className="figure" data-label="Length">{row.source_length}</td>
                  <td className="figure" data-label="log p" title={row.reference_log_prob === null ? undefined : `of the reference: ${number(row.reference_log_prob)}`}>
                    {number(row.log_prob, 2)}
                    {row.search_error && <span className="tag warn" title="The model scores the reference higher than the output: the search lost it">search error</span>}
                  </td>
                  {open && <td><button className="quiet" onClick={() => open(row)} aria-label={`Look inside line ${row.line}`}>Look inside</button></td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {rows.length > shown && <button className="quiet more" onClick={() => setShown(shown + 4 * PAGE)}>Show more rows</button>}
    </>
  );
}

function Words({ name, words }: { name: string; words: string[] }) {
  if (!words.length) return null;
  return <span className="words">{name}: {words.slice(0, 8).map((word, index) => <bdi key={index} className="tag piece">{word}</bdi>)}</span>;
}
