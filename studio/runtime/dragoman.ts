/** Run a model that `dragoman export` has written, in a browser or in Node: no server, no other package.
 *
 *     import { Dragoman } from "./dragoman.js";
 *     const model = await Dragoman.load(modelBytes, { wasm: wasmBytes });
 *     console.log(model.predict("some text").text);
 */

import { rate, readConfidence, withoutSmoothing, type Confidence } from "./confidence";
import { Container } from "./container";
import { DragomanError, Library } from "./library";
import { Model, type Features, type ForcedPath, type ForceOptions, type Frontier, type SearchSettings } from "./model";
import { BOS, EOS, Tokenizer } from "./tokenizer";

export { frameFeatures, readArray, type FramesReading } from "./frames";
export { DragomanError } from "./library";
export type { Features, ForcedPath, ForcedToken, ForceOptions, Frontier, SearchSettings } from "./model";
export { pictureFeatures, resize, type PictureReading, type Pixels } from "./picture";
export { logMel, readWave, resample, soundFeatures, type SoundReading, type Wave } from "./sound";
export { BOS, EOS, Tokenizer, UNK } from "./tokenizer";
export { Library } from "./library";

/** An input: a text, or several sources by name. What is no text is given as the numbers that the model reads. */
export type Input = string | Readonly<Record<string, string | Features>>;

export interface PredictOptions extends Partial<Omit<SearchSettings, "prefix" | "limit">> {
  prefix?: string | readonly number[]; // what the output has to begin with: a text, or token ids. Of a classifier: how its label begins
  forbid?: readonly string[]; // texts that no output may contain
  attention?: boolean; // where each token looked
  trace?: boolean; // all candidates of the search
}

export interface Output {
  text: string;
  score: number; // what the search ranked by
  confidence: number | null; // the probability that it is right; null: the model has no numbers for it
  logProb: number; // of the whole output
  finished: boolean; // false: cut off at the length limit
  ids: number[]; // with the end symbol, if it was produced
  tokens: string[]; // a printable string for each id
  logProbs: number[];
  entropies: number[]; // of the distribution before each token, in nats
  path: number[]; // of each token: its candidate in the step of the trace
  attention: Float32Array | null; // (T, maps, states)
}

export interface Prediction extends Output {
  outputs: Output[]; // best first; the fields of this object are those of the best
  states: number; // source positions that attention is over
  trace: Frontier[]; // of each step, if asked for
  prefixLength: number; // tokens that were given
  limit: number; // most tokens that an output could have
  settings: SearchSettings;
}

const WORDS = { normalize: ["none", "average", "gnmt"], stop: ["complete", "certain"] } as const;
const LINE_BREAK = /\r\n|\n|\r/g;
// What Python's str.strip() strips, and the byte order mark.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff";
const EDGES = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g");

/** A text as training saw it: on one line, without white space around it. */
export const tidy = (text: string): string => text.replace(LINE_BREAK, " ").replace(EDGES, "");

export class Dragoman {
  readonly about: Readonly<Record<string, unknown>>; // what the export says of the run
  readonly confidence: Confidence | null; // the numbers with which outputs are rated
  readonly defaults: Omit<SearchSettings, "prefix" | "limit">;
  readonly classes: readonly string[]; // the labels of a classifier, in the order of `defaults.only`
  readonly target: Tokenizer;
  readonly readers: ReadonlyMap<string, Tokenizer>; // of the sources that are text
  private readonly model: Model;
  readonly limits: { ratio: number; extra: number; most: number; characters: number };

  /** Open a model. `wasm` is the library, dragoman.wasm: its bytes, or a module that was compiled before. */
  static async load(model: Uint8Array | ArrayBuffer, options: { wasm: BufferSource | WebAssembly.Module }): Promise<Dragoman> {
    // A Buffer of Node is a Uint8Array whose slice() does not copy, so it is seen as a plain one.
    const file = model instanceof Uint8Array ? new Uint8Array(model.buffer, model.byteOffset, model.byteLength) : new Uint8Array(model);
    return new Dragoman(await Library.load(options.wasm), file);
  }

  private constructor(library: Library, file: Uint8Array) {
    const container = new Container(file);
    this.model = new Model(library, file);
    this.about = container.about() as Record<string, unknown>;
    this.confidence = readConfidence(this.about.confidence);
    const table = (number: number) => new Tokenizer(library, container.needed("tokenizer", number));
    const { sources } = this.model;
    this.readers = new Map(sources.flatMap(({ name, kind }, number) => (kind === "tokens" ? [[name, table(number)] as const] : [])));
    this.target = table(sources.length);
    if (this.target.size !== this.model.vocabulary) throw new DragomanError("the model file is damaged: its tokeniser does not fit its program");
    [this.defaults, this.limits] = readSettings(container);
    this.classes = readClasses(this.about.classes, this.defaults.only.length);
  }

