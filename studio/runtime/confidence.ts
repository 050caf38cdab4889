/** How probable it is that an output is right. The formula is that of src/dragoman/runtime/confidence.py. */

interface Logistic {
  bias: number;
  weights: Readonly<Record<string, number>>;
}

/** The numbers that a run has fitted, as the section "about" has them. */
export interface Confidence {
  metric: string;
  threshold: number | null;
  smoothing: number;
  vocabulary: number;
  best: Logistic;
  others: Logistic | null;
  search: Readonly<Record<string, unknown>>;
}

interface Rated {
  logProbs: readonly number[];
  finished: boolean;
}

const [LOWEST, LOWEST_TOTAL, LOWEST_TOKEN, SMALLEST_DOUBT] = [0.01, -50, -20, 1e-5];

/** The numbers of a model file; null: it has none that this program knows. */
export function readConfidence(about: unknown): Confidence | null {
  const given = about as (Confidence & { format: number }) | null | undefined;
  if (!given || given.format !== 1 || !isLogistic(given.best) || (given.others !== null && !isLogistic(given.others))) return null;
  return Number.isFinite(given.smoothing) && given.smoothing < 1 && given.vocabulary > 0 && given.search ? given : null;
}

const isLogistic = (one: Logistic | null): boolean => !!one && Number.isFinite(one.bias) && Object.values(one.weights ?? { none: NaN }).every(Number.isFinite);

/** The probability of a token without the label smoothing of training. */
export function withoutSmoothing({ smoothing, vocabulary }: Confidence, logProb: number): number {
  const own = Math.exp(logProb);
  return Math.min(1, Math.max((own - smoothing / vocabulary) / (1 - smoothing), LOWEST * own));
}

/** The confidence of each output of an input, best first or `sampled`; null: it is not known. */
export function rate(confidence: Confidence, outputs: readonly Rated[], sampled: boolean): (number | null)[] {
  const features = outputs.map((output) => describe(confidence, output));
  return features.map((own, index) => {
    if (sampled || !index) return probability(confidence.best, own);
    return confidence.others && probability(confidence.others, { ...own, behind: features[0].total - own.total });
  });
}

function describe(confidence: Confidence, { logProbs, finished }: Rated): Record<string, number> {
  const given = logProbs.length ? logProbs : [0];
  const own = given.map((one) => Math.max(LOWEST_TOKEN, Math.log(withoutSmoothing(confidence, one)))).sort((a, b) => a - b);
  const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);
  const [total, raw] = [Math.max(LOWEST_TOTAL, sum(own)), Math.max(LOWEST_TOTAL, sum(given))];
  return {
    total,
    mean: total / own.length,
    least: own[0],
    second: own[1] ?? 0,
    doubt: Math.log(Math.max(SMALLEST_DOUBT, -Math.expm1(total))),
    unsure: -sum(own.map(Math.expm1)),
    raw_total: raw,
    raw_mean: raw / own.length,
    tokens: own.length,
    length: Math.log(own.length),
    unfinished: finished ? 0 : 1,
  };
}

const probability = ({ bias, weights }: Logistic, features: Readonly<Record<string, number>>): number =>
  1 / (1 + Math.exp(-Object.entries(weights).reduce((sum, [name, weight]) => sum + weight * (features[name] ?? 0), bias)));
