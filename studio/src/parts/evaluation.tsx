import { colour, inkOn } from "../colour";
import { count, number } from "../format";
import type { Confusion, Evaluation, Score } from "../records";
import { CalibrationCharts } from "./calibration";
import { ClassTable } from "./classes";
import { useDark } from "../theme";

/** Scores with their intervals, and the headline metric by length. */
export function EvaluationPanel({ evaluation, onCell }: { evaluation: Evaluation; onCell?: OnCell }) {
  const most = Math.max(...evaluation.by_length.map((one) => one.high), 1e-9);
  return (
    <div className="evaluation">
      <p className="hint">{count(evaluation.rows)} {evaluation.side === "test" || evaluation.side === "dev" ? `${evaluation.side} rows` : `rows: ${evaluation.side}`}; 95 % intervals by resampling the rows</p>
      <ul className="cards">
        {evaluation.scores.map((score) => (
          <li key={score.name} title={score.signature}>
            <span className="hint">{score.label}</span>
            <b>{shown(score)}</b>
            <span className="hint">{number(score.low, 2)} – {number(score.high, 2)}, {score.better} is better</span>
          </li>
        ))}
      </ul>
      {evaluation.by_length.length > 1 && (
        <figure className="by-length">
          <figcaption>{evaluation.scores[0]?.label} by length of the source, in {evaluation.length_unit}</figcaption>
          <ul>
            {evaluation.by_length.map((one) => (
              <li key={one.shortest}>
                <span className="figure">{one.shortest === one.longest ? one.shortest : `${one.shortest}–${one.longest}`}</span>
                <span className="interval" aria-hidden="true">
                  <span className="value" style={{ width: `${(100 * one.value) / most}%` }} />
                  <span className="range" style={{ left: `${(100 * one.low) / most}%`, width: `${(100 * (one.high - one.low)) / most}%` }} />
                </span>
                <span className="figure">{number(one.value, 1)}</span>
                <span className="hint">{count(one.rows)} rows</span>
              </li>
            ))}
          </ul>
        </figure>
      )}
      {evaluation.classes && <ClassTable classes={evaluation.classes} />}
      {evaluation.confusion && <ConfusionTable confusion={evaluation.confusion} onCell={onCell} />}
      {evaluation.confidence && <CalibrationCharts calibration={evaluation.confidence} />}
    </div>
  );
}

export const shown = (score: Score): string => `${number(score.value, 2)}${score.unit ? ` ${score.unit}` : ""}`;

/** Told which reference and which output a cell of the confusion matrix counts. */
type OnCell = (gold: string, label: string) => void;

/** How often each class was predicted for each class. */
function ConfusionTable({ confusion, onCell }: { confusion: Confusion; onCell?: OnCell }) {
  const dark = useDark();
  return (
    <figure className="confusion scroll" tabIndex={0} role="region" aria-label="Confusion matrix">
      <table>
        <caption>Rows: reference. Columns: output. {number(confusion.accuracy, 1)} % are right. Each row is shaded by the shares of its cells.{onCell && " Click one to see its rows."}</caption>
        <thead>
          <tr><td />{confusion.labels.map((label, index) => <th key={index} scope="col"><bdi>{label}</bdi></th>)}</tr>
        </thead>
        <tbody>
          {confusion.counts.map((row, index) => {
            const total = row.reduce((sum, value) => sum + value, 0) || 1;
            return (
              <tr key={index}>
                <th scope="row"><bdi>{confusion.labels[index]}</bdi></th>
                {row.map((value, column) => (
                  <td key={column} className="figure" style={{ background: colour(dark, value / total), color: inkOn(dark, value / total) }}>
                    {onCell && value > 0 ? (
                      <button className="cell" aria-label={`${count(value)} rows: reference ${confusion.labels[index]}, output ${confusion.labels[column]}`}
                        onClick={() => onCell(confusion.labels[index], confusion.labels[column])}>{count(value)}</button>
                    ) : (
                      count(value)
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </figure>
  );
}
