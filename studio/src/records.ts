// Generated from src/dragoman/studio/records/ by `python -m dragoman.studio.schema`; do not edit.

/** The body of every answer whose status is not 2xx. */
export interface Problem {
  error: string; // What is wrong, where, and what to do about it, in a sentence.
}

/** A source that a run reads. */
export interface Source {
  name: string;
  kind: string; // The modality: "text", "image", "speech" or "features".
  is_file: boolean; // Whether an input is the id of an upload instead of a text.
  encoder: string;
}

/** The settings of a search, or those that a run searches with by default. */
export interface Search {
  beam: number;
  n_best: number;
  normalize: "none" | "average" | "gnmt";
  alpha: number; // Exponent of the length penalty "gnmt".
}

/** The value of a metric with its 95 % confidence interval. */
export interface Score {
  name: string;
  label: string;
  value: number;
  low: number;
  high: number;
  better: "higher" | "lower";
  unit: string;
  signature: string;
}

/** The headline metric of the rows whose source is ``shortest`` to ``longest`` units long. */
export interface LengthScore {
  shortest: number;
  longest: number;
  rows: number;
  value: number;
  low: number;
  high: number;
}

/** The confusion matrix, for targets that are few enough to be classes. */
export interface Confusion {
  labels: string[];
  counts: number[][]; // One row per class of the references, one column per label.
  accuracy: number; // In percent.
}

/** The outputs whose confidence is from ``low`` to below ``high``. */
export interface ReliabilityBin {
  low: number;
  high: number;
  rows: number;
  confidence: number; // Their mean; 0 if there are none.
  right: number; // The share that is right; 0 if there are none.
}

/** What is left wrong if only the surest outputs are kept. All are shares from 0 to 1. */
export interface CoverageRisk {
  coverage: number;
  risk: number;
  threshold: number; // The lowest confidence among those kept.
}

/** How the confidence of outputs compares with how many of them are right. Shares are from 0 to 1. */
export interface Calibration {
  right: string; // What an output has to be to count as right, in words.
  rows: number;
  accuracy: number;
  mean: number; // Of the confidences.
  error: number; // Expected calibration error.
  chance: number; // That of a perfect confidence on as many rows.
  bins: ReliabilityBin[];
  risks: CoverageRisk[];
  curve: CoverageRisk[];
  note: string;
}

/** How well one class is recognised. Shares are in percent. */
export interface ClassScore {
  label: string;
  rows: number; // Rows whose reference it is.
  outputs: number; // Rows for which it was the output.
  precision: number;
  recall: number;
  f1: number;
}

/** The scores of all classes, and the baseline that a classifier has to beat. */
export interface Classes {
  majority: string; // The most frequent class of the references.
  baseline: number; // In percent: the accuracy of answering with it always.
  macro_f1: number; // In percent: the mean over the classes of the references.
  classes: ClassScore[]; // The most frequent first.
}

/** What a run scores on some rows. */
export interface Evaluation {
  side: string; // Name of a part, "test" or "dev", or of a file.
  rows: number;
  references: number;
  headline: string; // Name of the headline metric.
  scores: Score[]; // The headline metric first.
  by_length: LengthScore[];
  length_unit: string;
  confusion: Confusion | null;
  classes: Classes | null; // None if the targets are no classes.
  confidence: Calibration | null;
}

/** The number of attention maps: layers × heads, both 0 if there are none. */
export interface Maps {
  layers: number;
  heads: number;
}

/** A run, as far as its folder describes it. */
export interface Run {
  id: string;
  name: string;
  folder: string;
  preset: string;
  is_language_model: boolean; // Whether the run has no source, so that its inputs are prompts.
  is_classifier: boolean; // Whether the run answers with one of its classes.
  sources: Source[];
  decoder: string;
  target_tokens: string; // Kind of the target's tokenizer.
  vocabulary: number; // Number of target tokens.
  parameters: number | null; // Number of parameters, or None while the model is not loaded.
  metric: string; // Name of the headline metric, or "auto".
  search: Search;
  ready: boolean; // Whether the run has weights and can predict.
  evaluation: Evaluation | null;
  held_out: "test" | "dev" | ""; // Which rows of its own it is measured on: "dev" if it has no test rows, "" if they cannot be read again.
  data: "files" | "memory" | "missing" | ""; // Where its rows are: in files, in files that are missing, or nowhere since they were a table in memory; "" if that is not known.
  train_files: string[]; // Training files that still exist.
  test_files: string[]; // Test files that still exist, then dev files.
}

