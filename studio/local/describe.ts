/** What was found, as the records that the studio's views show. The same as src/dragoman/studio/views. */

import { EOS, UNK, type Dragoman, type Features, type ForcedPath, type Frontier, type Input, type Prediction as Found } from "../runtime/dragoman";
import { tidy } from "../runtime/dragoman";
import type { Alternative, Attention, AttentionRequest, Axis, ClassProbability, Matrix, Media, Node, PredictRequest, Prediction, Reference, Search, Token, Tree } from "../src/records";
import type { Given, PageData, SourceReading } from "./asking";

export interface Asked {
  model: Dragoman;
  data: PageData;
  given: Given;
  features: Record<string, Features>;
  input: Input;
}

export interface Inspected extends Asked {
  found: Found;
  request: PredictRequest;
  seconds: number;
}

const [PRUNED, KEPT, FINISHED] = [0, 1, 2];
const ALTERNATIVES = 8;
const SENTENCE_ENDS = /[.!?…。！？؟۔।]$/u;
const [MAX_FRAMES, MAX_FEATURES] = [3000, 128]; // of a spectrogram; longer and wider ones are thinned out
const TOLERANCE = 1e-5; // two orders of summation may differ by as much in a normalised score

export function describePrediction(inspected: Inspected): Prediction {
  const { model, data, found, request, input } = inspected;
  const reference = referenceTokens(inspected);
  const sequences = found.outputs.map((output) => output.ids);
  const paths = model.force(input, reference.length ? [...sequences, reference] : sequences, {
    alternatives: ALTERNATIVES,
    attention: true,
    isPermitted: (before, token) => isPermitted(found, before, token),
  });
  const axes = describeAxes(inspected);
  const states = axes.at(-1)?.end ?? 0;
  return {
    run: data.name,
    input: Object.fromEntries(Object.entries(inspected.given).map(([name, value]) => [name, typeof value === "string" ? value : value.url])),
    outputs: found.outputs.map((output, index) => ({
      text: output.text,
      score: output.score,
      log_prob: output.logProb,
      confidence: output.confidence,
      finished: output.finished,
      tokens: describeTokens(inspected, output.ids, paths[index], found.prefixLength),
      attention: meanAttention(paths[index].attention, model.maps, states, output.ids.length),
    })),
    classes: classProbabilities(inspected),
    axes,
    cross: data.cross,
    encoder: { layers: 0, heads: 0 },
    decoder: { layers: 0, heads: 0 },
    search: searchOf(found),
    reference: reference.length ? describeReference(inspected, request.reference ?? "", reference, paths[paths.length - 1]) : null,
    right: rightness(model),
    confidence_note: confidenceNote(inspected),
    unknown: unknownWords(inspected),
    seconds: inspected.seconds,
  };
}

const searchOf = (found: Found): Search => ({ beam: found.settings.beam, n_best: found.settings.nBest, normalize: found.settings.normalize, alpha: found.settings.alpha });

// ---- confidence

function rightness({ confidence }: Dragoman): string {
  if (!confidence) return "";
  if (confidence.threshold === null) return "equals a reference";
  const order = ["cer", "wer", "ser"].includes(confidence.metric) ? "at most" : "at least";
  return `has a sentence ${confidence.metric} of ${order} ${confidence.threshold.toFixed(1)}`;
}

/** Why the confidence may be off, as src/dragoman/runtime/confidence.py says it; "" if it was fitted for this search. */
function confidenceNote({ model, found }: Inspected): string {
  if (!model.confidence) return "";
  const { beam, normalize, alpha, forbidden, forbiddenRuns, only } = found.settings;
  const ranking = beam > 1 ? { normalize, ...(normalize === "gnmt" && { alpha }) } : {};
  const here = { beam, ...ranking, forbidden: forbidden.length, forbidden_runs: forbiddenRuns.length, only: only.length };
  const fitted = model.confidence.search;
  const differences = Object.entries(here)
    .filter(([name, value]) => name in fitted && fitted[name] !== value)
    .map(([name, value]) => `${name} = ${value} in place of ${fitted[name]}`);
  if (found.prefixLength) differences.push("outputs that begin with a given text");
  return differences.length ? `the confidence was fitted for another search (here: ${differences.join("; ")}), so it may be too high or too low` : "";
}

/** The probabilities of the classes as outputs, without label smoothing, divided by their sum; the likeliest first. */
function classProbabilities({ model, input }: Inspected): ClassProbability[] {
  const classes = model.defaults.only;
  if (!classes.length) return [];
  const totals = model.force(input, classes.map((ids) => [...ids, EOS])).map((path) => sum(path.tokens.map((token) => Math.log(model.probability(token.logProb)))));
  const most = Math.max(...totals);
  const shares = totals.map((total) => Math.exp(total - most));
  return classes
    .map((ids, index) => ({ label: model.classes[index] ?? model.target.decode(ids), probability: shares[index] / sum(shares) }))
    .sort((one, other) => other.probability - one.probability);
}

