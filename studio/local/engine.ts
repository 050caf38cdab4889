/** The engine of a page: it holds the model and answers as the studio's server does. It runs in a worker, or where a
 * browser allows none, beside the page. */

import { Dragoman, frameFeatures, pictureFeatures, readArray, soundFeatures, tidy, type Features, type Input, type Prediction as Found } from "../runtime/dragoman";
import type { AttentionRequest, PredictRequest } from "../src/records";
import type { Engine, Given, PageData } from "./asking";
import { describeAttention, describePrediction, describeTree, type Inspected } from "./describe";

class LocalEngine implements Engine {
  private model!: Dragoman;
  private data!: PageData;
  private latest: { key: string; inspected: Inspected } | null = null; // the tree of a prediction is asked for next

  async load(data: PageData, model: Uint8Array, wasm: Uint8Array) {
    this.model = await Dragoman.load(model, { wasm: wasm as Uint8Array<ArrayBuffer> });
    this.data = data;
    const { beam, nBest, normalize, alpha } = this.model.defaults;
    return { beam, nBest, normalize, alpha, vocabulary: this.model.target.size, isClassifier: this.model.defaults.only.length > 0 };
  }

  async predict(request: PredictRequest, given: Given) {
    return describePrediction(this.inspect(request, given));
  }

  async tree(request: PredictRequest, given: Given) {
    return describeTree(this.inspect(request, given));
  }

  async attention(request: AttentionRequest, given: Given) {
    const features = this.read(given);
    return describeAttention({ model: this.model, data: this.data, given, features, input: this.input(given, features) }, request);
  }

  async search(given: Given, options: { beam?: number; nBest?: number }) {
    const found = this.model.predict(this.input(given, this.read(given)), options);
    return found.outputs.map(({ text, ids, logProbs, score }) => ({ text, ids, logProbs, score }));
  }

  private inspect(request: PredictRequest, given: Given): Inspected {
    const key = JSON.stringify([request, Object.entries(given).map(([name, value]) => [name, typeof value === "string" ? value : value.url])]);
    if (this.latest?.key === key) return this.latest.inspected;
    const features = this.read(given);
    const input = this.input(given, features);
    const began = performance.now();
    const found: Found = this.model.predict(input, {
      beam: request.beam ?? undefined,
      nBest: request.n_best ?? undefined,
      normalize: request.normalize ?? this.model.defaults.normalize,
      sample: false,
      forbid: request.forbidden ?? [],
      prefix: request.prefix_tokens ?? tidy(request.prefix ?? ""),
      trace: true,
    });
    const seconds = (performance.now() - began) / 1000;
    if (!found.outputs[0].ids.length) throw new Error("An empty input has an empty output, so there is nothing to show. Enter something.");
    const inspected = { model: this.model, data: this.data, given, features, input, found, request, seconds };
    this.latest = { key, inspected };
    return inspected;
  }

  /** The sources that are files, as the model reads them. */
  private read(given: Given): Record<string, Features> {
    const features: Record<string, Features> = {};
    for (const source of this.data.sources) {
      const value = given[source.name];
      if (source.kind === "text") continue;
      if (!value || typeof value === "string") throw new Error(`Choose a file for ${source.name}.`);
      if (source.kind === "image" && value.kind === "image") features[source.name] = pictureFeatures(value.pixels, source.reading);
      if (source.kind === "speech" && value.kind === "speech") features[source.name] = soundFeatures(value.wave, source.reading);
      if (source.kind === "features" && value.kind === "features") features[source.name] = frameFeatures(readArray(value.bytes), source.reading);
    }
    return features;
  }

  private input(given: Given, features: Record<string, Features>): Input {
    if (!this.data.sources.length) return String(given.source ?? "");
    return Object.fromEntries(this.data.sources.map(({ name, kind }) => [name, kind === "text" ? String(given[name] ?? "") : features[name]]));
  }
}

const engine: Engine = new LocalEngine();
(globalThis as { dragomanEngine?: Engine }).dragomanEngine = engine;

// In a worker: answer one question after the other.
if (typeof document === "undefined") {
  globalThis.addEventListener("message", async ({ data: [number, name, given] }: MessageEvent<[number, keyof Engine, unknown[]]>) => {
    try {
      const answer = await (engine[name] as (...given: unknown[]) => Promise<unknown>)(...given);
      globalThis.postMessage([number, answer, null]);
    } catch (error) {
      globalThis.postMessage([number, null, error instanceof Error ? error.message : String(error)]);
    }
  });
}
