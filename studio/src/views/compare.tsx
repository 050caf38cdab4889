import { useState } from "react";

import { useValue } from "../address";
import { forgetAnswer, useAnswer } from "../asking";
import { count, number } from "../format";
import { shown } from "../parts/evaluation";
import { FileChoice, OWN, ownRows } from "../parts/file_choice";
import { SourceCell } from "../parts/source_cell";
import { Marked, SpanLegend } from "../parts/spans";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { ComparedRow, ComparedScore, Comparison, Run } from "../records";
import { openRow, type Shared } from "./errors";

/** Two runs on the same rows: which is better, and how certain that is. */
export function CompareView(props: Shared & { others: Run[] }) {
  const { backend, run, others } = props;
  const [wanted, setOther] = useValue<string>("against", others[0].id);
  const [rows, setRows] = useValue<string>("compared", "");
  const [turn, setTurn] = useState(0);
  const other = others.find((one) => one.id === wanted) ?? others[0];
  const keyOf = (file: string) => JSON.stringify(["compare", run.id, other.id, file]);
  const comparison = useAnswer<Comparison>(rows ? keyOf(rows) : null, () => backend.compare({ a: run.id, b: other.id, file: rows === OWN ? null : rows }), turn);
  const compare = (file: string) => {
    forgetAnswer(keyOf(file));
    setRows(file);
    setTurn((before) => before + 1);
  };
  return (
    <>
      <label className="inline compare-with">
        Compare <bdi>{run.name}</bdi> with
        <select value={other.id} onChange={(event) => { setRows(""); setOther(event.target.value); }}>
          {others.map((one) => <option key={one.id} value={one.id}>{one.name}</option>)}
        </select>
      </label>
      <FileChoice backend={backend} label="Rows" own={ownRows(run, true)} known={[...new Set([...run.test_files, ...other.test_files])]} chosen={rows} button="Compare" busy={comparison.busy} onFile={compare} />
      {comparison.problem && <ProblemNote text={comparison.problem} />}
      {comparison.answer ? (
        <Compared comparison={comparison.answer} open={(row) => openRow(row, props)} />
      ) : comparison.busy ? (
        <Loading what="Predicting with both runs…" />
      ) : (
        !comparison.problem && <Empty title="Is one run better, or only luckier?">Both runs predict the same rows. Resampling the rows shows how certain the difference is.</Empty>
      )}
    </>
  );
}

function Compared({ comparison, open }: { comparison: Comparison; open(row: ComparedRow): void }) {
  const { a_name: a, b_name: b, wins, losses, ties } = comparison;
  const [many, setMany] = useState(100);
  return (
    <div data-testid="comparison">
      <div className="scroll-wide" tabIndex={0} role="region" aria-label="Scores"><table className="plain-table compared">
        <thead>
          <tr>
            <th scope="col">Metric</th><th scope="col">{a}</th><th scope="col">{b}</th><th scope="col">Difference</th>
            <th scope="col">95 % interval</th><th scope="col">p</th><th scope="col">Result</th>
          </tr>
        </thead>
        <tbody>{comparison.scores.map((score) => <ScoreRow key={score.metric.name} score={score} a={a} b={b} />)}</tbody>
      </table></div>
      <p className="outcome">
        <span className="wins" aria-hidden="true">
          <span className="a" style={{ flexGrow: losses }} /><span className="tie" style={{ flexGrow: ties }} /><span className="b" style={{ flexGrow: wins }} />
        </span>
        By {comparison.row_metric.label}, <bdi>{b}</bdi> is better on {count(wins)} of {count(comparison.count)} rows, <bdi>{a}</bdi> on {count(losses)}; on {count(ties)} they are equal.
      </p>
      <div className="heading"><h2>Rows that differ</h2><SpanLegend />{comparison.left_out > 0 && <span className="hint">{count(comparison.left_out)} more are not listed</span>}</div>
      {comparison.rows.length === 0 ? (
        <Empty title="Both runs give the same output for every row" />
      ) : (
        <div className="scroll wide" tabIndex={0} role="region" aria-label="Rows that differ">
          <table className="errors">
            <thead><tr><th scope="col" className="figure">Line</th><th scope="col">Source</th><th scope="col">{a}</th><th scope="col">{b}</th><th scope="col" className="figure">Gain of {b}</th><td /></tr></thead>
            <tbody>
              {comparison.rows.slice(0, many).map((row) => (
                <tr key={row.index}>
                  <td className="figure" data-label="Line">{row.line}</td>
                  <td className="text-cell"><SourceCell source={row.source} files={row.files} /><span className="words">reference: <bdi>{row.references[0]}</bdi></span></td>
                  <td className="text-cell" data-label={a}><Marked spans={row.a_spans} text={row.a} /></td>
                  <td className="text-cell" data-label={b}><Marked spans={row.b_spans} text={row.b} /></td>
                  <td className="figure" data-label={`Gain of ${b}`}>{row.gain > 0 ? "+" : ""}{number(row.gain, 1)}</td>
                  <td><button className="quiet" onClick={() => open(row)} aria-label={`Look inside ${row.unit} ${row.line}`}>Look inside</button></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {comparison.rows.length > many && <button className="quiet more" onClick={() => setMany(many + 400)}>Show more rows</button>}
    </div>
  );
}

function ScoreRow({ score, a, b }: { score: ComparedScore; a: string; b: string }) {
  const reach = Math.max(Math.abs(score.low), Math.abs(score.high), 1e-9);
  const place = (value: number) => 50 + (48 * value) / reach;
  return (
    <tr>
      <th scope="row">{score.metric.label} <span className="hint">{score.metric.better} is better</span></th>
      <td className="figure" data-label={a}>{shown(score.a)}</td>
      <td className="figure" data-label={b}>{shown(score.b)}</td>
      <td className="figure" data-label="Difference">{score.difference > 0 ? "+" : ""}{number(score.difference, 2)}</td>
      <td data-label="95 % interval">
        <span className="difference" aria-hidden="true">
          <span className="zero" />
          <span className="range" style={{ left: `${place(score.low)}%`, width: `${Math.max(1, place(score.high) - place(score.low))}%` }} />
          <span className="value" style={{ left: `${place(score.difference)}%` }} />
        </span>
        <span className="hint">{number(score.low, 2)} to {number(score.high, 2)}</span>
      </td>
      <td className="figure" data-label="p" title={score.smallest ? "No smaller p-value can come out of so many resamples." : undefined}>{score.smallest ? "≤ " : ""}{number(score.p_value, 3)}</td>
      <td data-label="Result">{score.verdict}</td>
    </tr>
  );
}
