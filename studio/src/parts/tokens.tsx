import { memo } from "react";

import { direction, percent } from "../format";
import type { Token } from "../records";

/** How unsure the model was, as the share of the mark's colour behind a token. */
function doubt(token: Token): string {
  return `${Math.round(70 * (1 - token.probability))}%`;
}

/** An output token by token. The less probable a token, the stronger its mark. */
export const TokenStrip = memo(function TokenStrip(props: { tokens: Token[]; chosen: number | null; onChoose(step: number): void }) {
  return (
    <div className="tokens" role="group" aria-label="Tokens" dir={direction(props.tokens.map((token) => token.text).join(""))}>
      {props.tokens.map((token, step) => (
        <button
          key={step}
          className={`token${token.forced ? " forced" : ""}`}
          aria-pressed={step === props.chosen}
          style={{ "--doubt": doubt(token) } as React.CSSProperties}
          title={`step ${step + 1}: ${percent(token.probability)}, rank ${token.rank}, ${token.entropy.toFixed(2)} bits${token.forced ? ", forced" : ""}`}
          onClick={() => props.onChoose(step)}
        >
          <bdi>{token.text}</bdi>
        </button>
      ))}
    </div>
  );
});

export function DoubtLegend() {
  return (
    <span className="legend" aria-hidden="true">
      sure <span className="doubt-scale" /> unsure
    </span>
  );
}
