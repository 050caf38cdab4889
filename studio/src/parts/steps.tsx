import { useEffect, useRef, useState } from "react";

import { number, percent } from "../format";
import type { Alternative, Output } from "../records";

const PAGE = 60;

/** What else the model considered, step by step. */
export function Steps(props: { output: Output; chosen: number | null; force: ((step: number, alternative: Alternative) => void) | null }) {
  const { output, chosen, force } = props;
  const [shown, setShown] = useState(PAGE);
  const marked = useRef<HTMLTableRowElement>(null);
  useEffect(() => {
    if (chosen !== null && chosen >= shown) setShown(chosen + PAGE);
    else marked.current?.scrollIntoView({ block: "nearest" });
  }, [chosen, shown]);
  const most = Math.max(1, ...output.tokens.map((token) => token.entropy));
  return (
    <>
      <table className="steps">
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">Token</th>
            <th scope="col">Probability</th>
            <th scope="col">Entropy <span className="hint">bits; a full bar is {number(most, 2)}</span></th>
            <th scope="col">Alternatives{force && <span className="hint"> click one to force it and continue from there</span>}</th>
          </tr>
        </thead>
        <tbody>
          {output.tokens.slice(0, shown).map((token, step) => (
            <tr key={step} ref={step === chosen ? marked : undefined} className={step === chosen ? "on" : ""}>
              <td className="figure">{step + 1}</td>
              <th scope="row">
                <bdi className="piece">{token.text}</bdi>
                {token.forced && <span className="tag">forced</span>}
                {token.rank > 1 && <span className="tag">rank {token.rank}</span>}
              </th>
              <td className="figure">
                <Bar share={token.probability} />
                {percent(token.probability)}
              </td>
              <td className="figure entropy">
                <Bar share={token.entropy / most} quiet />
                {number(token.entropy, 2)}
              </td>
              <td className="alternatives-cell">
                <div className="alternatives">
                {token.alternatives.map((one) => {
                  const text = (
                    <>
                      <bdi className="piece">{one.text}</bdi> <span>{percent(one.probability)}</span>
                    </>
                  );
                  const taken = one.id === token.id;
                  return force && !taken ? (
                    <button key={one.id} className="alternative" onClick={() => force(step, one)}>{text}</button>
                  ) : (
                    <span key={one.id} className={`alternative${taken ? " taken" : ""}`}>{text}</span>
                  );
                })}
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {output.tokens.length > shown && (
        <button className="quiet more" onClick={() => setShown(shown + 4 * PAGE)}>
          Show more of the {output.tokens.length} steps
        </button>
      )}
    </>
  );
}

function Bar({ share, quiet }: { share: number; quiet?: boolean }) {
  return (
    <span className={`bar${quiet ? " quiet" : ""}`} aria-hidden="true">
      <span style={{ width: `${100 * Math.min(1, share)}%` }} />
    </span>
  );
}
