"""Which metric fits the data, and why."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dragoman.metrics.counting import bleu_tokenizer, words

SHORT_TARGET = 3.5  # words; longer targets than this on average are sentences


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