// ---- tokens

function describeTokens(inspected: Inspected, ids: readonly number[], path: ForcedPath, forced: number): Token[] {
  const { model } = inspected;
  return ids.map((id, step) => {
    const { logProb, probability, entropy, rank, alternatives } = path.tokens[step];
    return {
      id,
      text: model.target.piece(id),
      log_prob: logProb > -Infinity ? logProb : null,
      probability,
      entropy: entropy / Math.LN2,
      rank,
      alternatives: alternatives.map(({ token, logProb, probability }): Alternative => ({ id: token, text: model.target.piece(token), log_prob: logProb, probability })),
      forced: step < forced,
    };
  });
}

/** Whether no rule of the search forbids a token after a beginning (src/dragoman/search/rules.py). */
function isPermitted({ settings }: Found, before: readonly number[], token: number): boolean {
  const ends = (run: readonly number[]) => run[run.length - 1] === token && run.slice(0, -1).every((id, index) => before[before.length - run.length + 1 + index] === id);
  if (token === EOS && before.length < settings.minLength) return false;
  if (settings.forbidden.includes(token) || settings.forbiddenRuns.some((run) => before.length >= run.length - 1 && ends(run))) return false;
  const size = settings.noRepeatNgram;
  if (size) for (let at = 0; at + size <= before.length; at++) if (ends(before.slice(at, at + size))) return false;
  const begun = settings.only.map((only) => [...only, EOS]).filter((only) => before.every((id, index) => only[index] === id));
  return !begun.length || begun.some((only) => only[before.length] === token);
}

function unknownWords({ model, given }: Asked): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const [name, reader] of model.readers) {
    const text = tidy(String(given[name] ?? ""));
    const isUnknown = (part: string) => reader.encode(part).includes(UNK);
    if (!isUnknown(text)) continue;
    const units = text.includes(" ") ? text.split(/\s+/) : reader.encode(text).length === 1 ? [text] : [...text];
    const words = [...new Set(units.filter(isUnknown))];
    if (words.length) found[name] = words;
  }
  return found;
}

// ---- attention

function describeAxes(asked: Asked): Axis[] {
  let begin = 0;
  return asked.data.sources.map((source) => {
    const { name, kind } = source;
    const features = asked.features[name];
    const [labels, grid, seconds] = labelsOf(asked, source);
    const axis: Axis = { name, kind, begin, end: begin + labels.length, labels, grid, seconds, media: features ? mediaOf(asked, source, grid, seconds) : null };
    begin = axis.end;
    return axis;
  });
}

function labelsOf(asked: Asked, source: { name: string } & SourceReading): [string[], [number, number] | null, number | null] {
  const { name, stride } = source;
  const features = asked.features[name];
  if (source.kind === "text") {
    const reader = asked.model.readers.get(name)!;
    const ids = [...reader.encode(tidy(String(asked.given[name] ?? ""))), EOS];
    let pieces = ids.map((id) => reader.piece(id));
    if (source.reading.states === "sentences") {
      const sentences: string[][] = [[]];
      pieces.forEach((piece, index) => {
        sentences[sentences.length - 1].push(piece);
        if (index < pieces.length - 1 && SENTENCE_ENDS.test(piece)) sentences.push([]);
      });
      pieces = sentences.map((sentence) => sentence.join(" "));
    }
    return [pieces.flatMap((_, index) => (index % stride ? [] : [pieces.slice(index, index + stride).join(" ")])), null, null];
  }
  if (source.kind === "image") {
    const [rows, columns] = [Math.ceil(features.height! / stride), Math.ceil(features.breadth! / stride)];
    return [Array.from({ length: rows * columns }, (_, index) => `row ${Math.floor(index / columns) + 1}, column ${(index % columns) + 1}`), [rows, columns], null];
  }
  const count = Math.ceil(features.length / stride);
  if (source.kind === "features") return [Array.from({ length: count }, (_, index) => String(index * stride * source.reading.stride)), null, null];
  const seconds = (source.reading.hop / source.reading.rate) * stride;
  return [Array.from({ length: count }, (_, index) => `${(index * seconds).toFixed(2)} s`), null, seconds];
}

