"""How good the output is, and how sure of that we are.

Every metric is a pair: statistics of each row (edits and length, matched n-grams, ...), and a score of their sum. The
corpus score, its bootstrap interval, the table by length and the paired comparison are then all sums over different
choices of rows, so that no text is compared twice.

All scores but perplexity are in percent. Nothing is normalised before comparing: case, accents and inner spaces count.
"""

from __future__ import annotations

import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from dragoman.errors import UserError

CHRF_ORDER, CHRF_BETA = 6, 2  # as sacrebleu's chrF2
RESAMPLES = 1000
SHORT_TARGET = 3.5  # words; longer targets than this on average are sentences


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, what it is called in a table, and which way is better."""

    name: str
    label: str
    better: Literal["higher", "lower"]
    unit: str = "%"


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("exact", "exact match", "higher"),  # equal to any of the references
        Metric("ser", "sequence error rate", "lower"),  # 100 - exact
        Metric("cer", "character error rate", "lower"),
        Metric("wer", "word error rate", "lower"),
        Metric("bleu", "BLEU", "higher", unit=""),
        Metric("chrf", "chrF2", "higher", unit=""),
        Metric("perplexity", "perplexity per token", "lower", unit=""),
        Metric("word_perplexity", "perplexity per word", "lower", unit=""),
        Metric("character_perplexity", "perplexity per character", "lower", unit=""),
        Metric("bits_per_character", "bits per character", "lower", unit="bit"),
    )
}


class Counts(NamedTuple):
    """What a metric keeps of each row, and how a sum of rows becomes a score."""

    rows: np.ndarray  # (rows, K)
    score: Callable[[np.ndarray], np.ndarray]  # sums (R, K) -> scores (R,)
    signature: str = ""

    def of(self, chosen: np.ndarray | slice = slice(None)) -> float:
        return float(self.score(self.rows[chosen].sum(axis=0, keepdims=True))[0])


# ---- the statistics of each metric


def _ratio(sums: np.ndarray) -> np.ndarray:
    """Column 0 over column 1 in percent; a total of zero counts as one, so that empty references are no crash."""
    return np.asarray(100.0 * sums[:, 0] / np.maximum(sums[:, 1], 1))


def _exact(hypotheses: Sequence[str], references: Sequence[Sequence[str]], wrong: bool) -> Counts:
    hits = [(hypothesis in options) != wrong for hypothesis, options in zip(hypotheses, references, strict=True)]
    return Counts(np.array([(hit, 1) for hit in hits], dtype=np.float64), _ratio)


def words(text: str) -> list[str]:
    """Tokens between spaces (U+0020 only, so that a no-break space stays inside its token)."""
    return [word for word in text.split(" ") if word]


def _edits(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], split: Callable[[str], Sequence[str]]
) -> Counts:
    """Edits and reference length of each row.

    With several references each row is compared with the closest, where "closest" means: those references, one a row,
    whose total edits over total length is lowest. Taking the fewest edits row by row would let an additional, shorter
    reference make the corpus rate worse. The lowest ratio of sums is found by Dinkelbach's (1967) iteration.
    """
    from rapidfuzz.distance import Levenshtein

    options: list[np.ndarray] = []  # (references of the row, 2)
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        tokens = split(hypothesis)
        split_texts = [split(text) for text in texts]
        options.append(np.array([(Levenshtein.distance(tokens, text), len(text)) for text in split_texts], dtype=float))

    def choose(cost: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.array([option[int(cost(option).argmin())] for option in options])

    def rate(rows: np.ndarray) -> float:
        return float(_ratio(rows.sum(axis=0, keepdims=True))[0]) / 100.0

    rows = choose(lambda option: -option[:, 1])  # the longest: if even these are all empty there is nothing to choose
    while True:
        current = rate(rows)
        better = choose(lambda option, current=current: option[:, 0] - current * option[:, 1])  # type: ignore[misc]
        if rate(better) >= current:
            break
        rows = better
    shortest = choose(lambda option: option[:, 1])  # only matters where every row has an empty reference
    return Counts(shortest if rate(shortest) < rate(rows) else rows, _ratio)


def _bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str) -> Counts:
    from sacrebleu.metrics.bleu import BLEU

    sentence = BLEU(tokenize=tokenizer, force=True, effective_order=True)  # effective order: only silences a warning
    scores = [sentence.sentence_score(text, list(refs)) for text, refs in zip(hypotheses, references, strict=True)]
    rows = np.array([(s.sys_len, s.ref_len, *s.counts, *s.totals) for s in scores], dtype=np.float64)

    def score(sums: np.ndarray) -> np.ndarray:
        def one(row: list[int]) -> float:
            return BLEU.compute_bleu(row[2:6], row[6:10], row[0], row[1], smooth_method="exp").score

        # sacrebleu's exp(log(100)) is a hair more than 100
        return np.minimum([one(row) for row in sums.astype(np.int64).tolist()], 100.0)

    corpus = BLEU(tokenize=tokenizer, force=True)
    corpus.num_refs = _reference_count(references)
    return Counts(rows, score, str(corpus.get_signature()))


def _chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
    """chrF (Popović 2015) as sacrebleu defines it; its counts are not public there, so they are counted here."""
    from sacrebleu.metrics.chrf import CHRF

    def grams(text: str) -> list[Counter[str]]:
        text = "".join(text.split())
        return [Counter(text[i : i + n] for i in range(len(text) - n + 1)) for n in range(1, CHRF_ORDER + 1)]

    def compare(ours: list[Counter[str]], theirs: list[Counter[str]]) -> list[int]:
        row: list[int] = []
        for mine, other in zip(ours, theirs, strict=True):
            matched = sum(min(count, other[gram]) for gram, count in mine.items() if gram in other)
            row += (mine.total() if other else 0, other.total(), matched)
        return row

    def score(sums: np.ndarray) -> np.ndarray:
        made, wanted, matched = (sums[:, i::3] for i in range(3))  # (R, orders) each
        both = (made > 0) & (wanted > 0)
        orders = np.maximum(both.sum(axis=1), 1)
        precision = np.where(both, matched / np.maximum(made, 1), 0).sum(axis=1) / orders
        recall = np.where(both, matched / np.maximum(wanted, 1), 0).sum(axis=1) / orders
        weight = CHRF_BETA**2
        below = weight * precision + recall
        return np.asarray(100.0 * (1 + weight) * precision * recall / np.where(below > 0, below, 1))

    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        ours = grams(hypothesis)
        candidates = np.array([compare(ours, grams(text)) for text in texts], dtype=np.float64)
        rows.append(candidates[int(score(candidates).argmax())] if len(texts) > 1 else candidates[0])
    metric = CHRF()
    metric.num_refs = _reference_count(references)
    return Counts(np.array(rows), score, str(metric.get_signature()))


def _perplexity(log_probs: Sequence[float], tokens: Sequence[int]) -> Counts:
    def score(sums: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(np.minimum(-sums[:, 0] / np.maximum(sums[:, 1], 1), 700.0)))  # e^700: still a float

    return Counts(np.column_stack([np.asarray(log_probs, float), np.asarray(tokens, float)]), score)


def _bits(log_probs: Sequence[float], units: Sequence[int]) -> Counts:
    def score(sums: np.ndarray) -> np.ndarray:
        return np.asarray(-sums[:, 0] / np.maximum(sums[:, 1], 1) / np.log(2))

    return Counts(np.column_stack([np.asarray(log_probs, float), np.asarray(units, float)]), score)


def _reference_count(references: Sequence[Sequence[str]]) -> int:
    """As sacrebleu writes it in a signature: -1 where rows differ."""
    numbers = {len(options) for options in references}
    return numbers.pop() if len(numbers) == 1 else -1


def bleu_tokenizer(references: Sequence[Sequence[str]]) -> str:
    """sacrebleu's tokeniser for this script: BLEU counts words, and some scripts do not write spaces."""
    names = Counter(
        unicodedata.name(letter, "").partition(" ")[0]
        for options in references
        for letter in options[0]
        if letter.isalpha()
    )
    spaceless = sum(names[script] for script in ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))
    if spaceless <= names.total() / 2:
        return "13a"
    return "zh" if names["CJK"] == spaceless else "char"


