"""Outputs, or the log-probabilities of a text, measured: every score with its interval, and the table by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dragoman.errors import UserError
from dragoman.metrics.classes import Confusion, confusion
from dragoman.metrics.counting import METRICS, Counts, bits, counts, perplexity, words
from dragoman.metrics.intervals import RESAMPLES, bootstrap, interval


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
    confusion: Confusion | None = None  # where targets are few: classes

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
        if self.confusion is not None:
            lines += ["", *self.confusion.lines()]
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
        low, high = interval(bootstrap([part], resamples, seed)[0], part.of())
        inside = sizes[chosen]
        result.append(LengthRow(int(inside.min()), int(inside.max()), len(chosen), part.of(), low, high))
    return result


def _scores(
    tables: Mapping[str, Counts], resamples: int, seed: int, labels: Mapping[str, str], signatures: Mapping[str, str]
) -> dict[str, Score]:
    """Every table with its interval; ``labels`` says what a metric is called where that differs from its usual name."""
    scores = {}
    for (name, table), samples in zip(tables.items(), bootstrap([*tables.values()], resamples, seed), strict=True):
        metric, value = METRICS[name], table.of()
        low, high = interval(samples, value)
        label, signature = labels.get(name, metric.label), signatures.get(name, "")
        scores[name] = Score(name, label, value, low, high, metric.better, metric.unit, signature)
    return scores


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
        tables["perplexity"] = perplexity(log_probs, tokens)
    if headline not in tables:
        raise UserError("perplexity needs log_probs and tokens, one of each a row")
    if any(len(table.rows) != len(hypotheses) for table in tables.values()):
        raise UserError(f"give one log-probability and one number of tokens for each of the {len(hypotheses)} rows")
    labels = {"wer": "symbol error rate"} if symbols else {}
    scores = _scores(tables, resamples, seed, labels, {name: table.signature for name, table in tables.items()})
    lengths = [] if source_lengths is None else by_length(tables[headline], source_lengths, 5, resamples, seed)
    total = sum(len(options) for options in references)
    ranked = {headline: scores[headline], **scores}
    classes = confusion(hypotheses, references)
    return Report(len(hypotheses), total, headline, ranked, lengths, length_unit, classes)


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
        "perplexity": perplexity(log_probs, tokens),
        "word_perplexity": perplexity(log_probs, in_words),
        "character_perplexity": perplexity(log_probs, in_characters),
        "bits_per_character": bits(log_probs, in_characters),
    }
    signatures = {
        "perplexity": f"{sum(tokens):,} {token_kind or 'tokens'}, line ends counted",
        "word_perplexity": f"{sum(in_words):,} words between spaces, line ends counted",
        "character_perplexity": f"{sum(in_characters):,} characters, line ends counted",
    }
    if unknown:
        signatures["perplexity"] += f"; {unknown:,} of them unknown (<unk>), so that all these figures flatter"
    scores = _scores(tables, resamples, seed, {}, signatures)
    return Report(len(texts), len(texts), "perplexity", scores)
