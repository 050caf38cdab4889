import { useEffect, useState, type KeyboardEvent } from "react";

import { goTo, settle, useAddress } from "./address";
import type { Backend } from "./backend";
import { useDecoding } from "./decoding";
import { isolated, sourceText } from "./format";
import { Empty, Loading, ProblemNote } from "./parts/states";
import type { Overview, Page, Run } from "./records";
import { applyTheme, storedTheme, type Theme } from "./theme";
import { AttentionView } from "./views/attention";
import { ErrorsView } from "./views/errors";
import { MapView } from "./views/map";
import { PredictView } from "./views/predict";
import { TrainingView } from "./views/training";
import { TreeView } from "./views/tree";

export const VIEWS = ["predict", "attention", "tree", "training", "errors", "map"] as const;
export type View = (typeof VIEWS)[number];
export type Layout = Overview["layouts"][number];
const TITLES: Record<View, string> = {
  predict: "Predict",
  attention: "Attention",
  tree: "Beam tree",
  training: "Training",
  errors: "Errors",
  map: "Map",
};

/** A page of inspected inputs has no curves, only the settings of its run. */
const titleOf = (view: View, page: Page | null): string => (view === "training" && page && !page.training ? "Run" : TITLES[view]);

/** A one-file page shows only what it contains. */
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

const LOOK_EVERY = 5000; // milliseconds between looks for new runs in a watched folder

/** The runs. Where a folder is watched, new ones are added while the page is in sight. */
function useOverview(backend: Backend): { overview: Overview | null; problem: string | null } {
  const [overview, setOverview] = useState<Overview | null>(() => backend.page && { runs: [backend.page.run], watched: [], layouts: [] });
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (backend.page) return;
    let wanted = true;
    let timer = 0;
    const look = async () => {
      try {
        const found = await backend.overview();
        if (!wanted) return;
        setOverview((before) => (JSON.stringify(before) === JSON.stringify(found) ? before : found));
        setProblem(null);
        if (found.watched.length) timer = window.setTimeout(wait, LOOK_EVERY);
      } catch (error) {
        if (wanted) setProblem(error instanceof Error ? error.message : String(error));
      }
    };
    const wait = () => (document.hidden ? (timer = window.setTimeout(wait, LOOK_EVERY)) : void look());
    void look();
    return () => {
      wanted = false;
      window.clearTimeout(timer);
    };
  }, [backend]);
  return { overview, problem };
}

export function App({ backend }: { backend: Backend }) {
  const { overview, problem } = useOverview(backend);
  if (!overview) return <main className="alone">{problem ? <ProblemNote text={problem} /> : <Loading what="Opening the studio…" />}</main>;
  if (!overview.runs.length)
    return (
      <main className="alone">
        <Empty title="There is no run yet">
          {overview.watched.length > 0
            ? <>A run appears here as soon as one is trained in <bdi>{overview.watched.join(", ")}</bdi>.</>
            : <>Start the studio with <code>dragoman studio RUN</code>.</>}
        </Empty>
      </main>
    );
  return <Studio backend={backend} runs={overview.runs} layouts={overview.layouts} />;
}

function Studio({ backend, runs, layouts }: { backend: Backend; runs: Run[]; layouts: Layout[] }) {
  const address = useAddress();
  const known = runs.find((one) => one.id === address.run);
  const isUnknown = !known && address.run !== "" && !backend.page; // a one-file page has one run, whatever its address says
  const run = known ?? runs[0];
  const views = viewsOf(backend.page, run);
  const view = views.find((one) => one === address.view) ?? views[0];
  useEffect(() => {
    if (!isUnknown) settle(view ?? "", run.id);
  }, [view, run.id, isUnknown]);
  useEffect(() => {
    document.title = isUnknown ? "Dragoman" : `${view ? titleOf(view, backend.page) : "Dragoman"} · ${backend.page?.title ?? run.name}`;
  }, [view, run, backend, isUnknown]);

  return (
    <>
      <header className="top">
        <div className="brand">
          <strong>Dragoman</strong> <span>{backend.page ? backend.page.kind : "studio"}</span>
        </div>
        {runs.length > 1 ? (
          <label className="run-choice">
            <span>Run</span>
            <select value={isUnknown ? "" : run.id} onChange={(event) => goTo(view, event.target.value)}>
              {isUnknown && <option value="">choose a run…</option>}
              {runs.map((one) => (
                <option key={one.id} value={one.id}>{one.name}</option>
              ))}
            </select>
          </label>
        ) : (
          <span className="run-name" dir="auto">{!isUnknown && run.name}</span>
        )}
        {!isUnknown && <Tabs page={backend.page} views={views} view={view} go={(to) => goTo(to, run.id)} />}
        <ThemeSwitch />
      </header>
      {isUnknown ? (
        <main className="alone"><UnknownRun wanted={address.run} view={view} runs={runs} /></main>
      ) : (
        <RunViews key={run.id} backend={backend} runs={runs} run={run} layouts={layouts} view={view} go={(to) => goTo(to, run.id)} />
      )}
    </>
  );
}

function UnknownRun({ wanted, view, runs }: { wanted: string; view: View | undefined; runs: Run[] }) {
  return (
    <Empty title={`There is no run “${wanted}” here`}>
      The address names a run that this studio does not show. It has:
      <span className="chips offered">
        {runs.map((one) => <button key={one.id} className="quiet" onClick={() => goTo(view ?? "", one.id)}>{one.name}</button>)}
      </span>
    </Empty>
  );
}

function RunViews(props: { backend: Backend; runs: Run[]; run: Run; layouts: Layout[]; view: View | undefined; go(view: View): void }) {
  const { backend, runs, run, layouts, view, go } = props;
  const [inspected, setInspected] = useState(0);
  const page = backend.page;
  const decoded = view === "predict" || view === "attention" || view === "tree";
  const decoding = useDecoding(backend, run, page?.inspected[inspected] ?? null, decoded);
  const shared = { backend, decoding, go };
  return (
    <main>
      <div id="panel" role="tabpanel" aria-labelledby={`tab-${view}`}>
        {page && decoded && page.inspected.length > 1 && (
          <label className="inspected-choice">
            Input
            <select value={inspected} onChange={(event) => setInspected(Number(event.target.value))}>
              {page.inspected.map((one, index) => (
                <option key={index} value={index}>{`${index + 1}. ${isolated(sourceText(one.prediction.input).slice(0, 100))}`}</option>
              ))}
            </select>
          </label>
        )}
        {view === "predict" && <PredictView {...shared} />}
        {view === "attention" && <AttentionView {...shared} />}
        {view === "tree" && <TreeView {...shared} />}
        {view === "training" && <TrainingView backend={backend} runs={runs} run={run} />}
        {view === "errors" && <ErrorsView {...shared} runs={runs} run={run} />}
        {view === "map" && <MapView {...shared} run={run} layouts={layouts} />}
        {!view && <Empty title="There is nothing to show" />}
      </div>
    </main>
  );
}

export function Tabs({ page, views, view, go }: { page: Page | null; views: View[]; view: View | undefined; go(view: View): void }) {
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
  useEffect(() => {
    document.getElementById(`tab-${view}`)?.scrollIntoView({ block: "nearest", inline: "nearest" }); // in a narrow window
  }, [view]);
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

export function ThemeSwitch() {
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
        <option value="auto">same as system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  );
}