def counts(
    name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str | None = None
) -> Counts:
    """The statistics of one metric over texts; ``tokenizer`` is sacrebleu's, for BLEU only (default: by script)."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} outputs but {len(references)} rows of references; give one output a row")
    if not hypotheses:
        raise UserError("there is nothing to measure: no outputs were given")
    for index, options in enumerate(references):
        if isinstance(options, str) or not options:
            raise UserError(f"row {index + 1}: expected a list with at least one reference, got {options!r}")
    match name:
        case "exact" | "ser":
            return _exact(hypotheses, references, wrong=name == "ser")
        case "cer":
            return _edits(hypotheses, references, lambda text: text)
        case "wer":
            return _edits(hypotheses, references, words)
        case "bleu":
            return _bleu(hypotheses, references, tokenizer or bleu_tokenizer(references))
        case "chrf":
            return _chrf(hypotheses, references)
        case _:
            raise UserError(f"unknown metric {name!r}; choose from: exact, ser, cer, wer, bleu, chrf")


def score(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """One metric, no interval: what training asks for after each epoch."""
    return counts(name, hypotheses, references).of()


# ---- intervals (Koehn 2004): the same seed draws the same rows for every metric and every system


def _resamples(rows: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each row is drawn, (block, rows) at a time: a large corpus does not need all resamples in memory."""
    generator = np.random.default_rng(seed)
    block = max(1, min(resamples, 4_000_000 // rows))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = generator.integers(0, rows, (size, rows)) + rows * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)


def _bootstrap(tables: Sequence[Counts], resamples: int, seed: int) -> np.ndarray:
    """(tables, resamples): every table scored on the same resamples."""
    sums: list[list[np.ndarray]] = [[] for _ in tables]
    for weights in _resamples(len(tables[0].rows), resamples, seed):
        for table, total in zip(tables, sums, strict=True):
            total.append(table.score(weights @ table.rows))
    return np.array([np.concatenate(total) for total in sums])


def _interval(samples: np.ndarray, value: float) -> tuple[float, float]:
    """The middle 95 % of the resamples, stretched where need be to hold the measured value itself."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return min(float(low), value), max(float(high), value)


class Comparison(NamedTuple):
    """Two systems on the same rows: second minus first."""

    difference: float
    low: float
    high: float
    p_value: float  # two-sided: how often a resample would put the difference on the other side of zero


def compare(first: Counts, second: Counts, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Paired bootstrap of two tables of the same metric over the same rows."""
    if len(first.rows) != len(second.rows):
        raise UserError(f"cannot pair {len(first.rows)} rows with {len(second.rows)}; compare outputs of the same file")
    samples = _bootstrap([first, second], resamples, seed)
    differences = samples[1] - samples[0]
    value = second.of() - first.of()
    tail = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    return Comparison(value, *_interval(differences, value), min(1.0, 2 * (int(tail) + 1) / (resamples + 1)))


# ---- the report


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    label: str
    value: float
    low: float  # 95 % interval
    high: float
    better: str
    unit: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class LengthRow:
    """Rows whose source is ``shortest`` to ``longest`` units long, and what the headline metric is for them alone."""

    shortest: int
    longest: int
    rows: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Report:
    rows: int
    references: int  # in all
    headline: str
    scores: dict[str, Score]  # the headline first
    by_length: list[LengthRow] = field(default_factory=list)
    length_unit: str = "tokens"

    @property
    def value(self) -> float:
        """The headline score."""
        return self.scores[self.headline].value

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, ready for ``json.dumps``."""
        return asdict(self)

    def to_text(self) -> str:
        many = "" if self.references == self.rows else f", {self.references:,} references"
        lines = [f"{self.rows:,} rows{many}; 95 % intervals in brackets", ""]
        width = max(len(score.label) for score in self.scores.values())
        for score in self.scores.values():
            unit = f" {score.unit}" if score.unit else "  "
            lines.append(f"  {score.label:<{width}}  {score.value:8.2f}{unit}  [{score.low:.2f}, {score.high:.2f}]")
        if self.by_length:
            label = self.scores[self.headline].label
            lines += ["", f"  {label} by source length ({self.length_unit})"]
            spans = [f"{r.shortest}-{r.longest}" if r.shortest < r.longest else f"{r.longest}" for r in self.by_length]
            wide = max(map(len, spans))
            for span, row in zip(spans, self.by_length, strict=True):
                lines.append(
                    f"  {span:>{wide}}  {row.rows:>7,} rows  {row.value:8.2f}  [{row.low:.2f}, {row.high:.2f}]"
                )
        signatures = [f"  {score.label}: {score.signature}" for score in self.scores.values() if score.signature]
        return "\n".join([*lines, *(["", *signatures] if signatures else [])]) + "\n"


def by_length(
    table: Counts, lengths: Sequence[int], buckets: int = 5, resamples: int = RESAMPLES, seed: int = 0
) -> list[LengthRow]:
    """The metric for short and for long sources: up to ``buckets`` buckets of about as many rows each."""
    sizes = np.asarray(lengths)
    if len(sizes) != len(table.rows):
        raise UserError(f"{len(sizes)} source lengths for {len(table.rows)} rows; give one length a row")
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, buckets + 1)[1:], method="inverted_cdf"))  # upper, inclusive
    bucket = np.searchsorted(edges, sizes)
    result = []
    for index in range(len(edges)):
        chosen = np.flatnonzero(bucket == index)
        part = Counts(table.rows[chosen], table.score)
        low, high = _interval(_bootstrap([part], resamples, seed)[0], part.of())
        inside = sizes[chosen]
        result.append(LengthRow(int(inside.min()), int(inside.max()), len(chosen), part.of(), low, high))
    return result


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    headline: str = "exact",
    metrics: Sequence[str] = ("exact", "ser", "cer", "wer", "bleu", "chrf"),
    source_lengths: Sequence[int] | None = None,
    length_unit: str = "tokens",
    log_probs: Sequence[float] | None = None,
    tokens: Sequence[int] | None = None,
    symbols: bool = False,
    tokenizer: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Measure outputs against one or more references a row.

    ``log_probs`` and ``tokens`` are, for each row, the summed log-probability of a reference and its number of tokens
    (end symbol counted); with them the report has a perplexity. ``symbols`` says that targets are space-separated
    symbols, so that the word error rate is a symbol error rate (on phones: PER). ``tokenizer`` is sacrebleu's.
    """
    names = [headline, *(name for name in metrics if name != headline)]
    tables = {name: counts(name, hypotheses, references, tokenizer) for name in names if name != "perplexity"}
    if log_probs is not None and tokens is not None:
        tables["perplexity"] = _perplexity(log_probs, tokens)
    if headline not in tables:
        raise UserError("perplexity needs log_probs and tokens, one of each a row")
    if any(len(table.rows) != len(hypotheses) for table in tables.values()):
        raise UserError(f"give one log-probability and one number of tokens for each of the {len(hypotheses)} rows")
    scores = {}
    for (name, table), samples in zip(tables.items(), _bootstrap([*tables.values()], resamples, seed), strict=True):
        metric = METRICS[name]
        label = "symbol error rate" if symbols and name == "wer" else metric.label
        value = table.of()
        low, high = _interval(samples, value)
        scores[name] = Score(name, label, value, low, high, metric.better, metric.unit, table.signature)
    lengths = [] if source_lengths is None else by_length(tables[headline], source_lengths, 5, resamples, seed)
    total = sum(len(options) for options in references)
    return Report(len(hypotheses), total, headline, {headline: scores[headline], **scores}, lengths, length_unit)


def evaluate_text(
    texts: Sequence[str],
    log_probs: Sequence[float],
    tokens: Sequence[int],
    *,
    token_kind: str = "",
    unknown: int = 0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Measure a language model on lines of text, from the log-probability and the number of tokens of each line.

    Perplexity per token depends on how the text is cut; per word and per character it does not, so that models with
    other tokens compare. A word is what stands between spaces. The end of a line is predicted too, and counts as one
    token, one word and one character. ``unknown`` tokens are predicted as such, which is easier than spelling them.
    """
    if not texts:
        raise UserError("there is nothing to measure: no text was given")
    if not len(texts) == len(log_probs) == len(tokens):
        raise UserError(f"give one log-probability and one number of tokens for each of the {len(texts)} lines")
    in_words = [len(words(text)) + 1 for text in texts]
    in_characters = [len(text) + 1 for text in texts]
    tables = {
        "perplexity": _perplexity(log_probs, tokens),
        "word_perplexity": _perplexity(log_probs, in_words),
        "character_perplexity": _perplexity(log_probs, in_characters),
        "bits_per_character": _bits(log_probs, in_characters),
    }
    signatures = {
        "perplexity": f"{sum(tokens):,} {token_kind or 'tokens'}, line ends counted",
        "word_perplexity": f"{sum(in_words):,} words between spaces, line ends counted",
        "character_perplexity": f"{sum(in_characters):,} characters, line ends counted",
    }
    if unknown:
        signatures["perplexity"] += f"; {unknown:,} of them unknown (<unk>), so that all these figures flatter"
    scores = {}
    for (name, table), samples in zip(tables.items(), _bootstrap([*tables.values()], resamples, seed), strict=True):
        metric, value = METRICS[name], table.of()
        low, high = _interval(samples, value)
        signature = signatures.get(name, "")
        scores[name] = Score(name, metric.label, value, low, high, metric.better, metric.unit, signature)
    return Report(len(texts), len(texts), "perplexity", scores)


class Choice(NamedTuple):
    """The metric a run is judged by, the others worth printing, and why."""

    headline: str
    metrics: tuple[str, ...]
    reason: str


def choose(tokenizer: str, targets: Sequence[str]) -> Choice:
    """The metric that fits the targets; ``tokenizer`` is the kind the target side is cut with."""
    by_word, by_character = ("exact", "wer", "ser", "cer"), ("exact", "cer", "ser", "wer")
    if tokenizer == "symbols":
        return Choice("exact", by_word, "targets are sequences of symbols: a sequence is right or wrong")
    spaceless = bleu_tokenizer([[target] for target in targets]) != "13a" if targets else False
    sizes = [len(target) / 2 if spaceless else len(words(target)) for target in targets]  # about two characters a word
    mean = statistics.fmean(sizes) if sizes else 0.0
    if mean <= SHORT_TARGET:
        return Choice(
            "exact", by_character, f"targets are short ({mean:.1f} words on average): right or wrong as a whole"
        )
    vocabulary = {word for target in targets for word in words(target)}
    if not spaceless and len(vocabulary) <= 100 and sum(sizes) >= 100 * len(vocabulary):
        reason = f"targets use only {len(vocabulary)} words, as a formal language does: right or wrong as a whole"
        return Choice("exact", by_word, reason)
    everything = ("bleu", "chrf", "wer", "cer", "exact")
    return Choice(
        "bleu", everything, f"targets are sentences ({mean:.1f} words on average): more than one may be right"
    )


def of_language_model() -> Choice:
    others = ("word_perplexity", "character_perplexity", "bits_per_character")
    return Choice("perplexity", others, "a language model is as good as its predictions of the text")
