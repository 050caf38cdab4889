// Made from src/dragoman/studio/records/ by `python -m dragoman.studio.schema`; do not edit.

/** The body of every answer that is not 2xx. */
export interface Problem {
  error: string; // a sentence: what is wrong, where, what to do
}

export interface Source {
  name: string;
  kind: string; // "text", "image", "speech", "features"
  is_file: boolean; // an input is the id of an upload, not a text
  encoder: string;
}

/** How was searched, or how the run searches if nothing is said. */
export interface Search {
  beam: number;
  n_best: number;
  normalize: "none" | "average" | "gnmt";
  alpha: number; // of gnmt
}

export interface Score {
  name: string;
  label: string;
  value: number;
  low: number; // 95 % interval
  high: number;
  better: "higher" | "lower";
  unit: string;
  signature: string;
}

/** The headline metric of the rows whose source is so long. */
export interface LengthScore {
  shortest: number;
  longest: number;
  rows: number;
  value: number;
  low: number;
  high: number;
}

/** Where targets are few, and so classes: how often each was taken for which. */
export interface Confusion {
  labels: string[];
  counts: number[][]; // a row a class of the references, a column a label
  accuracy: number; // %
}

export interface Evaluation {
  side: string; // "test", "dev", or the name of a file
  rows: number;
  references: number;
  headline: string; // name of the metric
  scores: Score[]; // the headline first
  by_length: LengthScore[];
  length_unit: string;
  confusion: Confusion | null;
}

/** How many attention maps there are: layers × heads; 0 × 0 where there are none. */
export interface Maps {
  layers: number;
  heads: number;
}

export interface Run {
  id: string;
  name: string;
  folder: string;
  preset: string;
  is_language_model: boolean; // has no source: its inputs are prompts
  sources: Source[];
  decoder: string;
  target_tokens: string; // kind of tokeniser
  vocabulary: number; // target tokens
  parameters: number | null; // None while the model is not loaded
  metric: string; // name of the headline metric, or "auto"
  search: Search;
  ready: boolean; // has weights: can be asked for predictions
  evaluation: Evaluation | null;
  train_files: string[]; // that are still there
  test_files: string[]; // that are still there
}

export interface Started {
  update: number; // > 0: went on where it had stopped
  last_update: number;
  batches: number; // in an epoch
}

export interface Stepped {
  update: number;
  epoch: number;
  loss: number | null; // per target token, smoothing included; None: not a number
  learning_rate: number;
  gradient_norm: number | null;
  tokens_per_second: number;
  seconds: number;
  gold_share: number;
}

export interface Validated {
  update: number;
  epoch: number;
  loss: number | null; // per target token
  score: number | null; // higher is better: negated where lower is better
  metric: string; // label of the metric
  best: boolean;
  seconds: number;
  details: Record<string, number | null>; // by name of the metric, as it is
}

export interface Stopped {
  update: number;
  reason: string;
  finished: boolean;
  seconds: number;
}

/** Events since an offset. Ask again with ``after=offset`` for what came since. */
export interface Training {
  run: string;
  offset: number; // bytes of metrics.jsonl read so far
  restarted: boolean; // the file is not the one read before: forget what was read, this is all of it
  started: Started[];
  stepped: Stepped[];
  validated: Validated[];
  stopped: Stopped | null; // the last event, if training has ended
}

export interface Place {
  file: string;
  line: number;
  reason: string;
}

export interface Finding {
  category: string;
  title: string;
  fate: string; // what became of the rows
  count: number;
  places: Place[];
}

export interface Lengths {
  minimum: number;
  median: number;
  mean: number;
  p95: number;
  maximum: number;
}

/** One side of the usable rows, where it is text. */
export interface SideStatistics {
  side: string; // name of a source, or "target"
  characters: Lengths;
  words: Lengths;
  distinct_characters: number;
  distinct_words: number;
  words_once: number;
}

export interface FileAudit {
  part: string; // "train", "dev", "test"
  files: string[];
  format: string;
  summary: string;
  rows: number;
  used: number;
  dropped: number;
  distinct_sources: number;
  sources_with_several_targets: number;
  notes: string[];
  findings: Finding[];
  statistics: SideStatistics[];
}

/** Rows of a held-out part whose source stands in the training data too. */
export interface SharedRows {
  part: string;
  rows: number;
  total: number;
  pairs: number; // with the same target
}

export interface Audit {
  run: string;
  train: number; // rows
  dev: number;
  test: number;
  held_out: string; // a sentence, or ""
  files: FileAudit[];
  overlap: SharedRows[];
}

