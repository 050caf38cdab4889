"""Every metric by name."""

from __future__ import annotations

from dragoman.errors import UserError
from dragoman.evaluation.metrics.bleu import bleu
from dragoman.evaluation.metrics.chrf import chrf
from dragoman.evaluation.metrics.edits import character_error_rate, word_error_rate
from dragoman.evaluation.metrics.exact import exact_match, sequence_error_rate
from dragoman.evaluation.metrics.metric import Metric, Outputs, References, Statistics

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("exact", "exact match", "higher", compute=exact_match),
        Metric("ser", "sequence error rate", "lower", compute=sequence_error_rate),
        Metric("cer", "character error rate", "lower", compute=character_error_rate),
        Metric("wer", "word error rate", "lower", compute=word_error_rate),
        Metric("bleu", "BLEU", "higher", unit="", compute=bleu),
        Metric("chrf", "chrF2", "higher", unit="", compute=chrf),
        Metric("perplexity", "perplexity per token", "lower", unit=""),
        Metric("word_perplexity", "perplexity per word", "lower", unit=""),
        Metric("character_perplexity", "perplexity per character", "lower", unit=""),
        Metric("bits_per_character", "bits per character", "lower", unit="bit"),
    )
}


def label_metric(name: str, *, classes: bool = False, symbols: bool = False) -> str:
    """Return what a metric is called for targets that are ``classes``, ``symbols`` separated by spaces, or texts."""
    if classes and name == "exact":
        return "accuracy"
    return "symbol error rate" if symbols and name == "wer" else METRICS[name].label


def compute_statistics(name: str, outputs: Outputs, references: References) -> Statistics:
    """Compute the statistics of one metric for texts."""
    if len(outputs) != len(references):
        raise UserError(f"{len(outputs)} outputs but {len(references)} rows of references; give one output per row")
    if not outputs:
        raise UserError("there is nothing to measure: no outputs were given")
    for index, options in enumerate(references):
        if isinstance(options, str) or not options:
            raise UserError(f"row {index + 1}: expected a list with at least one reference, got {options!r}")
    compute = METRICS[name].compute if name in METRICS else None
    if compute is None:
        of_texts = ", ".join(metric.name for metric in METRICS.values() if metric.compute is not None)
        raise UserError(f"unknown metric {name!r}; choose from: {of_texts}")
    return compute(outputs, references)


def score(name: str, outputs: Outputs, references: References) -> float:
    """Compute the corpus score of one metric, without an interval."""
    return compute_statistics(name, outputs, references).corpus_score()