/** Training started, or was resumed. */
export interface Started {
  update: number; // Updates done before; above 0 where training was resumed.
  last_update: number;
  batches: number; // Batches of an epoch.
}

/** The latest updates of the training. */
export interface Stepped {
  update: number;
  epoch: number;
  loss: number | null; // Per target token, without label smoothing; None if it is not finite.
  learning_rate: number;
  gradient_norm: number | null;
  tokens_per_second: number;
  seconds: number;
  gold_share: number; // Share of decoder inputs that were gold tokens, with scheduled sampling.
}

/** A validation on the dev rows. */
export interface Validated {
  update: number;
  epoch: number;
  loss: number | null; // Per target token; None if it is not finite.
  score: number | null; // Higher is better: metrics for which lower is better are negated.
  metric: string; // Label of the metric.
  best: boolean;
  seconds: number;
  details: Record<string, number | null>; // Values by name of the metric, not negated.
}

/** The end of the training. */
export interface Stopped {
  update: number;
  reason: string;
  finished: boolean;
  seconds: number;
}

/** The events since an offset. A request with ``after=offset`` gives those that came later. */
export interface Training {
  run: string;
  offset: number; // Bytes of metrics.jsonl that were read so far.
  restarted: boolean; // Whether the file is a new one: these are all events, the earlier ones are void.
  started: Started[];
  stepped: Stepped[];
  validated: Validated[];
  stopped: Stopped | null; // The last event, if training has ended.
}

/** A row with a problem. */
export interface Place {
  file: string;
  line: number;
  reason: string;
}

/** All rows with the same problem. */
export interface Finding {
  category: string;
  title: string;
  fate: string; // What was done with the rows.
  count: number;
  places: Place[];
}

/** The distribution of the lengths of texts. */
export interface Lengths {
  minimum: number;
  median: number;
  mean: number;
  p95: number;
  maximum: number;
}

/** Statistics of a side of the usable rows that is text. */
export interface SideStatistics {
  side: string; // Name of a source, or "target".
  characters: Lengths;
  words: Lengths;
  distinct_characters: number;
  distinct_words: number;
  words_once: number; // Words that occur once.
}