function mediaOf(asked: Asked, { name, stride }: { name: string } & SourceReading, grid: [number, number] | null, seconds: number | null): Media {
  const features = asked.features[name];
  const value = asked.given[name];
  const url = typeof value === "string" ? "" : value.url;
  if (grid) {
    const [height, width] = [features.height!, features.breadth!];
    return { url, width, height, reach: [(grid[0] * stride) / height, (grid[1] * stride) / width], seconds: null, spectrogram: null };
  }
  return { url, width: null, height: null, reach: null, seconds: seconds === null ? null : (features.length * seconds) / stride, spectrogram: spectrogram(features) };
}

/** Frames scaled so that 0 and 1 are their 1st and 99th percentile. */
function spectrogram({ data, length }: Features): Matrix {
  const width = data.length / length;
  const [every, each] = [Math.ceil(length / MAX_FRAMES), Math.ceil(width / MAX_FEATURES)];
  const [rows, columns] = [Math.ceil(length / every), Math.ceil(width / each)];
  const thinned = Float32Array.from({ length: rows * columns }, (_, index) => data[Math.floor(index / columns) * every * width + (index % columns) * each]);
  const sorted = thinned.slice().sort();
  const [low, high] = [0.01, 0.99].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  return pack(thinned.map((value) => (value - low) / Math.max(high - low, 1e-9)), 1, rows, columns);
}

/** (maps, rows, columns) of weights from 0 to 1. */
function pack(weights: Float32Array, maps: number, rows: number, columns: number): Matrix {
  const bytes = new Uint8Array(2 * weights.length);
  weights.forEach((weight, index) => {
    const value = Math.min(65535, Math.max(0, Math.floor(weight * 65535 + 0.5)));
    bytes[2 * index] = value & 255;
    bytes[2 * index + 1] = value >> 8;
  });
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return { maps, rows, columns, encoding: "uint16", data: btoa(text) };
}

/** (T, maps, S) as (maps, T, S). */
function byMap(attention: Float32Array, maps: number, states: number, length: number): Float32Array {
  const turned = new Float32Array(attention.length);
  for (let token = 0; token < length; token++)
    for (let map = 0; map < maps; map++) turned.set(attention.subarray((token * maps + map) * states, (token * maps + map + 1) * states), (map * length + token) * states);
  return turned;
}

function meanAttention(attention: Float32Array | null, maps: number, states: number, length: number): Matrix | null {
  if (!attention || !states || !maps) return null;
  const mean = new Float32Array(length * states);
  for (let token = 0; token < length; token++)
    for (let map = 0; map < maps; map++) for (let at = 0; at < states; at++) mean[token * states + at] += attention[(token * maps + map) * states + at] / maps;
  return pack(mean, 1, length, states);
}

export function describeAttention(asked: Asked, request: AttentionRequest): Attention {
  const { model, data, input } = asked;
  const columns = describeAxes(asked).flatMap((axis) => axis.labels);
  const [path] = model.force(input, [request.tokens], { attention: true });
  const average = meanAttention(path.attention, model.maps, columns.length, request.tokens.length);
  if (!path.attention || !average) throw new Error("This model has no attention to the source. The other views work without it.");
  return {
    which: "cross",
    rows: request.tokens.map((id) => model.target.piece(id)),
    columns,
    ...data.cross,
    average,
    maps: pack(byMap(path.attention, model.maps, columns.length, request.tokens.length), model.maps, request.tokens.length, columns.length),
  };
}

// ---- the search, and the reference

export function describeTree(inspected: Inspected): Tree {
  const { model, data, found, request } = inspected;
  const reference = referenceTokens(inspected);
  const path = reference.length ? followPath(found, reference) : [];
  let parents: number[] = [];
  let next = 0;
  const steps = found.trace.map((frontier, step) => {
    const lowest = lowestTaken(frontier);
    const isLast = step === found.trace.length - 1 && found.trace.length >= found.limit;
    const shown = Array.from(frontier.logProbs, (logProb) => model.probability(logProb));
    const together = (parent: number) => sum(shown.filter((_, index) => frontier.parents[index] === parent));
    const nodes = Array.from(frontier.tokens, (token, index): Node => ({
      id: next + index,
      parent: parents.length ? parents[frontier.parents[index]] : null,
      token,
      text: model.target.piece(token),
      log_prob: frontier.logProbs[index],
      probability: shown[index] / Math.max(1, together(frontier.parents[index])), // never more than 100 % together
      total: frontier.totals[index],
      score: frontier.totals[index] / penalty(found, step + 1),
      fate: frontier.fates[index] === FINISHED ? "finished" : frontier.fates[index] === KEPT ? (isLast ? "cut" : "kept") : "pruned",
      margin: frontier.fates[index] === PRUNED ? lowest - frontier.totals[index] : null,
      outputs: found.outputs.flatMap((output, number) => (output.path[step] === index ? [number] : [])),
      reference: path[step] === index,
    }));
    parents = keptOf(frontier).map((index) => next + index);
    next += nodes.length;
    return nodes;
  });
  const [forced] = reference.length ? model.force(inspected.input, [reference], { isPermitted: (before, token) => isPermitted(found, before, token) }) : [];
  return {
    run: data.name,
    steps,
    forced: found.prefixLength,
    search: searchOf(found),
    outputs: found.outputs.map((output) => output.text),
    reference: forced ? describeReference(inspected, request.reference ?? "", reference, forced) : null,
  };
}

