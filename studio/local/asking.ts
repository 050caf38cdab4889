/** What the page asks its engine, and what it says of the model that is in it. */

import type { FramesReading, PictureReading, Pixels, SoundReading, Wave } from "../runtime/dragoman";
import type { Attention, AttentionRequest, Maps, PredictRequest, Prediction, Source, Tree } from "../src/records";

/** How a source is read, and how many of its positions one state of the encoder stands for. */
export type SourceReading =
  | { kind: "text"; stride: number; reading: { states: "tokens" | "sentences" } }
  | { kind: "image"; stride: number; reading: PictureReading }
  | { kind: "speech"; stride: number; reading: SoundReading }
  | { kind: "features"; stride: number; reading: FramesReading };

/** What src/dragoman/export/page.py writes into the page beside the model. */
export interface PageData {
  name: string; // of the run
  version: string; // of Dragoman
  sources: (Source & SourceReading)[];
  cross: Maps;
  int8: boolean;
  note: string; // what the page reads otherwise than the run does, in sentences; "" if nothing
  sizes: { model: number; wasm: number }; // bytes
}

/** A file that was dropped or chosen: pixels, samples, or the bytes of an array. */
export type Medium =
  | { kind: "image"; pixels: Pixels; url: string }
  | { kind: "speech"; wave: Wave; url: string }
  | { kind: "features"; bytes: Uint8Array; url: string };

/** The input of a request by source: a text, or a file. */
export type Given = Record<string, string | Medium>;

export interface Engine {
  load(data: PageData, model: Uint8Array, wasm: Uint8Array): Promise<{ beam: number; nBest: number; normalize: "none" | "average" | "gnmt"; alpha: number; vocabulary: number; isClassifier: boolean }>;
  predict(request: PredictRequest, given: Given): Promise<Prediction>;
  tree(request: PredictRequest, given: Given): Promise<Tree>;
  attention(request: AttentionRequest, given: Given): Promise<Attention>;
  /** Search alone, for measuring and tests: the texts, tokens and scores of the outputs. */
  search(given: Given, options: { beam?: number; nBest?: number }): Promise<{ text: string; ids: number[]; logProbs: number[]; score: number }[]>;
}
