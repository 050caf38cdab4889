/** A model in the library: search for outputs, and score given ones token by token. */

import { DragomanError, type Lender, type Library } from "./library";
import { BOS } from "./tokenizer";

/** One source as the model reads it: token ids, frames (length, width) or a picture (height, breadth, channels). */
export interface Features {
  data: Int32Array | Float32Array;
  length: number; // positions: tokens, frames, or pixels
  height?: number;
  breadth?: number;
}

export interface SearchSettings {
  beam: number;
  nBest: number;
  normalize: "none" | "average" | "gnmt";
  alpha: number;
  stop: "complete" | "certain";
  minLength: number;
  maxLength: number; // 0: the limit of the source alone
  noRepeatNgram: number;
  sample: boolean;
  samples: number;
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
  forbidden: readonly number[];
  forbiddenRuns: readonly (readonly number[])[];
  only: readonly (readonly number[])[];
  prefix: readonly number[]; // what the output has to begin with
  limit: number; // most tokens of the output
}

/** One output of a search. */
export interface Hypothesis {
  tokens: number[]; // with the end symbol, if it was produced
  logProbs: number[];
  entropies: number[]; // in nats
  score: number; // what the search ranked by
  finished: boolean;
  path: number[]; // of each token: its candidate in the trace
  attention: Float32Array | null; // (T, maps, S)
}

/** The candidates of one step, best first. */
export interface Frontier {
  parents: Int32Array; // the candidate kept at the step before, counted among those kept
  tokens: Int32Array;
  logProbs: Float32Array;
  totals: Float64Array;
  fates: Uint8Array; // 0 pruned, 1 kept, 2 finished
}

export interface SearchResult {
  hypotheses: Hypothesis[]; // best first; samples as they were drawn
  states: number; // S
  steps: Frontier[];
}

/** A token that was given, as the model saw it. */
export interface ForcedToken {
  logProb: number;
  probability: number; // as people read it
  entropy: number; // in nats, of the probabilities as people read them
  rank: number; // among the tokens that may be written, from 1
  alternatives: { token: number; logProb: number; probability: number }[]; // the likeliest that may be written, best first
}

export interface ForceOptions {
  alternatives?: number; // how many at most
  attention?: boolean;
  /** Whether a token may be written after others; without it, all may. A token that was given may be where it is. */
  isPermitted?: (before: readonly number[], token: number) => boolean;
}

export interface ForcedPath {
  tokens: ForcedToken[];
  attention: Float32Array | null; // (T, maps, S)
}

// enum dragoman_fact, dragoman_value, dragoman_setting, dragoman_list and dragoman_part of native/dragoman.h
const FACT = { vocabulary: 0, sources: 1, kind: 2, width: 3, maps: 4, fixed: 5, fixedRows: 6, fixedWidth: 7, slots: 8, slotRows: 9, slotWidth: 10, slotGrows: 11, hasStates: 12 };
const VALUE = { fixed: 0, slot: 1, states: 2, begin: 3 };
const SETTINGS = [
  "bos", "eos", "beam", "nBest", "normalize", "alpha", "stop", "minLength", "maxLength", "noRepeatNgram", "sample", "samples",
  "temperature", "topK", "topP", "seed", "batch", "wantAttention", "wantTrace",
] as const;
const LIST = { forbidden: 0, forbiddenRuns: 1, only: 2, limits: 3, prefixes: 4 };
const PART = {
  tokenEnds: 1, scores: 2, finished: 3, tokens: 4, logProbs: 5, entropies: 6, path: 8, states: 9, attention: 10, candidateEnds: 12,
  parents: 13, candidateTokens: 14, candidateLogProbs: 15, totals: 16, fates: 17,
};
const KINDS = ["tokens", "frames", "picture"] as const;

export class Model {
  readonly vocabulary: number;
  readonly maps: number; // attention maps of a step
  readonly sources: { name: string; kind: (typeof KINDS)[number]; width: number }[];
  private readonly file: number;
  private readonly model: number;
  private readonly context: number;