export interface Setting {
  path: string; // "decoder.width"
  value: string; // as JSON
}

export interface Settings {
  run: string;
  settings: Setting[];
}

/** ``maps`` matrices of rows × columns behind each other, row by row: weights from 0 to 1.

``data`` is base64 of little-endian unsigned integers; a weight is integer / 65535 (uint16) or / 255 (uint8). */
export interface Matrix {
  maps: number;
  rows: number;
  columns: number;
  encoding: "uint16" | "uint8";
  data: string;
}

/** What a source that is a file looks or sounds like. */
export interface Media {
  url: string; // /api/uploads/…, or a data: address in one-file pages; "" where it is left out
  width: number | null; // of a picture, in pixels as the model sees it
  height: number | null;
  reach: [number, number] | null; // of a picture: the regions reach over so many of its heights and widths (≥ 1)
  seconds: number | null; // of sound
  spectrogram: Matrix | null;
}

/** Which positions of the source axis belong to which source: from ``begin`` to before ``end``. */
export interface Axis {
  name: string;
  kind: string;
  begin: number;
  end: number;
  labels: string[];
  grid: [number, number] | null; // of a picture: rows and columns of regions; positions go row by row
  seconds: number | null; // of sound: how long a position lasts
  media: Media | null;
}

export interface Alternative {
  id: number;
  text: string; // the token, made visible
  log_prob: number;
}

export interface Token {
  id: number;
  text: string; // the token, made visible
  log_prob: number | null; // None: probability zero
  entropy: number; // bits, of the distribution it was chosen from
  rank: number; // in that distribution, from 1
  alternatives: Alternative[]; // the likeliest, best first; the token itself is among them if it is likely enough
  forced: boolean; // given, not chosen
}

export interface Output {
  text: string;
  score: number; // what the search ranked by
  log_prob: number;
  finished: boolean; // False: cut off at the length limit
  tokens: Token[]; // the end symbol included if it was produced
  attention: Matrix | null; // one map: the mean over layers and heads; rows are tokens, columns the source axis
}

/** The output that was wanted, and why it was not what was found. */
export interface Reference {
  text: string;
  log_prob: number | null; // None: probability zero
  score: number | null; // as the search would have ranked it
  verdict: "found" | "search error" | "model error";
  sentence: string; // the verdict in words
  lost_at: number | null; // the step (from 0) at which it fell out of the beam
  margin: number | null; // by how much of summed log-probability, there
  tokens: Token[];
}

export interface Prediction {
  run: string;
  input: Record<string, string>; // by name of source; a prompt stands under "source"
  outputs: Output[]; // best first
  axes: Axis[];
  cross: Maps;
  encoder: Maps;
  decoder: Maps;
  search: Search;
  reference: Reference | null;
  unknown: Record<string, string[]>; // by name of source: its tokens that the run does not know
  seconds: number; // of the search
}

/** All maps of one hypothesis. Rows look at columns. */
export interface Attention {
  which: "cross" | "encoder" | "decoder";
  rows: string[];
  columns: string[];
  layers: number;
  heads: number;
  average: Matrix; // one map
  maps: Matrix | null; // layers × heads maps, layer by layer; None where they were too many for a one-file page
}

/** A candidate of the search. */
export interface Node {
  id: number; // in the whole tree
  parent: number | null; // id; None at the first step
  token: number;
  text: string;
  log_prob: number; // of this token
  total: number; // summed over the path
  score: number; // the total after length normalisation
  fate: "pruned" | "kept" | "finished" | "cut";
  margin: number | null; // of what was pruned: how far its total was below the worst that was taken
  outputs: number[]; // which outputs pass here, counted from 0
  reference: boolean; // does the reference pass here?
}

export interface Tree {
  run: string;
  steps: Node[][]; // best first
  forced: number; // so many first steps had no choice
  search: Search;
  outputs: string[]; // texts
  reference: Reference | null;
}

export interface MetricName {
  name: string;
  label: string;
  better: "higher" | "lower";
  unit: string;
}

/** A stretch of output and reference; where ``same`` is False either may be empty. */
export interface Span {
  same: boolean;
  output: string;
  reference: string;
}

