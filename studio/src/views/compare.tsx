import { useState } from "react";

import { useAsking } from "../asking";
import type { Backend } from "../backend";
import { count, number, sourceText } from "../format";
import { shown } from "../parts/evaluation";
import { FileChoice } from "../parts/file_choice";
import { Marked, SpanLegend } from "../parts/spans";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { ComparedScore, Comparison, Run } from "../records";

/** Two runs on one test set, with the chance that the difference is one. */
export function CompareView({ backend, run, others }: { backend: Backend; run: Run; others: Run[] }) {
  const [other, setOther] = useState(others[0].id);
  const [comparison, ask] = useAsking<Comparison>();
  const known = [...new Set([...run.test_files, ...others.flatMap((one) => (one.id === other ? one.test_files : []))])];
  return (
    <>
      <label className="inline compare-with">
        <bdi>{run.name}</bdi> against
        <select value={other} onChange={(event) => setOther(event.target.value)}>
          {others.map((one) => <option key={one.id} value={one.id}>{one.name}</option>)}
        </select>
      </label>
      <FileChoice backend={backend} label="Test set" own={run.train_files.length ? `the test rows of ${run.name}` : null} known={known} button="Compare" busy={comparison.busy} onFile={(file) => void ask(() => backend.compare({ a: run.id, b: other, file }))} />
      {comparison.problem && <ProblemNote text={comparison.problem} />}
      {comparison.answer ? (
        <Compared comparison={comparison.answer} />
      ) : comparison.busy ? (
        <Loading what="Predicting with both runs…" />
      ) : (
        !comparison.problem && <Empty title="Is one better than the other, or luckier?">Both runs predict the same rows; resampling the rows tells how sure the difference is.</Empty>
      )}
    </>
  );
}

function Compared({ comparison }: { comparison: Comparison }) {
  const { a_name: a, b_name: b, wins, losses, ties } = comparison;
  const [many, setMany] = useState(100);
  return (
    <div data-testid="comparison">
      <table className="plain-table compared">
        <thead>
          <tr>
            <th scope="col">Metric</th><th scope="col">{a}</th><th scope="col">{b}</th><th scope="col">Difference</th>
            <th scope="col">95 % interval</th><th scope="col">p</th><th scope="col">In words</th>
          </tr>
        </thead>
        <tbody>{comparison.scores.map((score) => <ScoreRow key={score.metric.name} score={score} />)}</tbody>
      </table>
      <p className="outcome">
        <span className="wins" aria-hidden="true">
          <span className="a" style={{ flexGrow: losses }} /><span className="tie" style={{ flexGrow: ties }} /><span className="b" style={{ flexGrow: wins }} />
        </span>
        By {comparison.row_metric.label}, <bdi>{b}</bdi> is better on {count(wins)} of {count(comparison.count)} rows, <bdi>{a}</bdi> on {count(losses)}; {count(ties)} are alike.
      </p>
      <div className="heading"><h2>Rows that differ</h2><SpanLegend />{comparison.left_out > 0 && <span className="hint">{count(comparison.left_out)} more are not listed</span>}</div>
      {comparison.rows.length === 0 ? (
        <Empty title="Both say the same everywhere" />
      ) : (
        <div className="scroll wide" tabIndex={0} role="region" aria-label="Rows that differ">
          <table className="errors">
            <thead><tr><th scope="col" className="figure">Line</th><th scope="col">Source</th><th scope="col">{a}</th><th scope="col">{b}</th><th scope="col" className="figure">Gain of {b}</th></tr></thead>
            <tbody>
              {comparison.rows.slice(0, many).map((row) => (
                <tr key={row.index}>
                  <td className="figure">{row.line}</td>
                  <td className="text-cell"><span dir="auto" className="text">{sourceText(row.source)}</span><span className="words">reference: <bdi>{row.references[0]}</bdi></span></td>
                  <td className="text-cell"><Marked spans={row.a_spans} text={row.a} /></td>
                  <td className="text-cell"><Marked spans={row.b_spans} text={row.b} /></td>
                  <td className="figure">{row.gain > 0 ? "+" : ""}{number(row.gain, 1)}</td>
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

function ScoreRow({ score }: { score: ComparedScore }) {
  const reach = Math.max(Math.abs(score.low), Math.abs(score.high), 1e-9);
  const place = (value: number) => 50 + (48 * value) / reach;
  return (
    <tr>
      <th scope="row">{score.metric.label} <span className="hint">{score.metric.better} is better</span></th>
      <td className="figure">{shown(score.a)}</td>
      <td className="figure">{shown(score.b)}</td>
      <td className="figure">{score.difference > 0 ? "+" : ""}{number(score.difference, 2)}</td>
      <td>
        <span className="difference" aria-hidden="true">
          <span className="zero" />
          <span className="range" style={{ left: `${place(score.low)}%`, width: `${Math.max(1, place(score.high) - place(score.low))}%` }} />
          <span className="value" style={{ left: `${place(score.difference)}%` }} />
        </span>
        <span className="hint">{number(score.low, 2)} to {number(score.high, 2)}</span>
      </td>
      <td className="figure">{score.p_value < 0.001 ? "< 0.001" : number(score.p_value, 3)}</td>
      <td>{score.verdict}</td>
    </tr>
  );
}
