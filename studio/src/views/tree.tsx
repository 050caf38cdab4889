import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";

import type { View } from "../app";
import type { Backend } from "../backend";
import { useTree, type Decoding } from "../decoding";
import { direction, number, percent } from "../format";
import { Check } from "../parts/controls";
import { ReferenceNote } from "../parts/reference";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { Node, Tree } from "../records";

const ACROSS = 132;
const DOWN = 34;
const WIDE = 104;
const HIGH = 26;
const TOP = 30;
const AHEAD = 6; // columns drawn beyond what is in sight

export function TreeView({ backend, decoding, go }: { backend: Backend; decoding: Decoding; go(view: View): void }) {
  const tree = useTree(backend, decoding, true);
  if (!decoding.prediction)
    return <Empty title="No search to show yet">First enter an input under <button className="link" onClick={() => go("predict")}>Predict</button>.</Empty>;
  if (tree.problem) return <ProblemNote text={tree.problem} />;
  if (tree.busy) return <Loading what="Reading the search…" />;
  if (!tree.answer) return <Empty title="This page does not contain the search" />;
  return <TreePanel tree={tree.answer} />;
}

interface Placed extends Node {
  step: number;
  x: number;
  y: number;
}

function place(tree: Tree, pruned: boolean): { columns: Placed[][]; byId: Map<number, Placed>; height: number } {
  const byId = new Map<number, Placed>();
  const columns = tree.steps.map((step, index) =>
    step
      .filter((node) => pruned || node.fate !== "pruned" || node.reference)
      .map((node, rank) => {
        const placed = { ...node, step: index, x: 10 + index * ACROSS, y: TOP + rank * DOWN };
        byId.set(node.id, placed);
        return placed;
      }),
  );
  const most = Math.max(1, ...columns.map((column) => column.length));
  return { columns, byId, height: TOP + most * DOWN + 10 };
}

