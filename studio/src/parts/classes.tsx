import { useState } from "react";

import { count, number, percent } from "../format";
import type { ClassProbability, Classes } from "../records";

const SHOWN = 10;

/** The probability of every class for one input. */
export function ClassBars({ classes }: { classes: ClassProbability[] }) {
  const [all, setAll] = useState(false);
  return (
    <section className="class-bars" aria-label="Probabilities of the classes">
      <h2>Classes</h2>
      <ol>
        {(all ? classes : classes.slice(0, SHOWN)).map((one) => (
          <li key={one.label}>
            <bdi>{one.label}</bdi>
            <span className="bar" aria-hidden="true"><span style={{ width: `${100 * one.probability}%` }} /></span>
            <span className="figure">{percent(one.probability)}</span>
          </li>
        ))}
      </ol>
      {classes.length > SHOWN && !all && <button className="quiet" onClick={() => setAll(true)}>Show all {classes.length} classes</button>}
    </section>
  );
}

/** Precision, recall and F1 of every class. */
export function ClassTable({ classes }: { classes: Classes }) {
  return (
    <div className="class-scores">
      <p>
        Macro F1 <b>{number(classes.macro_f1, 2)} %</b>. To answer always with <bdi className="piece">{classes.majority}</bdi> would be right for <b>{number(classes.baseline, 2)} %</b>.
      </p>
      <div className="scroll" tabIndex={0} role="region" aria-label="Scores of the classes">
        <table>
          <thead>
            <tr><th scope="col">Class</th>{["Rows", "Outputs", "Precision %", "Recall %", "F1 %"].map((name) => <th key={name} scope="col" className="figure">{name}</th>)}</tr>
          </thead>
          <tbody>
            {classes.classes.map((one) => (
              <tr key={one.label}>
                <th scope="row"><bdi>{one.label}</bdi></th>
                {[one.rows, one.outputs].map((rows, index) => <td key={index} className="figure">{count(rows)}</td>)}
                {[one.precision, one.recall, one.f1].map((share, index) => <td key={index} className="figure">{number(share, 2)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