/** The audit of the files of one part of the data. */
export interface FileAudit {
  part: string; // Name of the part: "train", "dev" or "test".
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

/** Rows of a held-out part whose source is in the training data too. */
export interface SharedRows {
  part: string;
  rows: number;
  total: number;
  pairs: number; // Rows whose target is the same as well.
}

/** The audit of a run's data. */
export interface Audit {
  run: string;
  train: number; // Number of rows.
  dev: number; // Number of rows.
  test: number; // Number of rows.
  held_out: string; // How dev and test rows were chosen, in a sentence, or "".
  files: FileAudit[];
  overlap: SharedRows[];
}

/** One setting of a recipe. */
export interface Setting {
  path: string; // Such as "decoder.width".
  value: string; // As JSON.
}

/** All settings of a run. */
export interface Settings {
  run: string;
  settings: Setting[];
}

/** Matrices of weights from 0 to 1, one after the other, row by row.

``data`` is base64 of little-endian unsigned integers; a weight is integer / 65535 (uint16) or /
255 (uint8). */
export interface Matrix {
  maps: number; // Number of matrices.
  rows: number;
  columns: number;
  encoding: "uint16" | "uint8";
  data: string;
}

/** A source that is a file, to draw attention over. */
export interface Media {
  url: string; // /api/uploads/…, or a data URL in one-file pages; "" if the file is left out.
  width: number | null; // Of a picture: pixels, as the model sees it.
  height: number | null; // Of a picture: pixels, as the model sees it.
  reach: [number, number] | null; // Of a picture: height and width that the regions cover, as multiples (≥ 1) of its own.
  seconds: number | null; // Of sound: its duration.
  spectrogram: Matrix | null; // Of sound: rows are frames in their order, columns are mel bands from low to high.
}

/** The positions of one source along the axis of attention: ``begin`` to before ``end``. */
export interface Axis {
  name: string;
  kind: string;
  begin: number;
  end: number;
  labels: string[];
  grid: [number, number] | null; // Of a picture: rows and columns of regions; positions go row by row.
  seconds: number | null; // Of sound: the duration of a position.
  media: Media | null;
}

/** A token that could have been chosen. */
export interface Alternative {
  id: number;
  text: string; // The token, with invisible characters made visible.
  log_prob: number; // The model's own.
  probability: number; // To be shown: without label smoothing.
}

/** A token of an output. */
export interface Token {
  id: number;
  text: string; // The token, with invisible characters made visible.
  log_prob: number | null; // The model's own; None if the probability is zero.
  probability: number; // To be shown: without label smoothing.
  entropy: number; // Bits of the distribution that the token was chosen from, without label smoothing.
  rank: number; // Rank in that distribution among the tokens that the search may write, from 1.
  alternatives: Alternative[]; // The likeliest tokens that the search may write, best first; the token itself may be one of them.
  forced: boolean; // Whether the token was given, not chosen.
}

/** One output for an input. */
export interface Output {
  text: string;
  score: number; // What the search ranked by.
  log_prob: number;
  confidence: number | null; // The probability that it is right; None if the run has none fitted.
  finished: boolean; // False if the output was cut off at the length limit.
  tokens: Token[]; // With the end symbol if it was produced.
  attention: Matrix | null; // The mean over layers and heads, one map: rows are tokens, columns the source axis.
}

/** The expected output, and why the search did not find it. */
export interface Reference {
  text: string;
  log_prob: number | null; // None if the probability is zero.
  score: number | null; // What the search would have ranked it by.
  verdict: "found" | "excluded" | "search error" | "model error"; // Excluded: the forced beginning, or what is banned, does not permit it.
  sentence: string; // The verdict in words.
  lost_at: number | null; // The step, from 0, at which it fell out of the beam.
  margin: number | null; // How far its summed log-probability was below the beam at that step.
  tokens: Token[];
}

/** The probability of one class of a classifier. */
export interface ClassProbability {
  label: string;
  probability: number; // To be shown: without label smoothing, divided by the sum over the classes.
}

/** The outputs for an input. */
export interface Prediction {
  run: string;
  input: Record<string, string>; // By source; a prompt is under "source".
  outputs: Output[]; // Best first.
  classes: ClassProbability[]; // All classes of a classifier, the likeliest first.
  axes: Axis[];
  cross: Maps;
  encoder: Maps;
  decoder: Maps;
  search: Search;
  reference: Reference | null;
  right: string; // What an output has to be to count as right, in words; "" if the run has no confidence.
  confidence_note: string; // Why the confidence may be off; "" if it was fitted with these search settings.
  unknown: Record<string, string[]>; // Words with unknown tokens, by source.
  seconds: number; // Duration of the search.
}

/** All attention maps of one output. Rows attend to columns. */
export interface Attention {
  which: "cross" | "encoder" | "decoder";
  rows: string[];
  columns: string[];
  layers: number;
  heads: number;
  average: Matrix; // One map.
  maps: Matrix | null; // layers × heads maps, layer by layer; None if a one-file page had no room for them.
}

/** A candidate of the search. */
export interface Node {
  id: number; // Unique in the tree.
  parent: number | null; // Id of the candidate before it; None at the first step.
  token: number;
  text: string;
  log_prob: number; // Of this token.
  probability: number; // Of this token, to be shown: without label smoothing.
  total: number; // Sum of the log-probabilities of its path.
  score: number; // The total after length normalisation.
  fate: "pruned" | "kept" | "finished" | "cut";
  margin: number | null; // Of a pruned candidate: how far its total was below the lowest that was taken.
  outputs: number[]; // The outputs whose path goes through it, counted from 0.
  reference: boolean; // Whether the path of the reference goes through it.
}

/** All candidates of a search, step by step. */
export interface Tree {
  run: string;
  steps: Node[][]; // The candidates of each step, best first.
  forced: number; // Number of first steps whose token was given.
  search: Search;
  outputs: string[]; // The texts of the outputs.
  reference: Reference | null;
}

/** A source of a row that is a file. Its path is not sent. */
export interface SourceFile {
  id: string; // To be given as an input; "" in one-file pages.
  kind: string; // Kind of the file: "image", "speech" or "features".
  url: string; // /api/uploads/…, or a data URL in one-file pages; "" if the file is left out.
}

/** A row to try a run with. */
export interface Example {
  source: Record<string, string>; // By name; of a file, its name without the folder.
  files: Record<string, SourceFile>; // The sources that are files, by name.
  target: string;
  line: number;
}

/** What a metric is called, and which way is better. */
export interface MetricName {
  name: string;
  label: string;
  better: "higher" | "lower";
  unit: string;
}

/** A part of an output and of its reference. Where ``same`` is false, either may be empty. */
export interface Span {
  same: boolean;
  output: string;
  reference: string;
}

/** A distinct source with the output and all references. */
export interface ErrorRow {
  index: number; // From 0.
  line: number; // In its file.
  source: Record<string, string>; // By name; of a file, its name without the folder.
  files: Record<string, SourceFile>; // The sources that are files, by name.
  references: string[];
  output: string;
  correct: boolean;
  values: Record<string, number>; // Metrics of this row alone, by name.
  log_prob: number; // Of the output.
  reference_log_prob: number | null; // Of the first reference; None if its probability is zero.
  search_error: boolean; // Whether the search would have ranked the reference above the output, and lost it.
  source_length: number; // In tokens or positions.
  output_length: number; // In tokens.
  reference_length: number; // In tokens.
  unknown: string[]; // Words of a text source with unknown tokens.
  rare: string[]; // Tokens of a text source that training saw fewer than ``Errors.rare_below`` times.
  spans: Span[]; // Differences from the nearest reference.
}

/** The rows of a file, and the evaluation of all of them. */
export interface Errors {
  run: string;
  file: string;
  metrics: MetricName[]; // The headline metric first.
  evaluation: Evaluation;
  rare_below: number;
  rows: ErrorRow[];
  left_out: number; // Rows that are evaluated but not listed.
  seconds: number;
}

/** A metric of both runs, and the difference with its 95 % confidence interval. */
export interface ComparedScore {
  metric: MetricName;
  a: Score;
  b: Score;
  difference: number; // b - a.
  low: number;
  high: number;
  p_value: number; // Two-sided, by paired bootstrap.
  smallest: boolean; // Whether no smaller p-value could have come out of the resamples.
  verdict: string; // The result in words.
}

/** A row for which the outputs of the runs differ. */
export interface ComparedRow {
  index: number;
  line: number;
  unit: string; // What the line number counts: "line" or "row".
  source: Record<string, string>; // By name; of a file, its name without the folder.
  files: Record<string, SourceFile>; // The sources that are files, by name.
  references: string[];
  a: string;
  b: string;
  a_value: number;
  b_value: number;
  gain: number; // Of b over a by the row metric; positive is better, whichever way the metric goes.
  a_spans: Span[];
  b_spans: Span[];
}

/** A comparison of two runs, a and b. */
export interface Comparison {
  a: string; // Id of the run.
  b: string; // Id of the run.
  a_name: string;
  b_name: string;
  file: string;
  count: number; // Number of rows.
  scores: ComparedScore[]; // The headline metric first.
  row_metric: MetricName; // The metric that single rows are compared by.
  wins: number; // Rows for which b is better.
  losses: number; // Rows for which a is better.
  ties: number;
  rows: ComparedRow[]; // Rows whose outputs differ, the largest gain or loss first.
  left_out: number; // Rows whose outputs differ but that are not listed.
}

/** An example on the map. */
export interface Point {
  x: number;
  y: number;
  source: Record<string, string>; // By name; of a file, its name without the folder.
  files: Record<string, SourceFile>; // The sources that are files, by name.
  target: string;
  line: number;
  source_length: number | null; // Of the longest source, in tokens or frames; None if all sources are pictures.
}

/** Examples as points of a plane. */
export interface RepresentationMap {
  run: string;
  file: string;
  representation: string; // What the vectors of the sources are, in words.
  layout: "pca" | "umap";
  explained: [number, number] | null; // Share of the variance along x and y; None if the axes have no meaning.
  points: Point[];
}

/** An example that is similar to an input. */
export interface Neighbour {
  index: number | null; // Among the points of the map; None if it is not one of them.
  similarity: number; // Cosine.
  source: Record<string, string>; // By name; of a file, its name without the folder.
  files: Record<string, SourceFile>; // The sources that are files, by name.
  target: string;
  line: number;
}

/** The examples that are most similar to an input. */
export interface Neighbours {
  x: number; // Where the input lies on the map.
  y: number; // Where the input lies on the map.
  examples: number; // Number of examples that were searched.
  neighbours: Neighbour[]; // Nearest first.
}

/** The runs of a studio, and what it can do. */
export interface Overview {
  runs: Run[];
  watched: string[]; // Names of the folders in which new runs are looked for.
  layouts: ("pca" | "umap")[]; // Layouts of the map whose libraries are installed.
}

/** A file that was uploaded. */
export interface Upload {
  id: string; // To be given as an input, or as a file.
  name: string;
  kind: string; // Kind of the file: "image", "speech", "features" or "table".
  size: number; // In bytes.
  url: string;
}

/** A request for the outputs of an input. */
export interface PredictRequest {
  input: string | Record<string, string>; // A text, or several by source; for a source that is a file, the id of an upload.
  beam?: number | null;
  n_best?: number | null;
  normalize?: "none" | "average" | "gnmt" | null;
  max_length?: number | null;
  prefix?: string | null; // A text that every output has to begin with.
  prefix_tokens?: number[] | null; // The same as tokens: those before an alternative that was clicked, and the alternative.
  forbidden?: string[]; // Texts that no output may contain.
  reference?: string | null;
  alternatives?: number; // Number of alternatives at each step.
}

/** A request for the attention maps of an output. */
export interface AttentionRequest {
  input: string | Record<string, string>;
  tokens: number[]; // Ids of the tokens of the output.
  which?: "cross" | "encoder" | "decoder";
}

/** A request for the outputs of the rows of a file. */
export interface FileRequest {
  file?: string | null; // A path on this machine or the id of an upload. None: the run's own test rows, or else its dev rows.
  beam?: number | null;
  limit?: number; // Most rows that are listed; all are evaluated.
}

/** A request for a comparison of two runs. */
export interface CompareRequest {
  a: string; // Id of the run.
  b: string; // Id of the run.
  file?: string | null; // As in FileRequest. None: the test rows of ``a``.
  beam?: number | null;
  limit?: number; // Most rows that are listed.
}

/** A request for the map of a file's sources. */
export interface MapRequest {
  file?: string | null; // As in FileRequest. None: the training rows, if their file still exists.
  n?: number; // Number of points.
  layout?: "pca" | "umap";
}

/** A request for the examples of a map that are most similar to an input. */
export interface NeighboursRequest {
  input: string | Record<string, string>;
  file?: string | null; // The same as for the map.
  n?: number; // The same as for the map.
  layout?: "pca" | "umap"; // The same as for the map.
  count?: number; // Number of neighbours.
}

/** Everything that a page shows of one input. */
export interface Inspected {
  prediction: Prediction;
  attention: Attention[]; // Of the best output.
  tree: Tree | null;
}

/** ``window.__DATA__`` of a one-file page. A field that is None or empty has no view. */
export interface Page {
  kind: "inspect" | "report";
  title: string;
  version: string; // Of Dragoman.
  run: Run;
  inspected: Inspected[];
  training: Training | null;
  audit: Audit | null;
  settings: Settings | null;
  errors: Errors | null;
  map: RepresentationMap | null;
}
