"""Choose the headline metric that fits the data, and the others to report with it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dragoman.data.tokenizers.symbols import LONGEST_SYMBOL
from dragoman.evaluation.metrics.bleu import bleu_tokenizer
from dragoman.evaluation.metrics.words import split_words

LONGEST_SHORT_TARGET = 3.5  # words on average; longer targets are sentences
FORMAL_VOCABULARY = 100  # words at most in a formal language
FORMAL_REPETITION = 100  # times at least that each of them occurs, on average


class MetricChoice(NamedTuple):
    """The metric that a run is judged by, all metrics to report, and the reason for the choice."""

    headline: str
    metrics: tuple[str, ...]
    reason: str


LANGUAGE_MODEL_CHOICE = MetricChoice(
    "perplexity",
    ("word_perplexity", "character_perplexity", "bits_per_character"),
    "a language model is as good as its predictions of the text",
)


def choose_metrics(tokenizer: str, targets: Sequence[str], classes: int = 0) -> MetricChoice:
    """Choose the metrics that fit the targets.

    ``tokenizer`` is the kind of their tokenizer, and ``classes`` the number of classes, if they are that.
    """
    if classes:
        return MetricChoice("exact", ("exact",), f"targets are {classes} classes: right or wrong as a whole")
    # The sequence error rate is what exact match leaves, and so is the error rate of single words.
    has_words = any(len(split_words(target)) > 1 for target in targets)
    by_word = ("exact", "wer", "cer") if has_words else ("exact", "cer")
    by_character = ("exact", "cer", "wer") if has_words else ("exact", "cer")
    if tokenizer == "symbols":
        words = [word for target in targets for word in split_words(target)]
        are_short = sum(map(len, words)) <= LONGEST_SYMBOL * len(words)
        what = "symbols" if are_short else "words from a small set"
        return MetricChoice("exact", by_word, f"targets are sequences of {what}: a sequence is right or wrong")
    spaceless = bleu_tokenizer([[target] for target in targets]) != "13a" if targets else False
    # Without spaces, a word is about two characters long.
    lengths = [len(target) / 2 if spaceless else len(split_words(target)) for target in targets]
    mean = statistics.fmean(lengths) if lengths else 0.0
    if mean <= LONGEST_SHORT_TARGET:
        reason = f"targets are short ({mean:.1f} words on average): right or wrong as a whole"
        return MetricChoice("exact", by_character, reason)
    vocabulary = {word for target in targets for word in split_words(target)}
    repeats = sum(lengths) >= FORMAL_REPETITION * len(vocabulary)
    if not spaceless and len(vocabulary) <= FORMAL_VOCABULARY and repeats:
        reason = f"targets use only {len(vocabulary)} words, as a formal language does: right or wrong as a whole"
        return MetricChoice("exact", by_word, reason)
    reason = f"targets are sentences ({mean:.1f} words on average): more than one may be right"
    return MetricChoice("bleu", ("bleu", "chrf", "wer", "cer", "exact"), reason)