  /** The sources that the model reads; a language model has none, and is given prompts. */
  get sources(): { name: string; kind: "tokens" | "frames" | "picture"; width: number }[] {
    return this.model.sources;
  }

  /** Attention maps of each token. */
  get maps(): number {
    return this.model.maps;
  }

  close(): void {
    this.model.close();
    this.target.close();
    this.readers.forEach((reader) => reader.close());
  }

  /** Search for the outputs of one input. */
  predict(input: Input, options: PredictOptions = {}): Prediction {
    const { prefix: begin = "", forbid = [], attention = false, trace = false, ...changes } = options;
    const features = this.read(input);
    const isPrompt = !this.model.sources.length;
    const wanted = { ...this.forbidding(forbid), ...Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined)) };
    const labelled = this.classes.length && begin.length ? this.beginning(begin, wanted.only ?? this.defaults.only) : null;
    const prompt = isPrompt ? tidy(String(input)) : typeof begin === "string" && !labelled ? begin : "";
    const prefix = labelled?.prefix ?? (isPrompt || typeof begin === "string" ? [...this.target.encode(prompt)] : [...this.known(begin)]);
    const limit = this.limit(features) + (isPrompt ? prefix.length : 0);
    const settings: SearchSettings = { ...this.defaults, ...wanted, ...(labelled && { only: labelled.only }), prefix, limit };
    if (changes.nBest && changes.beam === undefined) settings.beam = Math.max(settings.beam, changes.nBest);
    const result = this.isEmpty(input) ? { hypotheses: [], states: 0, steps: [] } : this.model.search(features, settings, { attention, trace });
    const own = prompt ? this.target.decode(prefix).length : 0;
    const outputs = result.hypotheses.map((found): Output => {
      const text = this.target.decode(found.tokens);
      return {
        ids: found.tokens,
        text: prompt ? prompt + text.slice(own) : text, // the prompt as it was written, also where the model read <unk>
        tokens: found.tokens.map((id) => this.target.piece(id)),
        logProb: found.logProbs.reduce((sum, value) => sum + value, 0),
        score: found.score,
        confidence: null,
        finished: found.finished,
        logProbs: found.logProbs,
        entropies: found.entropies,
        path: found.path,
        attention: found.attention,
      };
    });
    if (this.confidence) rate(this.confidence, outputs, settings.sample).forEach((own, index) => (outputs[index].confidence = own));
    if (!outputs.length) outputs.push({ ids: [], text: "", tokens: [], logProb: 0, score: 0, confidence: null, finished: true, logProbs: [], entropies: [], path: [], attention: null });
    const most = settings.maxLength ? Math.min(limit, settings.maxLength) : limit;
    return { ...outputs[0], outputs, states: result.states, trace: result.steps, prefixLength: prefix.length, limit: most, settings };
  }

  /** Give the model the tokens of some outputs, and return what it thinks of each token. */
  force(input: Input, outputs: readonly (readonly number[])[], options: ForceOptions = {}): ForcedPath[] {
    return this.model.force(this.read(input), outputs, { ...options, probability: (logProb) => this.probability(logProb) });
  }

  /** The probability of a token as people read it: without label smoothing, if that was fitted. */
  probability(logProb: number): number {
    return this.confidence ? withoutSmoothing(this.confidence, logProb) : Math.exp(logProb);
  }

  /** The sources of an input as numbers, in the order of `sources`. */
  read(input: Input): Features[] {
    const { sources } = this.model;
    if (!sources.length) {
      if (typeof input !== "string") throw new DragomanError("this model is a language model: give it a text");
      return [];
    }
    const given = typeof input === "string" ? { [sources[0].name]: input } : input;
    const names = sources.map(({ name }) => name);
    if (Object.keys(given).length !== names.length || !names.every((name) => name in given)) throw new DragomanError(`this model reads ${names.join(", ")}: give each of them by its name`);
    return names.map((name) => {
      const value = given[name];
      const reader = this.readers.get(name);
      if (!reader) {
        if (typeof value === "string") throw new DragomanError(`${name} is no text: give the numbers that the model reads`);
        return value;
      }
      if (typeof value !== "string") throw new DragomanError(`${name}: give a text`);
      const text = tidy(value);
      const { characters } = this.limits;
      if (characters && [...text].length > characters) throw new DragomanError(`the input has more than ${characters} characters, which this model reads at most; shorten or split it`);
      const ids = Int32Array.of(...reader.encode(text), EOS);
      return { data: ids, length: ids.length };
    });
  }

  private isEmpty(input: Input): boolean {
    const values = typeof input === "string" ? [input] : Object.values(input);
    return this.model.sources.length > 0 && values.every((value) => typeof value === "string" && !tidy(value));
  }

  private limit(features: readonly Features[]): number {
    const { ratio, extra, most } = this.limits;
    const length = Math.max(0, ...features.map((one) => one.height ?? one.length));
    return Math.min(most, Math.ceil(ratio * length) + extra);
  }

  /** Token ids that an output can have. */
  private known(ids: readonly number[]): readonly number[] {
    const wrong = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < this.target.size));
    if (wrong !== undefined) throw new DragomanError(`prefix: there is no token ${wrong}, the vocabulary ends at ${this.target.size - 1}`);
    const special = ids.find((id) => id < EOS);
    if (special !== undefined) throw new DragomanError(`prefix: ${this.target.piece(special)} stands for no text, so no output can have it; leave it out`);
    return ids;
  }

  /** The labels that begin as asked for, and the tokens that all of them have. A label may begin with a text and not
   * with its tokens. Tokens that begin a label are forced as they are. */
  private beginning(begin: string | readonly number[], only: SearchSettings["only"]): { only: SearchSettings["only"]; prefix: number[] } {
    const hasTokens = (ids: readonly number[], prefix: readonly number[]) => prefix.every((id, index) => [...ids, EOS][index] === id);
    const prefix = typeof begin === "string" ? [...this.target.encode(begin)] : [...this.known(begin)];
    if (typeof begin !== "string" && only.some((ids) => hasTokens(ids, prefix))) return { only, prefix };
    const text = typeof begin === "string" ? begin : this.target.decode(prefix);
    const labels = this.defaults.only.filter((_, index) => this.classes[index].startsWith(text)).map(String);
    const shown = this.classes.join(", ");
    if (!labels.length) throw new DragomanError(`prefix: no label of this model begins with “${text}”; give the beginning of one of its labels (${shown.length > 200 ? `${shown.slice(0, 199)}…` : shown})`);
    const left = only.filter((ids) => labels.includes(String(ids)));
    if (!left.length) throw new DragomanError(`prefix: every label that begins with “${text}” is forbidden; forbid less`);
    return { only: left, prefix: left.every((ids) => hasTokens(ids, prefix)) ? prefix : [] };
  }

  private forbidding(texts: readonly string[]): Partial<SearchSettings> {
    const left = this.defaults.only.filter((_, index) => !texts.some((text) => this.classes[index]?.includes(text)));
    if (this.classes.length && !left.length) throw new DragomanError("forbid: every class of this model contains what is forbidden; forbid less");
    const runs = texts.map(tidy).filter(Boolean).map((text) => [...this.target.encode(text)]);
    return {
      forbidden: [...this.defaults.forbidden, ...runs.filter((run) => run.length === 1).map(([id]) => id)],
      forbiddenRuns: [...this.defaults.forbiddenRuns, ...runs.filter((run) => run.length > 1)],
      only: left,
    };
  }
}