export interface ErrorRow {
  index: number; // from 0
  line: number; // in its file
  source: Record<string, string>; // by name
  references: string[];
  output: string;
  correct: boolean;
  values: Record<string, number>; // by metric, of this row alone
  log_prob: number; // of the output
  reference_log_prob: number | null; // of the first reference
  source_length: number; // in tokens or positions
  output_length: number; // in tokens
  reference_length: number;
  unknown: string[]; // tokens of a text source that the run does not know
  rare: string[]; // … that it has seen fewer than ``Errors.rare_below`` times
  spans: Span[]; // against the closest reference
}

export interface Errors {
  run: string;
  file: string;
  metrics: MetricName[]; // the headline first
  evaluation: Evaluation;
  rare_below: number;
  rows: ErrorRow[];
  left_out: number; // rows that the evaluation counts but that are not listed
  seconds: number;
}

export interface ComparedScore {
  metric: MetricName;
  a: Score;
  b: Score;
  difference: number; // b - a
  low: number;
  high: number;
  p_value: number; // two-sided, by paired bootstrap
  verdict: string; // in words
}

export interface ComparedRow {
  index: number;
  line: number;
  source: Record<string, string>;
  references: string[];
  a: string;
  b: string;
  a_value: number;
  b_value: number;
  gain: number; // of b over a, by the row's metric; positive is better whichever way the metric goes
  a_spans: Span[];
  b_spans: Span[];
}

export interface Comparison {
  a: string; // run ids
  b: string;
  a_name: string;
  b_name: string;
  file: string;
  count: number; // rows compared
  scores: ComparedScore[]; // the headline first
  row_metric: MetricName; // what rows are compared by
  wins: number; // rows where b is better
  losses: number;
  ties: number;
  rows: ComparedRow[]; // those that differ, most first
  left_out: number;
}

export interface Point {
  x: number;
  y: number;
  source: Record<string, string>;
  target: string;
  line: number;
}

export interface RepresentationMap {
  run: string;
  file: string;
  representation: string; // what of the source is drawn, in words
  layout: "pca" | "umap";
  explained: [number, number] | null; // share of the variance along x and y; None where the axes mean nothing
  points: Point[];
}

export interface Neighbour {
  index: number | null; // among the points of the map, if it is drawn
  similarity: number; // cosine
  source: Record<string, string>;
  target: string;
  line: number;
}

export interface Neighbours {
  x: number; // where the input lies on the map
  y: number;
  examples: number; // how many were searched
  neighbours: Neighbour[]; // nearest first
}

export interface Upload {
  id: string; // give it as an input, or as a file
  name: string;
  kind: string; // "image", "speech", "features", or "table"
  size: number; // bytes
  url: string;
}

/** ``input`` is a text, or one by name of source; of a source that is a file, the id of an upload. */
export interface PredictRequest {
  input: string | Record<string, string>;
  beam?: number | null;
  n_best?: number | null;
  normalize?: "none" | "average" | "gnmt" | null;
  max_length?: number | null;
  prefix?: string | null; // text that every output must begin with …
  prefix_tokens?: number[] | null; // … or tokens: those before a clicked alternative, and the alternative
  forbidden?: string[]; // words never to be written
  reference?: string | null;
  alternatives?: number; // a step
}

export interface AttentionRequest {
  input: string | Record<string, string>;
  tokens: number[]; // of the hypothesis: ids of Output.tokens
  which?: "cross" | "encoder" | "decoder";
}

/** ``file`` is a path on this machine, the id of an upload, or None: the run's own test rows (else its dev rows). */
export interface FileRequest {
  file?: string | null;
  beam?: number | null;
  limit?: number; // rows listed; all are measured
}

export interface CompareRequest {
  a: string; // run ids
  b: string;
  file?: string | null; // None: the test rows of ``a``
  beam?: number | null;
  limit?: number; // rows listed
}

export interface MapRequest {
  file?: string | null; // None: the training file, if it is still there
  n?: number; // points drawn
  layout?: "pca" | "umap";
}

export interface NeighboursRequest {
  input: string | Record<string, string>;
  file?: string | null;
  n?: number; // as the map was asked for
  layout?: "pca" | "umap"; // likewise
  count?: number;
}

export interface Inspected {
  prediction: Prediction;
  attention: Attention[]; // of the best output
  tree: Tree | null;
}

/** ``window.__DATA__`` of a one-file page. What is None or empty has no view. */
export interface Page {
  kind: "inspect" | "report";
  title: string;
  version: string; // of Dragoman
  run: Run;
  inspected: Inspected[];
  training: Training | null;
  audit: Audit | null;
  settings: Settings | null;
  errors: Errors | null;
  map: RepresentationMap | null;
}
