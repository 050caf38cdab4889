import { useCallback, useEffect, useState, type KeyboardEvent } from "react";

import { useAnswer } from "./asking";
import type { Backend } from "./backend";
import { useDecoding } from "./decoding";
import { sourceText } from "./format";
import { Empty, Loading, ProblemNote } from "./parts/states";
import type { Page, Run } from "./records";
import { applyTheme, storedTheme, type Theme } from "./theme";
import { AttentionView } from "./views/attention";
import { ErrorsView } from "./views/errors";
import { MapView } from "./views/map";
import { PredictView } from "./views/predict";
import { TrainingView } from "./views/training";
import { TreeView } from "./views/tree";

export const VIEWS = ["predict", "attention", "tree", "training", "errors", "map"] as const;
export type View = (typeof VIEWS)[number];
const TITLES: Record<View, string> = {
  predict: "Predict",
  attention: "Attention",
  tree: "Beam tree",
  training: "Training",
  errors: "Errors",
  map: "Map",
};

/** A page of inspected inputs knows of its run, but not how it was trained. */
const titleOf = (view: View, page: Page | null): string => (view === "training" && page && !page.training ? "Run" : TITLES[view]);

/** A one-file page shows what it was written with. */
function viewsOf(page: Page | null, run: Run): View[] {
  if (!page) return run.sources.length ? [...VIEWS] : VIEWS.filter((view) => view !== "map");
  const inspected = page.inspected.length > 0;
  const has: Record<View, boolean> = {
    predict: inspected,
    attention: inspected,
    tree: page.inspected.some((one) => one.tree !== null),
    training: page.training !== null || page.audit !== null || page.settings !== null,
    errors: page.errors !== null,
    map: page.map !== null,
  };
  const order: View[] = page.kind === "report" ? ["training", "errors", "predict", "attention", "tree", "map"] : [...VIEWS];
  return order.filter((view) => has[view]);
}

function addressed(): { view: string; run: string } {
  const [view = "", run = ""] = window.location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { view, run };
}

export function App({ backend }: { backend: Backend }) {
  const runs = useAnswer("runs", () => backend.runs());
  if (runs.problem) return <main className="alone"><ProblemNote text={runs.problem} /></main>;
  if (!runs.answer) return <main className="alone"><Loading what="Opening the studio…" /></main>;
  if (!runs.answer.length)
    return <main className="alone"><Empty title="No run is open">Start with <code>dragoman studio RUN</code>.</Empty></main>;
  return <Studio backend={backend} runs={runs.answer} />;
}

function Studio({ backend, runs }: { backend: Backend; runs: Run[] }) {
  const [address, setAddress] = useState(addressed);
  useEffect(() => {
    const changed = () => setAddress(addressed());
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  const run = runs.find((one) => one.id === address.run) ?? runs[0];
  const views = viewsOf(backend.page, run);
  const view = views.find((one) => one === address.view) ?? views[0];
  const go = useCallback((to: View, runId: string) => {
    window.location.hash = `${to}/${encodeURIComponent(runId)}`;
  }, []);
  useEffect(() => {
    document.title = `${view ? titleOf(view, backend.page) : "Dragoman"} · ${backend.page?.title ?? run.name}`;
  }, [view, run, backend]);

  return (
    <>
      <header className="top">
        <div className="brand">
          <strong>Dragoman</strong> <span>{backend.page ? backend.page.kind : "studio"}</span>
        </div>
        {runs.length > 1 ? (
          <label className="run-choice">
            <span>Run</span>
            <select value={run.id} onChange={(event) => go(view, event.target.value)}>
              {runs.map((one) => (
                <option key={one.id} value={one.id}>{one.name}</option>
              ))}
            </select>
          </label>
        ) : (
          <span className="run-name" dir="auto">{run.name}</span>
        )}
        <Tabs page={backend.page} views={views} view={view} go={(to) => go(to, run.id)} />
        <ThemeSwitch />
      </header>
      <RunViews key={run.id} backend={backend} runs={runs} run={run} view={view} go={(to) => go(to, run.id)} />
    </>
  );
}

function RunViews(props: { backend: Backend; runs: Run[]; run: Run; view: View | undefined; go(view: View): void }) {
  const { backend, runs, run, view, go } = props;
  const [inspected, setInspected] = useState(0);
  const page = backend.page;
  const decoding = useDecoding(backend, run, page?.inspected[inspected] ?? null);
  const shared = { backend, decoding, go };
  const decoded = view === "predict" || view === "attention" || view === "tree";
  return (
    <main>
    <div id="panel" role="tabpanel" aria-labelledby={`tab-${view}`}>
      {page && decoded && page.inspected.length > 1 && (
        <label className="inspected-choice">
          Input
          <select value={inspected} onChange={(event) => setInspected(Number(event.target.value))}>
            {page.inspected.map((one, index) => (
              <option key={index} value={index}>{`${index + 1}. ${sourceText(one.prediction.input).slice(0, 100)}`}</option>
            ))}
          </select>
        </label>
      )}
      {view === "predict" && <PredictView {...shared} />}
      {view === "attention" && <AttentionView {...shared} />}
      {view === "tree" && <TreeView {...shared} />}
      {view === "training" && <TrainingView backend={backend} runs={runs} run={run} />}
      {view === "errors" && <ErrorsView {...shared} runs={runs} run={run} />}
      {view === "map" && <MapView {...shared} run={run} />}
      {!view && <Empty title="There is nothing to show" />}
    </div>
    </main>
  );
}

function Tabs({ page, views, view, go }: { page: Page | null; views: View[]; view: View | undefined; go(view: View): void }) {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? views[0] : event.key === "End" ? views[views.length - 1] : undefined;
    const at = views.findIndex((one) => one === view);
    const next = to ?? (step ? views[(at + step + views.length) % views.length] : undefined);
    if (!next) return;
    event.preventDefault();
    go(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" aria-label="Views" onKeyDown={move}>
      {views.map((one) => (
        <button
          key={one}
          id={`tab-${one}`}
          role="tab"
          aria-selected={one === view}
          aria-controls="panel"
          tabIndex={one === view ? 0 : -1}
          onClick={() => go(one)}
        >
          {titleOf(one, page)}
        </button>
      ))}
    </div>
  );
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(storedTheme);
  return (
    <label className="theme">
      <span>Colours</span>
      <select
        value={theme}
        onChange={(event) => {
          const wanted = event.target.value as Theme;
          setTheme(wanted);
          applyTheme(wanted);
        }}
      >
        <option value="auto">as the system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  );
}
