"""Measure outputs against references, or a language model by its log-probabilities of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dragoman.errors import UserError
from dragoman.evaluation.metrics.bootstrap import RESAMPLES, bootstrap, confidence_interval
from dragoman.evaluation.metrics.classes import measure_classes
from dragoman.evaluation.metrics.confusion import count_confusions
from dragoman.evaluation.metrics.metric import Outputs, References, Statistics
from dragoman.evaluation.metrics.perplexity import bits, perplexity
from dragoman.evaluation.metrics.registry import METRICS, compute_statistics, label_metric
from dragoman.evaluation.metrics.report import LengthBucket, Report, Score
from dragoman.evaluation.metrics.words import split_words
from dragoman.tables import shorten


def measure_outputs(
    outputs: Outputs,
    references: References,
    *,
    headline: str = "exact",
    metrics: Sequence[str] = ("exact", "ser", "cer", "wer", "bleu", "chrf"),
    source_lengths: Sequence[int] | None = None,
    length_unit: str = "tokens",
    log_probs: Sequence[float] | None = None,
    tokens: Sequence[int] | None = None,
    unknown: int = 0,
    symbols: bool = False,
    examples: int | None = None,
    classes: Sequence[str] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Measure each output against its references, of which there is at least one.

    ``log_probs`` and ``tokens`` are, for each row, the log-probability of a reference and its
    number of tokens, the end symbol included; with them the report has a perplexity. ``unknown`` is
    the number of rows whose reference has tokens that are not in the vocabulary. ``symbols`` says
    that targets are symbols separated by spaces: then the word error rate is called symbol error
    rate (on phones: PER). ``examples`` is the number of rows in the data, where those with the same
    source were put together. ``classes`` are those of a classifier; without them, targets that look
    like classes are recognised.
    """
    names = [headline, *(name for name in metrics if name != headline)]
    statistics = {name: compute_statistics(name, outputs, references) for name in names if name != "perplexity"}
    if log_probs is not None and tokens is not None:
        statistics["perplexity"] = perplexity(log_probs, tokens)
    if headline not in statistics:
        raise UserError("perplexity needs log_probs and tokens, one of each for every row")
    if any(len(each.rows) != len(outputs) for each in statistics.values()):
        raise UserError(f"give one log-probability and one number of tokens for each of the {len(outputs)} rows")
    signatures = {name: each.signature for name, each in statistics.items()}
    if unknown and "perplexity" in signatures:
        signatures["perplexity"] = f"references with unknown tokens, scored as <unk>: {unknown:,} of {len(outputs):,}"
    if new := sorted({text for options in references for text in options if text not in classes} if classes else ()):
        rows = sum(not {*options} & {*classes} for options in references)
        listed = ", ".join(shorten(label) for label in new[:5]) + (", …" if len(new) > 5 else "")
        signatures[headline] = f"references that are no class of this run: {rows:,} of {len(outputs):,} ({listed})"
    scores = _score(
        statistics,
        resamples,
        seed,
        labels={name: label_metric(name, classes=bool(classes), symbols=symbols) for name in statistics},
        signatures=signatures,
    )
    return Report(
        rows=len(outputs),
        references=sum(len(options) for options in references),
        headline=headline,
        scores={headline: scores[headline], **scores},
        by_length=[]
        if source_lengths is None or len(set(source_lengths)) < 2  # one length says no more than the score of all rows
        else score_by_length(statistics[headline], source_lengths, resamples=resamples, seed=seed),
        length_unit=length_unit,
        confusion=count_confusions(outputs, references, classes),
        classes=measure_classes(outputs, references, classes),
        examples=examples,
    )


def measure_text(
    texts: Sequence[str],
    log_probs: Sequence[float],
    tokens: Sequence[int],
    *,
    token_kind: str = "",
    unknown: int = 0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Measure a language model by the log-probability and the number of tokens of each line.

    Perplexity per token depends on the tokenizer. Perplexity per word and per character does not,
    so that models with different tokens can be compared. Words are separated by spaces. The end of
    a line is predicted too, and counts as one token, one word and one character. ``unknown`` is the
    number of unknown tokens: they are predicted as such, which is easier than spelling them.
    """
    if not texts:
        raise UserError("there is nothing to measure: no text was given")
    if not len(texts) == len(log_probs) == len(tokens):
        raise UserError(f"give one log-probability and one number of tokens for each of the {len(texts)} lines")
    in_words = [len(split_words(text)) + 1 for text in texts]
    in_characters = [len(text) + 1 for text in texts]
    statistics = {
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
    scores = _score(statistics, resamples, seed, labels={}, signatures=signatures)
    return Report(rows=len(texts), references=len(texts), headline="perplexity", scores=scores)


def score_by_length(
    statistics: Statistics, lengths: Sequence[int], buckets: int = 5, resamples: int = RESAMPLES, seed: int = 0
) -> list[LengthBucket]:
    """Score short and long sources apart, in up to ``buckets`` buckets of about equal size."""
    sizes = np.asarray(lengths)
    if len(sizes) != len(statistics.rows):
        raise UserError(f"{len(sizes)} source lengths for {len(statistics.rows)} rows; give one length for each row")
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, buckets + 1)[1:], method="inverted_cdf"))  # upper, inclusive
    bucket_of_row = np.searchsorted(edges, sizes)
    scored = []
    for bucket in range(len(edges)):
        rows = np.flatnonzero(bucket_of_row == bucket)
        inside = sizes[rows]
        part = Statistics(statistics.rows[rows], statistics.score)
        value = part.corpus_score()
        low, high = confidence_interval(bootstrap([part], resamples, seed)[0], value)
        scored.append(LengthBucket(int(inside.min()), int(inside.max()), len(rows), value, low, high))
    return scored


def _score(
    statistics: Mapping[str, Statistics],
    resamples: int,
    seed: int,
    labels: Mapping[str, str],
    signatures: Mapping[str, str],
) -> dict[str, Score]:
    """Score every metric with its interval; ``labels`` replaces the usual label of a metric."""
    scores = {}
    samples_of_each = bootstrap([*statistics.values()], resamples, seed)
    for (name, each), samples in zip(statistics.items(), samples_of_each, strict=True):
        metric, value = METRICS[name], each.corpus_score()
        low, high = confidence_interval(samples, value)
        label, signature = labels.get(name, metric.label), signatures.get(name, "")
        scores[name] = Score(name, label, value, low, high, metric.better, metric.unit, signature)
    return scores