  constructor(private readonly library: Library, file: Uint8Array) {
    this.file = library.put(file); // weights are read from there
    this.model = library.open((message, room) => library.calls.dragoman_open(this.file, file.length, 0, message, room));
    this.context = library.calls.dragoman_new(this.model);
    if (!this.context) throw new DragomanError("there is not enough memory for this model");
    this.vocabulary = this.fact(FACT.vocabulary);
    this.maps = this.fact(FACT.maps);
    this.sources = Array.from({ length: this.fact(FACT.sources) }, (_, index) => ({
      name: library.text(library.calls.dragoman_source_name(this.model, index)),
      kind: KINDS[this.fact(FACT.kind, index)],
      width: this.fact(FACT.width, index),
    }));
  }

  close(): void {
    this.library.calls.dragoman_free(this.context);
    this.library.calls.dragoman_close(this.model);
    this.library.calls.free(this.file);
  }

  /** Search for the outputs of one input; `features` are its sources in the order of `sources`. */
  search(features: readonly Features[], settings: SearchSettings, want: { attention: boolean; trace: boolean }): SearchResult {
    const { calls } = this.library;
    return this.library.borrow((lend) => {
      const made = calls.dragoman_settings_new();
      const place = lend.room(4);
      let result = 0;
      try {
        this.set(made, settings, want, lend);
        this.check(calls.dragoman_search(this.context, 1, this.sources.length ? this.inputs(features, lend) : 0, made, place));
        result = this.library.number(place);
        return this.read(result);
      } finally {
        if (result) calls.dragoman_result_free(result);
        calls.dragoman_settings_free(made);
      }
    });
  }

  private set(made: number, settings: SearchSettings, want: { attention: boolean; trace: boolean }, lend: Lender): void {
    const plain: Record<string, number> = {
      ...Object.fromEntries(Object.entries(settings).filter((entry): entry is [string, number] => typeof entry[1] === "number")),
      normalize: ["none", "average", "gnmt"].indexOf(settings.normalize),
      stop: ["complete", "certain"].indexOf(settings.stop),
      sample: Number(settings.sample),
      wantAttention: Number(want.attention && this.maps > 0),
      wantTrace: Number(want.trace),
    };
    SETTINGS.forEach((name, index) => {
      if (name in plain) this.check(this.library.calls.dragoman_set(made, index, plain[name]), `the setting ${name} is not possible`);
    });
    const flat = (list: number, numbers: readonly number[]) =>
      numbers.length && this.check(this.library.calls.dragoman_set_list(made, list, numbers.length, lend.put(Int32Array.from(numbers)), 0));
    const nested = (list: number, sequences: readonly (readonly number[])[]) => {
      if (!sequences.length) return;
      let end = 0;
      const ends = Int32Array.from(sequences, (sequence) => (end += sequence.length));
      this.check(this.library.calls.dragoman_set_list(made, list, sequences.length, lend.put(Int32Array.from(sequences.flat())), lend.put(ends)));
    };
    flat(LIST.forbidden, settings.forbidden);
    nested(LIST.forbiddenRuns, settings.forbiddenRuns);
    nested(LIST.only, settings.only);
    flat(LIST.limits, [settings.limit]);
    if (settings.prefix.length) nested(LIST.prefixes, [settings.prefix]);
  }

