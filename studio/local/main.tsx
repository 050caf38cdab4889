/** The page that runs a model: the studio's views of predictions, with the model in the page itself. */

import { useEffect } from "react";
import { createRoot } from "react-dom/client";

import { goTo, settle, useAddress } from "../src/address";
import { Tabs, ThemeSwitch } from "../src/app";
import type { Backend } from "../src/backend";
import { useDecoding } from "../src/decoding";
import { size } from "../src/format";
import type { Run } from "../src/records";
import { applyTheme, storedTheme } from "../src/theme";
import { AttentionView } from "../src/views/attention";
import { PredictView } from "../src/views/predict";
import { TreeView } from "../src/views/tree";
import "../src/style.css";
import "./page.css";
import type { Engine, PageData } from "./asking";
import { localBackend, runOf, startEngine } from "./backend";
import { unpack } from "./packing";

const VIEWS = ["predict", "attention", "tree"] as const;

function Page({ backend, data, run }: { backend: Backend; data: PageData; run: Run }) {
  const address = useAddress();
  const views = VIEWS.filter((view) => view !== "attention" || data.cross.layers > 0);
  const view = views.find((one) => one === address.view) ?? views[0];
  useEffect(() => settle(view, run.id), [view, run.id]);
  const decoding = useDecoding(backend, run, null, true);
  const shared = { backend, decoding, go: (to: string) => goTo(to, run.id) };
  return (
    <>
      <header className="top">
        <div className="brand"><strong>Dragoman</strong></div>
        <span className="run-name" dir="auto">{run.name}</span>
        <Tabs page={null} views={views} view={view} go={(to) => goTo(to, run.id)} />
        <ThemeSwitch />
      </header>
      <main>
        <h1 className="unseen">{run.name}</h1>
        <div id="panel" role="tabpanel" aria-labelledby={`tab-${view}`}>
          {view === "predict" && <PredictView {...shared} />}
          {view === "attention" && <AttentionView {...shared} />}
          {view === "tree" && <TreeView {...shared} />}
        </div>
      </main>
      <footer className="foot hint">
        The model runs in this page: nothing is sent anywhere. {size(data.sizes.model)} of weights{data.int8 && " with 8 bits each"}, made with Dragoman {data.version}.
        {data.note && <span className="page-note" data-testid="page-note">{data.note}</span>}
      </footer>
    </>
  );
}

const text = (id: string): string => document.getElementById(id)!.textContent ?? "";

async function start(): Promise<void> {
  const root = document.getElementById("root")!;
  try {
    const data = JSON.parse(text("about")) as PageData;
    const [model, wasm] = await Promise.all([unpack(text("model")), unpack(text("library"))]);
    const engine: Engine = await startEngine(text("engine"));
    const run = runOf(data, await engine.load(data, model, wasm));
    (globalThis as unknown as { dragoman: Engine }).dragoman = engine; // for the console, and for tests
    createRoot(root).render(<Page backend={localBackend(engine, data, run)} data={data} run={run} />);
  } catch (error) {
    const note = document.createElement("p");
    note.className = "problem";
    note.textContent = `The model cannot be opened in this browser: ${error instanceof Error ? error.message : String(error)}`;
    root.replaceChildren(note);
  }
}

applyTheme(storedTheme());
void start();
