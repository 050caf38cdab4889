/** What is being decoded: the input, how it is searched, what was found. Predict, Attention and Beam tree share it. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import { useAnswer, useAsking } from "./asking";
import type { Backend } from "./backend";
import type { Attention, Inspected, PredictRequest, Prediction, Run, Tree, Upload } from "./records";

export type Which = "cross" | "encoder" | "decoder";

export interface Wish {
  input: Record<string, string>;
  reference: string;
  beam: number;
  nBest: number;
  normalize: "none" | "average" | "gnmt";
  forbidden: string[];
  forced: { ids: number[]; texts: string[] } | null;
}

export interface Decoding {
  run: Run;
  inspected: Inspected | null; // of a one-file page: given, cannot be changed
  wish: Wish;
  uploads: Record<string, Upload>; // by name of source
  prediction: Prediction | null;
  previous: Prediction | null; // of the same input, before the last change
  asked: PredictRequest | null; // what the prediction answers
  took: number; // milliseconds until the answer was here
  chosen: number; // which output is looked at
  busy: boolean;
  problem: string | null;
  change(changes: Partial<Wish>): void;
  decode(changes?: Partial<Wish>): void;
  upload(source: string, file: File): Promise<void>;
  choose(output: number): void;
}

const only = "source"; // the name under which a prompt stands

function wishFor(run: Run): Wish {
  return {
    input: Object.fromEntries((run.sources.length ? run.sources.map((source) => source.name) : [only]).map((name) => [name, ""])),
    reference: "",
    beam: run.search.beam,
    nBest: Math.max(run.search.n_best, Math.min(5, run.search.beam)),
    normalize: run.search.normalize,
    forbidden: [],
    forced: null,
  };
}

export function inputOf(run: Run, input: Record<string, string>): string | Record<string, string> {
  return run.sources.length ? input : (input[only] ?? "");
}

function requestFor(run: Run, wish: Wish): PredictRequest {
  return {
    input: inputOf(run, wish.input),
    beam: Math.max(wish.beam, wish.nBest),
    n_best: wish.nBest,
    normalize: wish.normalize,
    forbidden: wish.forbidden,
    reference: wish.reference || null,
    prefix_tokens: wish.forced?.ids ?? null,
  };
}

export function useDecoding(backend: Backend, run: Run, given: Inspected | null): Decoding {
  const [wish, setWish] = useState(() => wishFor(run));
  const [uploads, setUploads] = useState<Record<string, Upload>>({});
  const [asked, setAsked] = useState<PredictRequest | null>(null);
  const [previous, setPrevious] = useState<Prediction | null>(null);
  const [chosen, setChosen] = useState(0);
  const [took, setTook] = useState(0);
  const [asking, ask] = useAsking<Prediction>();
  const [problem, setProblem] = useState<string | null>(null);
  const latest = useRef({ wish, prediction: asking.answer });
  latest.current = { wish, prediction: asking.answer };

  const change = useCallback((changes: Partial<Wish>) => {
    latest.current.wish = { ...latest.current.wish, ...changes };
    setWish(latest.current.wish);
  }, []);

  const decode = useCallback(
    (changes: Partial<Wish> = {}) => {
      change(changes);
      const wanted = latest.current.wish;
      const request = requestFor(run, wanted);
      const before = latest.current.prediction;
      const began = performance.now();
      setProblem(null);
      void ask(() => backend.predict(run.id, request)).then((found) => {
        if (!found) return;
        const same = before && JSON.stringify(before.input) === JSON.stringify(found.input);
        setPrevious(same ? before : null);
        setAsked(request);
        setChosen(0);
        setTook(performance.now() - began);
      });
    },
    [ask, backend, change, run],
  );

  const upload = useCallback(
    async (source: string, file: File) => {
      try {
        const kept = await backend.upload(file);
        setUploads((before) => ({ ...before, [source]: kept }));
        change({ input: { ...latest.current.wish.input, [source]: kept.id }, forced: null });
        if (Object.values(latest.current.wish.input).every(Boolean)) decode();
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      }
    },
    [backend, change, decode],
  );

  useEffect(() => setChosen(0), [given]);
  const choose = useCallback((output: number) => setChosen(output), []);
  return {
    run, inspected: given, wish, uploads, asked, previous, chosen, took,
    prediction: given ? given.prediction : asking.answer,
    busy: asking.busy,
    problem: problem ?? asking.problem,
    change, decode, upload, choose,
  };
}

/** All maps of the chosen output; of a one-file page those of the best output, and of others the mean alone. */
export function useAttention(backend: Backend, decoding: Decoding, which: Which, shown: boolean) {
  const { inspected, prediction, chosen, run, asked } = decoding;
  const output = prediction?.outputs[chosen];
  const written = useMemo((): Attention | null => {
    if (!inspected || !output) return null;
    const kept = chosen === 0 ? inspected.attention.find((one) => one.which === which) : undefined;
    if (kept) return kept;
    if (which !== "cross" || !output.attention) return null;
    return {
      which,
      rows: output.tokens.map((token) => token.text),
      columns: inspected.prediction.axes.flatMap((axis) => axis.labels),
      layers: 1,
      heads: 1,
      average: output.attention,
      maps: null,
    };
  }, [inspected, output, chosen, which]);
  const request = asked && output && !inspected ? { input: asked.input, tokens: output.tokens.map((token) => token.id), which } : null;
  const answer = useAnswer<Attention>(shown && request ? JSON.stringify([run.id, request]) : null, () =>
    backend.attention(run.id, request!),
  );
  return inspected ? { answer: written, busy: false, problem: null } : answer;
}

export function useTree(backend: Backend, decoding: Decoding, shown: boolean) {
  const { inspected, asked, run } = decoding;
  const answer = useAnswer<Tree>(shown && asked && !inspected ? JSON.stringify([run.id, asked]) : null, () =>
    backend.tree(run.id, asked!),
  );
  return inspected ? { answer: inspected.tree, busy: false, problem: null } : answer;
}
