import { count, number, percent, sentence } from "../format";
import type { Calibration } from "../records";

const [WIDE, HIGH] = [320, 240];
const MARGIN = { left: 44, right: 14, top: 10, bottom: 40 };
const TICKS = [0, 0.25, 0.5, 0.75, 1];

const toX = (share: number) => MARGIN.left + share * (WIDE - MARGIN.left - MARGIN.right);

/** Whether the confidence of outputs can be believed, and what is left wrong if the unsure ones are left out. */
export function CalibrationCharts({ calibration }: { calibration: Calibration }) {
  const { bins, risks, curve, accuracy } = calibration;
  const most = Math.max(...curve.map((one) => one.risk), 1 - accuracy, 0.01);
  const ideal = (coverage: number) => Math.max(0, coverage - accuracy) / coverage;
  const line = (points: [number, number][], toY: (share: number) => number) => points.map(([x, y]) => `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join(" ");
  const filled = bins.filter((one) => one.rows);
  const full = Math.max(...bins.map((one) => one.rows), 1);
  const [square, scaled] = [scale(1), scale(most)];
  return (
    <section className="calibration" aria-label="Confidence" data-testid="calibration">
      <h3>Confidence</h3>
      <p className="hint">
        The probability that an output {calibration.right}. {percent(accuracy)} are right, the mean confidence is {percent(calibration.mean)}.
        {" "}Expected calibration error {number(100 * calibration.error, 1)} points; a perfect confidence would have {number(100 * calibration.chance, 1)} on {count(calibration.rows)} rows.
        {calibration.note && ` ${sentence(calibration.note)}`}
      </p>
      <div className="charts">
        <figure className="chart" style={{ width: WIDE }} data-testid="reliability" data-points={filled.length}>
          <figcaption>Reliability <span className="hint">share of right outputs at each confidence</span></figcaption>
          <svg width={WIDE} height={HIGH} role="img" aria-label={`Reliability: ${filled.map((one) => `confidence ${percent(one.confidence)}, right ${percent(one.right)}, ${one.rows} rows`).join("; ")}`}>
            <Axes most={1} toY={square} x="confidence" />
            <polyline className="perfect" points={line([[0, 0], [1, 1]], square)} />
            {filled.map((one) => (
              <rect key={one.low} className="rows" x={toX(one.low) + 1} width={toX(one.high) - toX(one.low) - 2}
                y={square(0.25 * (one.rows / full))} height={square(0) - square(0.25 * (one.rows / full))}>
                <title>{`${count(one.rows)} rows from ${percent(one.low)} to ${percent(one.high)}`}</title>
              </rect>
            ))}
            <g style={{ color: "var(--run-0)" }}>
              <polyline className="thin" points={line(filled.map((one) => [one.confidence, one.right]), square)} />
              {filled.map((one) => (
                <circle key={one.low} cx={toX(one.confidence)} cy={square(one.right)} r={2 + 3 * Math.sqrt(one.rows / full)}>
                  <title>{`${count(one.rows)} rows: mean confidence ${percent(one.confidence)}, right ${percent(one.right)}`}</title>
                </circle>
              ))}
            </g>
          </svg>
          <p className="key"><span className="dashes" aria-hidden="true" /> perfect; bars and sizes: rows</p>
        </figure>
        <figure className="chart" style={{ width: WIDE }} data-testid="risk" data-points={curve.length}>
          <figcaption>Risk and coverage <span className="hint">share of wrong ones among the surest</span></figcaption>
          <svg width={WIDE} height={HIGH} role="img" aria-label={`Risk: ${risks.map((one) => `${percent(one.risk)} wrong at a coverage of ${percent(one.coverage)}`).join("; ")}`}>
            <Axes most={most} toY={scaled} x="coverage" />
            <polyline className="perfect" points={line([[0, 1 - accuracy], [1, 1 - accuracy]], scaled)} />
            <polyline className="perfect" points={line(curve.map((one) => [one.coverage, ideal(one.coverage)]), scaled)} />
            <g style={{ color: "var(--run-0)" }}>
              <polyline points={line(curve.map((one) => [one.coverage, one.risk]), scaled)} />
              {risks.map((one) => (
                <circle key={one.coverage} cx={toX(one.coverage)} cy={scaled(one.risk)} r={3.2}>
                  <title>{`${percent(one.coverage)} of the outputs: ${percent(one.risk)} wrong, confidence at least ${number(one.threshold, 3)}`}</title>
                </circle>
              ))}
            </g>
          </svg>
          <p className="key"><span className="dashes" aria-hidden="true" /> random order (above), ideal order (below)</p>
        </figure>
        <table className="risks">
          <caption>What is left wrong if only the surest outputs are kept</caption>
          <thead><tr><th scope="col">Coverage</th><th scope="col">Wrong</th><th scope="col">Confidence at least</th></tr></thead>
          <tbody>
            {risks.map((one) => (
              <tr key={one.coverage}><th scope="row" className="figure">{Math.round(100 * one.coverage)} %</th><td className="figure">{percent(one.risk)}</td><td className="figure">{number(one.threshold, 3)}</td></tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const scale = (most: number) => (share: number) => HIGH - MARGIN.bottom - (share / most) * (HIGH - MARGIN.top - MARGIN.bottom);

function Axes({ most, toY, x }: { most: number; toY(share: number): number; x: string }) {
  return (
    <>
      {TICKS.map((share) => (
        <g key={share}>
          <line className="grid" x1={MARGIN.left} x2={WIDE - MARGIN.right} y1={toY(share * most)} y2={toY(share * most)} />
          <text className="left" x={MARGIN.left - 6} y={toY(share * most) + 4}>{Math.round(1000 * share * most) / 10}</text>
          <text className="below" x={toX(share)} y={HIGH - 22}>{100 * share}</text>
        </g>
      ))}
      <text className="below" x={toX(0.5)} y={HIGH - 6}>{x}, %</text>
    </>
  );
}
