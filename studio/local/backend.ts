/** The studio's backend without a server: the model is in the page. */

import type { Backend } from "../src/backend";
import type { Run, Upload } from "../src/records";
import type { Engine, Given, Medium, PageData } from "./asking";
import { readMedium } from "./media";

/** Ask an engine in a worker. Where the browser allows no worker, the engine beside the page answers. */
export async function startEngine(script: string): Promise<Engine> {
  const beside = (globalThis as unknown as { dragomanEngine: Engine }).dragomanEngine;
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  try {
    const worker = new Worker(url);
    const waiting = new Map<number, { resolve(answer: unknown): void; reject(error: Error): void }>();
    worker.onmessage = ({ data: [number, answer, problem] }: MessageEvent<[number, unknown, string | null]>) => {
      const asked = waiting.get(number);
      waiting.delete(number);
      if (problem === null) asked?.resolve(answer);
      else asked?.reject(new Error(problem));
    };
    let count = 0;
    const ask = (name: string) => (...given: unknown[]) =>
      new Promise((resolve, reject) => {
        waiting.set(++count, { resolve, reject });
        worker.postMessage([count, name, given]);
      });
    const failed = new Promise<"failed">((resolve) => (worker.onerror = () => resolve("failed")));
    const names = ["load", "predict", "tree", "attention", "search"] as const;
    const engine = Object.fromEntries(names.map((name) => [name, ask(name)])) as unknown as Engine;
    const load: Engine["load"] = async (...given) => {
      const loaded = await Promise.race([engine.load(...given), failed]);
      if (loaded !== "failed") return loaded;
      Object.assign(running, beside);
      running.load = beside.load.bind(beside);
      for (const name of names) (running[name] as unknown) = (beside[name] as (...given: never[]) => unknown).bind(beside);
      return beside.load(...given);
    };
    const running: Engine = { ...engine, load };
    return running;
  } catch {
    return beside;
  }
}

export function localBackend(engine: Engine, data: PageData, run: Run): Backend {
  const files = new Map<string, { upload: Upload; medium: Medium }>();
  const kindOf = new Map(data.sources.map((source) => [source.name, source.kind]));
  const given = (input: string | Record<string, string>): Given =>
    typeof input === "string"
      ? { source: input }
      : Object.fromEntries(Object.entries(input).map(([name, value]) => [name, kindOf.get(name) === "text" ? value : (files.get(value)?.medium ?? "")]));
  const missing = (): Promise<never> => Promise.reject(new Error("This page has the model alone. Open the run with `dragoman studio`."));
  const kinds = [...new Set(data.sources.map((source) => source.kind))].filter((kind) => kind !== "text");
  return {
    page: null,
    overview: () => Promise.resolve({ runs: [run], watched: [], layouts: [] }),
    examples: () => Promise.resolve([]),
    predict: (_, request) => engine.predict(request, given(request.input)),
    tree: (_, request) => engine.tree(request, given(request.input)),
    attention: (_, request) => engine.attention(request, given(request.input)),
    upload: async (file) => {
      const medium = await readMedium(file, kinds);
      const id = `file-${files.size + 1}`;
      const upload = { id, name: file.name, kind: medium.kind, size: file.size, url: medium.url };
      files.set(id, { upload, medium });
      return upload;
    },
    about: (id) => {
      const kept = files.get(id);
      return kept ? Promise.resolve(kept.upload) : Promise.reject(new Error("The page was opened anew. Choose the file again."));
    },
    training: missing,
    audit: missing,
    settings: missing,
    errors: missing,
    compare: missing,
    map: missing,
    neighbours: missing,
  };
}

/** The record of the run, as far as this page knows it. */
export function runOf(data: PageData, loaded: Awaited<ReturnType<Engine["load"]>>): Run {
  return {
    id: "model",
    name: data.name,
    folder: "",
    preset: "",
    is_language_model: !data.sources.length,
    is_classifier: loaded.isClassifier,
    sources: data.sources.map(({ name, kind, is_file, encoder }) => ({ name, kind, is_file, encoder })),
    decoder: "",
    target_tokens: "",
    vocabulary: loaded.vocabulary,
    parameters: null,
    metric: "",
    search: { beam: loaded.beam, n_best: loaded.nBest, normalize: loaded.normalize, alpha: loaded.alpha },
    ready: true,
    evaluation: null,
    held_out: "",
    data: "",
    train_files: [],
    test_files: [],
  };
}