const keptOf = (frontier: Frontier): number[] => [...frontier.fates.keys()].filter((index) => frontier.fates[index] === KEPT);

function lowestTaken(frontier: Frontier): number {
  const taken = frontier.totals.filter((_, index) => frontier.fates[index] !== PRUNED);
  return taken.length ? Math.min(...taken) : Math.max(...frontier.totals);
}

/** What the sum of an output of this length is divided by. */
function penalty({ settings }: Found, length: number): number {
  if (settings.normalize === "average") return Math.max(length, 1);
  return settings.normalize === "gnmt" ? ((5 + length) / 6) ** settings.alpha : 1;
}

function referenceTokens({ model, request }: Inspected): number[] {
  const text = tidy(request.reference ?? "");
  return text ? [...model.target.encode(text), EOS] : [];
}

/** The candidate of each token, as far as the search followed them; the last may have been pruned. */
function followPath(found: Found, tokens: readonly number[]): number[] {
  const path: number[] = [];
  let row = 0;
  for (const [step, frontier] of found.trace.entries()) {
    const candidate = frontier.tokens.findIndex((token, index) => token === tokens[step] && frontier.parents[index] === row);
    if (step >= tokens.length || candidate < 0) break;
    path.push(candidate);
    if (frontier.fates[candidate] !== KEPT) break;
    row = keptOf(frontier).indexOf(candidate);
  }
  return path;
}

function describeReference(inspected: Inspected, text: string, tokens: readonly number[], path: ForcedPath): Reference {
  const { model, found } = inspected;
  const logProbs = path.tokens.map((token) => token.logProb);
  const total = sum(logProbs);
  const score = total / penalty(found, tokens.length);
  const followed = followPath(found, tokens);
  const survived = followed.length - Number(followed.length > 0 && found.trace[followed.length - 1].fates[followed[followed.length - 1]] === PRUNED);
  const lostAt = survived === tokens.length || survived >= found.trace.length ? null : survived;
  const gap = lostAt === null ? NaN : lowestTaken(found.trace[lostAt]) - sum(logProbs.slice(0, lostAt + 1));
  const isSame = found.ids.join() === tokens.join() || found.text === model.target.decode(tokens);
  const prefix = found.ids.slice(0, found.prefixLength);
  const isForced = prefix.every((id, index) => tokens[index] === id); // the reference begins as the output has to
  const isPossible = isForced && tokens.every((token, index) => token === UNK || isPermitted(found, tokens.slice(0, index), token));
  const verdict = isSame ? "found" : !isPossible ? "excluded" : score > found.score + TOLERANCE ? "search error" : "model error";
  const wasFound = lostAt === null && followed.length === tokens.length;
  const [scored, best] = [Number.isFinite(score) ? signed(score) : "probability zero", signed(found.score)];
  let sentence = {
    found: prefix.length && model.sources.length ? "With the forced beginning, the best output is the reference." : "The best output is the reference.",
    "search error": `The model scores the reference (${scored}) higher than the output (${best})${wasFound ? ", yet it ranks lower here." : ", but the search dropped it. A wider beam may find it."}`,
    "model error": `The model scores the output (${best}) higher than the reference (${scored}). No search will help.`,
    excluded: isForced ? "No output can be the reference, because it has something that the search may not write." : "No output can be the reference, because it does not begin as the forced beginning does.",
  }[verdict];
  if (verdict !== "found" && verdict !== "excluded" && tokens.includes(UNK)) sentence += " The reference has tokens that are not in the vocabulary.";
  return {
    text,
    log_prob: Number.isFinite(total) ? total : null,
    score: Number.isFinite(score) ? score : null,
    verdict,
    sentence,
    lost_at: lostAt,
    margin: Number.isFinite(gap) && gap >= 0 ? gap : null,
    tokens: describeTokens(inspected, tokens, path, 0),
  };
}

/** A score with the minus sign that the page writes everywhere. */
const signed = (value: number): string => value.toFixed(3).replace("-", "−");
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