  private read(result: number): SearchResult {
    const { library } = this;
    const find = (part: number): [number, number] =>
      library.borrow(({ room }) => {
        const length = room(4);
        const address = library.calls.dragoman_result_part(result, part, length);
        return [address, library.number(length)];
      });
    const ints = (part: number) => library.ints(...find(part));
    const floats = (part: number) => library.floats(...find(part));
    const doubles = (part: number) => library.doubles(...find(part));
    const bytes = (part: number) => library.bytes(...find(part));
    const ends = ints(PART.tokenEnds);
    const [tokens, logProbs, entropies, path] = [ints(PART.tokens), floats(PART.logProbs), floats(PART.entropies), ints(PART.path)];
    const [scores, finished, attention, states] = [doubles(PART.scores), bytes(PART.finished), floats(PART.attention), ints(PART.states)[0] ?? 0];
    const wide = this.maps * states; // attention of one token
    const hypotheses = Array.from(ends, (end, index): Hypothesis => {
      const begin = index ? ends[index - 1] : 0;
      return {
        tokens: [...tokens.subarray(begin, end)],
        logProbs: [...logProbs.subarray(begin, end)],
        entropies: [...entropies.subarray(begin, end)],
        path: [...path.subarray(begin, end)],
        score: scores[index],
        finished: finished[index] !== 0,
        attention: attention.length ? attention.subarray(begin * wide, end * wide) : null,
      };
    });
    const stepEnds = ints(PART.candidateEnds);
    const all = {
      parents: ints(PART.parents), tokens: ints(PART.candidateTokens), logProbs: floats(PART.candidateLogProbs),
      totals: doubles(PART.totals), fates: bytes(PART.fates),
    };
    const steps = Array.from(stepEnds, (end, index): Frontier => {
      const begin = index ? stepEnds[index - 1] : 0;
      return {
        parents: all.parents.subarray(begin, end), tokens: all.tokens.subarray(begin, end), logProbs: all.logProbs.subarray(begin, end),
        totals: all.totals.subarray(begin, end), fates: all.fates.subarray(begin, end),
      };
    });
    return { hypotheses, states, steps };
  }

  /** Give the model the tokens of some outputs, and return what it thinks of each: a step for each token. */
  force(features: readonly Features[], outputs: readonly (readonly number[])[], want: ForceOptions & Reading): ForcedPath[] {
    return outputs.map((tokens) => this.library.borrow((lend) => this.forceOne(features, tokens, want, lend)));
  }

  private forceOne(features: readonly Features[], tokens: readonly number[], want: ForceOptions & Reading, lend: Lender): ForcedPath {
    const { library, vocabulary, maps } = this;
    const { calls } = library;
    if (this.sources.length) this.check(calls.dragoman_encode(this.context, 1, this.inputs(features, lend)));
    const length = (value: number, index: number): number | null => {
      const place = lend.room(4);
      return this.sources.length && !calls.dragoman_lengths(this.context, value, index, place) ? library.number(place) : null;
    };
    const states = length(VALUE.states, 0) ?? 1;
    const copy = (value: number, index: number, count: number): number => {
      const to = lend.room(4 * count);
      this.check(calls.dragoman_copy(this.context, value, index, to, count));
      return to;
    };
    const fixed = Array.from({ length: this.fact(FACT.fixed) }, (_, index) => {
      const size = (length(VALUE.fixed, index) ?? 1) * this.fact(FACT.fixedWidth, index);
      return { at: copy(VALUE.fixed, index, size), size };
    });
    let cached = 0;
    const slots = Array.from({ length: this.fact(FACT.slots) }, (_, index) => {
      const width = this.fact(FACT.slotWidth, index) < 0 ? states : this.fact(FACT.slotWidth, index);
      const grows = this.fact(FACT.slotGrows, index) === 1;
      const begun = length(VALUE.slot, index);
      const rows = grows ? (begun ?? 0) : Math.max(1, this.fact(FACT.slotRows, index));
      if (grows) cached = rows;
      // A slot that grows has room for the rows of all tokens from the beginning.
      const room = width * (grows ? rows + tokens.length : rows);
      const at = lend.room(4 * room);
      new Float32Array(calls.memory.buffer, at, room).fill(0);
      if (begun !== null) this.check(calls.dragoman_copy(this.context, VALUE.slot, index, at, width * rows));
      return { at, width, grows, size: width * rows, next: lend.room(4 * (grows ? width : width * rows)), nextSize: grows ? width : width * rows };
    });
    const first = length(VALUE.begin, 0) ?? 0;
    const logProbs = lend.room(4 * vocabulary);
    const weights = want.attention && maps ? lend.room(4 * maps * states) : 0;
    const attention = weights ? new Float32Array(tokens.length * maps * states) : null;
    const [lengths, source, token, position, filled] = [lend.put(Int32Array.of(states)), lend.put(Int32Array.of(0)), lend.room(4), lend.room(4), lend.room(4)];
    const list = (numbers: number[]) => lend.put(Int32Array.from(numbers));
    const [fixedAt, fixedSize] = [list(fixed.map((one) => one.at)), list(fixed.map((one) => one.size))];
    const [nextAt, nextSize] = [list(slots.map((one) => one.next)), list(slots.map((one) => one.nextSize))];
    const [slotAt, slotSize, rows] = [lend.room(4 * slots.length), lend.room(4 * slots.length), lend.room(64)];
    const forced: ForcedToken[] = [];
    for (let step = 0; step < tokens.length; step++) {
      const memory = new Int32Array(calls.memory.buffer);
      memory[token >> 2] = step ? tokens[step - 1] : BOS;
      memory[position >> 2] = first + step;
      memory[filled >> 2] = cached;
      slots.forEach((slot, index) => {
        memory[(slotAt >> 2) + index] = slot.at;
        memory[(slotSize >> 2) + index] = slot.grows ? cached * slot.width : slot.size;
      });
      memory.set([1, 1, lengths, fixedAt, fixedSize, source, token, position, slotAt, slotSize, filled, nextAt, nextSize, logProbs, weights, states], rows >> 2);
      this.check(calls.dragoman_step(this.context, rows));
      const floats = new Float32Array(calls.memory.buffer);
      for (const slot of slots) {
        const to = slot.grows ? slot.at / 4 + cached * slot.width : slot.at / 4;
        floats.copyWithin(to, slot.next / 4, slot.next / 4 + slot.nextSize);
      }
      if (slots.some((slot) => slot.grows)) cached++;
      const before = tokens.slice(0, step);
      const mayFollow = (one: number) => one === tokens[step] || (want.isPermitted?.(before, one) ?? true);
      forced.push(describe(floats.subarray(logProbs / 4, logProbs / 4 + vocabulary), tokens[step], want.alternatives ?? 0, want.probability, mayFollow));
      attention?.set(floats.subarray(weights / 4, weights / 4 + maps * states), step * maps * states);
    }
    return { tokens: forced, attention };
  }

