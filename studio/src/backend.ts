/** Where records come from: the server on this machine, or the page itself if it contains its data. */

import type {
  Attention, AttentionRequest, Audit, CompareRequest, Comparison, Errors, Example, FileRequest, MapRequest, Neighbours,
  NeighboursRequest, Overview, Page, PredictRequest, Prediction, Problem, RepresentationMap, Settings, Training, Tree, Upload,
} from "./records";

declare global {
  interface Window {
    __DATA__?: Page;
  }
}

export interface Backend {
  page: Page | null; // the data of a one-file page, which can ask nothing else
  overview(): Promise<Overview>;
  examples(run: string): Promise<Example[]>;
  training(run: string, after: number): Promise<Training>;
  audit(run: string): Promise<Audit>;
  settings(run: string): Promise<Settings>;
  predict(run: string, request: PredictRequest): Promise<Prediction>;
  tree(run: string, request: PredictRequest): Promise<Tree>;
  attention(run: string, request: AttentionRequest): Promise<Attention>;
  errors(run: string, request: FileRequest): Promise<Errors>;
  compare(request: CompareRequest): Promise<Comparison>;
  map(run: string, request: MapRequest): Promise<RepresentationMap>;
  neighbours(run: string, request: NeighboursRequest): Promise<Neighbours>;
  upload(file: File): Promise<Upload>;
  about(id: string): Promise<Upload>;
}

async function ask<Answer>(path: string, init?: RequestInit): Promise<Answer> {
  let response: Response;
  try {
    response = await fetch(`api/${path}`, init);
  } catch {
    throw new Error("The studio does not answer. Is `dragoman studio` still running? Start it again, then reload this page.");
  }
  if (!response.ok) {
    const told = (await response.json().catch(() => null)) as Partial<Problem> | null;
    throw new Error(told?.error ?? `The studio answered ${response.status} ${response.statusText}.`);
  }
  return (await response.json()) as Answer;
}

function send<Answer>(path: string, body: unknown): Promise<Answer> {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

const of = (run: string, what: string): string => `runs/${encodeURIComponent(run)}/${what}`;

const server: Backend = {
  page: null,
  overview: () => ask("runs"),
  examples: (run) => ask(of(run, "examples")),
  training: (run, after) => ask(of(run, `training?after=${after}`)),
  audit: (run) => ask(of(run, "audit")),
  settings: (run) => ask(of(run, "settings")),
  predict: (run, request) => send(of(run, "predict"), request),
  tree: (run, request) => send(of(run, "tree"), request),
  attention: (run, request) => send(of(run, "attention"), request),
  errors: (run, request) => send(of(run, "errors"), request),
  compare: (request) => send("compare", request),
  map: (run, request) => send(of(run, "map"), request),
  neighbours: (run, request) => send(of(run, "neighbours"), request),
  upload: (file) => ask(`upload?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file }),
  about: (id) => ask(`uploads/${encodeURIComponent(id)}/about`),
};

function written(page: Page): Backend {
  const have = <Kept>(record: Kept | null): Promise<Kept> =>
    record === null ? Promise.reject(new Error("This page does not contain it.")) : Promise.resolve(record);
  const live = (): Promise<never> => Promise.reject(new Error("This page is a file and cannot ask the model. Open the run with `dragoman studio`."));
  return {
    page,
    overview: () => Promise.resolve({ runs: [page.run], watched: [], layouts: [] }),
    examples: () => Promise.resolve([]),
    training: () => have(page.training),
    audit: () => have(page.audit),
    settings: () => have(page.settings),
    errors: () => have(page.errors),
    map: () => have(page.map),
    predict: live,
    tree: live,
    attention: live,
    compare: live,
    neighbours: live,
    upload: live,
    about: live,
  };
}

export function backend(): Backend {
  return window.__DATA__ ? written(window.__DATA__) : server;
}
