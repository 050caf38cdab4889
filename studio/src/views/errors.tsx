import { useEffect, useMemo, useState } from "react";

import type { View } from "../app";
import { useAsking } from "../asking";
import type { Backend } from "../backend";
import type { Decoding } from "../decoding";
import { count, number, sourceText } from "../format";
import { Check, Segments } from "../parts/controls";
import { EvaluationPanel } from "../parts/evaluation";
import { FileChoice } from "../parts/file_choice";
import { Marked, SpanLegend } from "../parts/spans";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { ErrorRow, Errors, Run } from "../records";
import { CompareView } from "./compare";
import { filtered, NO_FILTER, sorted, type Filter, type Sorting } from "./filtering";

interface Shared {
  backend: Backend;
  decoding: Decoding;
  run: Run;
  runs: Run[];
  go(view: View): void;
}

export function ErrorsView(props: Shared) {
  const { backend, run, runs } = props;
  const [two, setTwo] = useState<"one" | "two">("one");
  const others = runs.filter((one) => one.id !== run.id && one.ready);
  if (!backend.page && !run.ready) return <Empty title="This run has no weights yet">There is nothing to measure before training has saved a first time.</Empty>;
  return (
    <>
      {others.length > 0 && (
        <Segments label="Look at" value={two} onChange={setTwo} options={[{ value: "one", text: "this run" }, { value: "two", text: "two runs side by side" }]} />
      )}
      {two === "two" && others.length ? <CompareView backend={backend} run={run} others={others} /> : <OneRun {...props} />}
    </>
  );
}

function OneRun({ backend, decoding, run, go }: Shared) {
  const [errors, ask] = useAsking<Errors>();
  useEffect(() => {
    if (backend.page) void ask(() => backend.errors(run.id, {}));
  }, [ask, backend, run]);
  const open = (row: ErrorRow) => {
    decoding.decode({ input: row.source, reference: row.references[0] ?? "", forced: null });
    go("predict");
  };
  const textual = run.sources.every((source) => !source.is_file);
  return (
    <>
      {!backend.page && (
        <FileChoice backend={backend} label="Test set" own={run.train_files.length ? "the run's own test rows" : null} known={[...new Set([...run.test_files, ...run.train_files])]} button="Measure" busy={errors.busy} onFile={(file) => void ask(() => backend.errors(run.id, { file }))} />
      )}
      {errors.problem && <ProblemNote text={errors.problem} />}
      {errors.answer ? (
        <ErrorTable errors={errors.answer} open={backend.page || !textual ? null : open} />
      ) : errors.busy ? (
        <Loading what="Predicting every row and measuring…" />
      ) : (
        !errors.problem && <Empty title="Where does it go wrong?">Choose a file of pairs; every row is predicted and compared with its reference.</Empty>
      )}
    </>
  );
}

const PAGE = 100;

function ErrorTable({ errors, open }: { errors: Errors; open: ((row: ErrorRow) => void) | null }) {
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [sorting, setSorting] = useState<Sorting>({ by: errors.metrics[0]?.name ?? "line", down: errors.metrics[0]?.better === "lower" });
  const [shown, setShown] = useState(PAGE);
  const rows = useMemo(() => sorted(filtered(errors.rows, filter), sorting), [errors, filter, sorting]);
  useEffect(() => setShown(PAGE), [filter, sorting]);
  const set = (changes: Partial<Filter>) => setFilter({ ...filter, ...changes });
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
      <EvaluationPanel evaluation={errors.evaluation} />
      <div className="toolbar filters" role="search" aria-label="Filter">
        <label className="inline">Find <input dir="auto" value={filter.text} onChange={(event) => set({ text: event.target.value })} /></label>
        <Check label="wrong only" checked={filter.wrong} onChange={(wrong) => set({ wrong })} />
        <Check label="with unknown tokens" checked={filter.unknown} onChange={(unknown) => set({ unknown })} />
        <Check label={`with rare tokens (seen < ${errors.rare_below} times)`} checked={filter.rare} onChange={(rare) => set({ rare })} />
        {range("Source length", "shortest", "longest")}
        {errors.metrics[0] && range(errors.metrics[0].label, "lowest", "highest")}
      </div>
      <div className="heading">
        <h2 data-testid="rows-shown">{count(rows.length)} of {count(errors.rows.length)} rows</h2>
        <SpanLegend />
        {errors.left_out > 0 && <span className="hint">{count(errors.left_out)} more rows are measured but not listed</span>}
      </div>
      {rows.length === 0 ? (
        <Empty title="No row is like that">Loosen the filter.</Empty>
      ) : (
        <div className="scroll wide" tabIndex={0} role="region" aria-label="Rows">
          <table className="errors">
            <thead>
              <tr>
                {head("line", "Line", true)}
                {head("source", "Source")}
                {head("output", "Output against reference")}
                {errors.metrics.map((metric) => head(metric.name, metric.label, true, `${metric.better} is better`))}
                {head("length", "Length", true, "of the source")}
                {head("surprise", "log\u00a0p", true, "of the output")}
                {open && <td />}
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, shown).map((row) => (
                <tr key={row.index} className={row.correct ? "correct" : ""}>
                  <td className="figure">{row.line}</td>
                  <td className="text-cell">
                    <span dir="auto" className="text">{sourceText(row.source)}</span>
                    <Words name="unknown" words={row.unknown} />
                    <Words name="rare" words={row.rare} />
                  </td>
                  <td className="text-cell">
                    <Marked spans={row.spans} text={row.output} />
                    {row.correct && <span className="tag good">right</span>}
                    {row.references.length > 1 && <span className="tag">{row.references.length} references</span>}
                  </td>
                  {errors.metrics.map((metric) => <td key={metric.name} className="figure">{number(row.values[metric.name], 1)}</td>)}
                  <td className="figure">{row.source_length}</td>
                  <td className="figure" title={row.reference_log_prob === null ? undefined : `of the reference: ${number(row.reference_log_prob)}`}>
                    {number(row.log_prob, 2)}
                    {row.reference_log_prob !== null && !row.correct && row.reference_log_prob > row.log_prob && <span className="tag warn" title="The model finds the reference more probable than the output: the search missed it">search</span>}
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