  /** struct dragoman_input of each source. */
  private inputs(features: readonly Features[], lend: Lender): number {
    const fields = features.flatMap(({ data, length, height = 0, breadth = 0 }) => [lend.put(data), length, height, breadth]);
    return lend.put(Int32Array.from(fields));
  }

  private fact(fact: number, index = 0): number {
    return this.library.calls.dragoman_describe(this.model, fact, index);
  }

  private check(reason: number, sentence = ""): void {
    if (reason) throw new DragomanError(sentence || this.library.text(this.library.calls.dragoman_message(this.context)) || `the library refused a call (${reason})`);
  }
}

/** How log-probabilities are read. */
interface Reading {
  probability: (logProb: number) => number;
}

/** What a distribution says of one of its tokens. */
function describe(logProbs: Float32Array, token: number, count: number, probability: Reading["probability"], mayFollow: (token: number) => boolean): ForcedToken {
  const own = logProbs[token];
  let [total, parts, rank] = [0, 0, 1];
  const best: ForcedToken["alternatives"] = [];
  for (let index = 0; index < logProbs.length; index++) {
    const value = logProbs[index];
    if (value === -Infinity) continue;
    const shown = probability(value);
    total += shown;
    if (shown > 0) parts -= shown * Math.log(shown);
    const isOffered = count > 0 && (best.length < count || value > best[best.length - 1].logProb);
    if (!(value > own || isOffered) || !mayFollow(index)) continue;
    if (value > own) rank++;
    if (isOffered) {
      let at = best.length;
      while (at > 0 && best[at - 1].logProb < value) at--;
      best.splice(at, 0, { token: index, logProb: value, probability: shown });
      if (best.length > count) best.pop();
    }
  }
  // Without smoothing, the sum need not be 1. What is shown is never more than 100 % together.
  const most = Math.max(1, total);
  return {
    logProb: own,
    probability: probability(own) / most,
    entropy: Math.max(0, parts / total + Math.log(total)),
    rank,
    alternatives: best.map((one) => ({ ...one, probability: one.probability / most })),
  };
}