function TreePanel({ tree }: { tree: Tree }) {
  const [pruned, setPruned] = useState(true);
  const { columns, byId, height } = useMemo(() => place(tree, pruned), [tree, pruned]);
  const [at, setAt] = useState<number | null>(null);
  const [sight, setSight] = useState<[number, number]>([0, 20]);
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const best = columns.flat().filter((node) => node.outputs.includes(0)).pop();
    setAt(best?.id ?? null);
    look();
  }, [columns]);
  const look = () => {
    const box = frame.current;
    if (box) setSight([Math.floor(box.scrollLeft / ACROSS) - AHEAD, Math.ceil((box.scrollLeft + box.clientWidth) / ACROSS) + AHEAD]);
  };
  const marked = at === null ? undefined : byId.get(at);
  const path = useMemo(() => {
    const found: Placed[] = [];
    for (let node = marked; node; node = node.parent === null ? undefined : byId.get(node.parent)) found.unshift(node);
    return found;
  }, [marked, byId]);
  const onPath = new Set(path.map((node) => node.id));
  const seen = columns.slice(Math.max(0, sight[0]), Math.max(0, sight[1])).flat();

  const move = (event: KeyboardEvent) => {
    if (!marked) return;
    const column = columns[marked.step];
    const index = column.indexOf(marked);
    const next = {
      ArrowUp: column[index - 1],
      ArrowDown: column[index + 1],
      ArrowLeft: marked.parent === null ? undefined : byId.get(marked.parent),
      ArrowRight: columns[marked.step + 1]?.find((node) => node.parent === marked.id),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    setAt(next.id);
    const box = frame.current!;
    if (next.x < box.scrollLeft || next.x + WIDE > box.scrollLeft + box.clientWidth) box.scrollLeft = next.x - box.clientWidth / 2;
    look();
    requestAnimationFrame(() => document.getElementById(`node-${next.id}`)?.focus());
  };

  return (
    <>
      {tree.reference && <ReferenceNote reference={tree.reference} />}
      <div className="toolbar">
        <span className="hint">
          beam {tree.search.beam}, {tree.steps.length} steps{tree.forced > 0 && `, the first ${tree.forced === 1 ? "one" : tree.forced} forced`}; each column is a step, with the best candidate on top
        </span>
        <Check label="show pruned candidates" checked={pruned} onChange={setPruned} />
        <span className="tree-legend">
          <span className="node kept best">best output</span> <span className="node kept">kept</span> <span className="node finished">finished</span> <span className="node pruned">pruned</span>
          {tree.reference && <span className="node kept reference">reference</span>}
        </span>
      </div>
      <div className="tree" ref={frame} onScroll={look} onKeyDown={move} role="group" aria-label="Beam tree; the arrow keys move between candidates">
        <div className="tree-body" style={{ width: 20 + columns.length * ACROSS, height }}>
          <svg width={20 + columns.length * ACROSS} height={height} aria-hidden="true">
            {seen.map((node) => {
              const parent = node.parent === null ? undefined : byId.get(node.parent);
              if (!parent) return null;
              const [x1, y1, x2, y2] = [parent.x + WIDE, parent.y + HIGH / 2, node.x, node.y + HIGH / 2];
              const kind = `edge ${node.fate}${node.outputs.includes(0) ? " best" : ""}${onPath.has(node.id) ? " on" : ""}${node.reference ? " reference" : ""}`;
              return <path key={node.id} className={kind} d={`M${x1} ${y1} C${x1 + 16} ${y1} ${x2 - 16} ${y2} ${x2} ${y2}`} />;
            })}
          </svg>
          {columns.map((_, index) => index >= sight[0] && index < sight[1] && (
            <span key={index} className="step-number" style={{ left: 10 + index * ACROSS, width: WIDE }}>{index + 1}</span>
          ))}
          {seen.map((node) => (
            <button
              key={node.id}
              id={`node-${node.id}`}
              className={`node ${node.fate}${node.outputs.includes(0) ? " best" : ""}${node.reference ? " reference" : ""}`}
              aria-pressed={node.id === at}
              tabIndex={node.id === at ? 0 : -1}
              data-fate={node.fate}
              data-step={node.step}
              style={{ left: node.x, top: node.y, width: WIDE, height: HIGH }}
              onClick={() => setAt(node.id)}
              onPointerEnter={() => setAt(node.id)}
            >
              <bdi className="piece">{node.text}</bdi>
              <span className="figure">{number(node.total, 2)}</span>
              <span className="unseen">, step {node.step + 1}, {node.fate}</span>
            </button>
          ))}
        </div>
      </div>
      {marked && <NodeDetail node={marked} path={path} tree={tree} />}
    </>
  );
}

function NodeDetail({ node, path, tree }: { node: Placed; path: Placed[]; tree: Tree }) {
  const told: [string, string][] = [
    ["probability of the token", percent(node.probability)],
    ["its raw log-probability", number(node.log_prob, 4)],
    ["sum over the path", number(node.total, 4)],
    ...(number(node.score, 4) === number(node.total, 4) ? [] : [["score after length normalisation", number(node.score, 4)] as [string, string]]),
    ["outcome", node.fate === "cut" ? "still in the beam at the length limit" : node.fate],
  ];
  if (node.margin !== null) told.push(["pruned by", `${number(node.margin, 4)} below the worst candidate that was kept`]);
  if (node.outputs.length) told.push(["leads to", node.outputs.map((index) => `output ${index + 1}`).join(", ")]);
  if (node.reference) told.push(["reference", "its path goes through this candidate"]);
  return (
    <section className="node-detail" aria-label="Candidate" aria-live="polite" data-testid="node">
      <p className="path" dir={direction(path.map((one) => one.text).join(""))}>
        {path.map((one, index) => <bdi key={one.id} className={`piece${index === path.length - 1 ? " last" : ""}`}>{one.text}</bdi>)}
      </p>
      <dl data-total={node.total} data-margin={node.margin ?? undefined} data-log-prob={node.log_prob} data-token={node.token}>
        <dt>step</dt><dd>{node.step + 1} of {tree.steps.length}</dd>
        {told.map(([name, value]) => [<dt key={`${name}-name`}>{name}</dt>, <dd key={name}>{value}</dd>])}
      </dl>
    </section>
  );
}