/** The labels of a classifier; none if the file does not name as many as its outputs may be. */
function readClasses(given: unknown, outputs: number): string[] {
  const labels = Array.isArray(given) ? given.filter((label): label is string => typeof label === "string") : [];
  return labels.length === outputs ? labels : [];
}

/** The section "settings": numbers in the order of enum dragoman_setting, then the limits of lengths. */
function readSettings(container: Container): [Dragoman["defaults"], Dragoman["limits"]] {
  const section = container.needed("settings");
  const numbers = new Float64Array(section.slice().buffer, 0, section.length >> 3);
  if (numbers.length !== 20 || !numbers.every(Number.isFinite)) throw new DragomanError("the model file is damaged: its settings cannot be read");
  const [bos, eos, beam, nBest, normalize, alpha, stop, minLength, maxLength, noRepeatNgram, sample, samples, temperature, topK, topP, seed] = numbers;
  if (bos !== BOS || eos !== EOS) throw new DragomanError("the model file has other symbols for start and end than this program");
  const [ratio, extra, most, characters] = numbers.subarray(16);
  const runs = container.sequences("forbidden");
  return [
    {
      beam, nBest, alpha, minLength, maxLength, noRepeatNgram, samples, temperature, topK, topP, seed,
      normalize: WORDS.normalize[normalize] ?? "average",
      stop: WORDS.stop[stop] ?? "complete",
      sample: sample !== 0,
      forbidden: runs.filter((run) => run.length === 1).map(([id]) => id),
      forbiddenRuns: runs.filter((run) => run.length > 1),
      only: container.sequences("only"),
    },
    { ratio, extra, most, characters },
  ];
}
