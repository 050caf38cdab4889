import { memo, useLayoutEffect, useRef, type KeyboardEvent } from "react";

import type { Attention } from "../records";
import { useDark } from "../theme";
import { chosenWeights, largest, type Choice } from "../weights";
import { paint } from "./painting";

/** A thumbnail of every head, with the means at the edges. The arrow keys move between heads. */
export const HeadGrid = memo(function HeadGrid(props: { attention: Attention; choice: Choice; onChoose(choice: Choice): void }) {
  const { attention, choice, onChoose } = props;
  const layers = [...Array(attention.layers).keys(), null];
  const heads = [...Array(attention.heads).keys(), null];
  const grid = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const layer = layers[(layers.indexOf(choice.layer) + step[0] + layers.length) % layers.length];
    const head = heads[(heads.indexOf(choice.head) + step[1] + heads.length) % heads.length];
    onChoose({ layer, head });
    grid.current?.querySelector<HTMLElement>(`[data-map="${layer}:${head}"]`)?.focus();
  };
  const small = Math.max(18, Math.min(44, Math.floor(520 / heads.length) - 4));
  return (
    <div className="heads" role="radiogroup" aria-label="Layer and head" ref={grid} onKeyDown={move}
      style={{ gridTemplateColumns: `auto repeat(${heads.length}, ${small}px)` }}>
      <span />
      {heads.map((head) => <span key={String(head)} className="hint centre">{head === null ? "mean" : head + 1}</span>)}
      {layers.map((layer) => [
        <span key={`label-${layer}`} className="hint side">{layer === null ? "mean" : `layer ${layer + 1}`}</span>,
        ...heads.map((head) => {
          const on = choice.layer === layer && choice.head === head;
          return (
            <button key={`${layer}:${head}`} role="radio" aria-checked={on} tabIndex={on ? 0 : -1} data-map={`${layer}:${head}`}
              aria-label={`${layer === null ? "mean of the layers" : `layer ${layer + 1}`}, ${head === null ? "mean of the heads" : `head ${head + 1}`}`}
              style={{ width: small, height: small }} onClick={() => onChoose({ layer, head })}>
              <Thumbnail attention={attention} layer={layer} head={head} side={small - 4} />
            </button>
          );
        }),
      ])}
    </div>
  );
});

const Thumbnail = memo(function Thumbnail(props: { attention: Attention; layer: number | null; head: number | null; side: number }) {
  const { attention, layer, head, side } = props;
  const dark = useDark();
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const weights = chosenWeights(attention, { layer, head });
    const context = canvas.current!.getContext("2d")!;
    canvas.current!.width = canvas.current!.height = 2 * side;
    context.drawImage(paint(weights, largest(weights.data), dark), 0, 0, 2 * side, 2 * side);
  }, [attention, layer, head, side, dark]);
  return <canvas ref={canvas} aria-hidden="true" style={{ width: side, height: side }} />;
});
