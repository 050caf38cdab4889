/** What is being decoded: the input, how it is searched, what was found. Predict, Attention and Beam tree share it. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import { setValues, useAddress } from "./address";
import { useAnswer, useAsking } from "./asking";
import type { Backend } from "./backend";
import type { Attention, Example, Inspected, PredictRequest, Prediction, Run, Tree, Upload } from "./records";
import { hasInput, inputOf, valuesOf, wishFrom, type Wish } from "./wish";

export type Which = "cross" | "encoder" | "decoder";

export interface Decoding {
  run: Run;
  inspected: Inspected | null; // of a one-file page: given, cannot be changed
  wish: Wish;
  uploads: Record<string, Upload>; // by name of source
  examples: Example[]; // dev rows to try
  prediction: Prediction | null;
  previous: Prediction | null; // of the same input, before the last change
  asked: PredictRequest | null; // what the prediction answers
  took: number; // milliseconds from asking to the answer
  chosen: number; // which output is shown
  busy: boolean;
  problem: string | null;
  change(changes: Partial<Wish>): void;
  decode(changes?: Partial<Wish>): void;
  tryExample(example: Example, from?: string): void;
  upload(source: string, file: File): Promise<void>;
  choose(output: number): void;
}

function requestFor(run: Run, wish: Wish): PredictRequest {
  return {
    input: inputOf(run, wish.input),
    beam: Math.max(wish.beam, wish.nBest),
    n_best: wish.nBest,
    normalize: wish.normalize,
    forbidden: wish.forbidden,
    reference: wish.reference || null,
    prefix_tokens: wish.forced,
  };
}

/** A row to try: its sources, files by their ids, and its target as the reference. A row of a table is shown as it was
 * measured, so no text is banned. */
function wishFor(example: Example, from = ""): Partial<Wish> {
  const ids = Object.fromEntries(Object.entries(example.files).map(([name, file]) => [name, file.id]));
  return { input: { ...example.source, ...ids }, reference: example.target, forced: null, from, ...(from && { forbidden: [] }) };
}

/** `shown`: a view of the decoding is open, so that something should be decoded. */
export function useDecoding(backend: Backend, run: Run, given: Inspected | null, shown: boolean): Decoding {
  const { values } = useAddress();
  const [wish, setWish] = useState(() => wishFrom(run, values));
  const [uploads, setUploads] = useState<Record<string, Upload>>({});
  const [asked, setAsked] = useState<PredictRequest | null>(null);
  const [previous, setPrevious] = useState<Prediction | null>(null);
  const [chosen, setChosen] = useState(0);
  const [took, setTook] = useState(0);
  const [asking, ask, forget] = useAsking<Prediction>();
  const [problem, setProblem] = useState<string | null>(null);
  const latest = useRef({ wish, prediction: asking.answer });
  latest.current = { wish, prediction: asking.answer };
  const written = useRef(JSON.stringify(valuesOf(run, wish))); // what of the address this decoding has written or read
  const able = !given && run.ready;
  const examples = useAnswer<Example[]>(able && shown ? `examples ${run.id}` : null, () => backend.examples(run.id));

  const change = useCallback(
    (changes: Partial<Wish>) => {
      latest.current.wish = { ...latest.current.wish, ...changes };
      setWish(latest.current.wish);
      const next = valuesOf(run, latest.current.wish);
      written.current = JSON.stringify(next);
      setValues(next, run.id);
    },
    [run],
  );

  // What a person was told stays until the person acts: the first view decodes a row by itself.
  const start = useCallback(
    (changes: Partial<Wish>) => {
      change(changes);
      const request = requestFor(run, latest.current.wish);
      const before = latest.current.prediction;
      const began = performance.now();
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

  const decode = useCallback(
    (changes: Partial<Wish> = {}) => {
      setProblem(null);
      start(changes);
    },
    [start],
  );

  const tryExample = useCallback((example: Example, from = "") => decode(wishFor(example, from)), [decode]);

  const upload = useCallback(
    async (source: string, file: File) => {
      try {
        const kept = await backend.upload(file);
        setUploads((before) => ({ ...before, [source]: kept }));
        change({ input: { ...latest.current.wish.input, [source]: kept.id }, forced: null, from: "" });
        if (Object.values(latest.current.wish.input).every(Boolean)) decode();
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      }
    },
    [backend, change, decode],
  );

  const begun = useRef(false);
  // Someone went back, or followed a link.
  const addressed = JSON.stringify(valuesOf(run, wishFrom(run, values)));
  useEffect(() => {
    if (given || addressed === written.current) return;
    written.current = addressed;
    latest.current.wish = wishFrom(run, values);
    setWish(latest.current.wish);
    if (hasInput(latest.current.wish)) decode();
    else {
      forget();
      begun.current = false;
    }
  }, [addressed]);

  // The first time, what the address says is decoded, or else the first example.
  useEffect(() => {
    if (!able || !shown || begun.current) return;
    if (hasInput(latest.current.wish)) {
      begun.current = true;
      decode();
    } else if (examples.answer) {
      begun.current = true;
      if (examples.answer.length) start(wishFor(examples.answer[0]));
    }
  }, [able, shown, examples.answer, decode, start, addressed]);

  // The name and the kind of a file whose id is in the address, or that an example has.
  useEffect(() => {
    for (const source of run.sources) {
      const id = wish.input[source.name];
      if (!source.is_file || !id || uploads[source.name]?.id === id) continue;
      backend.about(id).then(
        (kept) => setUploads((before) => ({ ...before, [source.name]: kept })),
        () => change({ input: { ...latest.current.wish.input, [source.name]: "" } }), // the studio was started anew
      );
    }
  }, [backend, run, wish.input, uploads, change]);

  useEffect(() => setChosen(0), [given]);
  const choose = useCallback((output: number) => setChosen(output), []);
  return {
    run, inspected: given, wish, uploads, asked, previous, chosen, took,
    examples: examples.answer ?? [],
    prediction: given ? given.prediction : asking.answer,
    busy: asking.busy || (able && shown && examples.busy && !hasInput(wish)),
    problem: problem ?? asking.problem,
    change, decode, tryExample, upload, choose,
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
  const answer = useAnswer<Attention>(shown && request ? JSON.stringify(["attention", run.id, request]) : null, () =>
    backend.attention(run.id, request!),
  );
  return inspected ? { answer: written, busy: false, problem: null } : answer;
}

export function useTree(backend: Backend, decoding: Decoding, shown: boolean) {
  const { inspected, asked, run } = decoding;
  const answer = useAnswer<Tree>(shown && asked && !inspected ? JSON.stringify(["tree", run.id, asked]) : null, () =>
    backend.tree(run.id, asked!),
  );
  return inspected ? { answer: inspected.tree, busy: false, problem: null } : answer;
}
