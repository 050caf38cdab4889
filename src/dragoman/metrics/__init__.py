"""How good the output is, and how sure of that we are.

Every metric is a pair: statistics of each row (edits and length, matched n-grams, ...), and a score of their sum. The
corpus score, its bootstrap interval, the table by length and the paired comparison are then all sums over different
choices of rows, so that no text is compared twice.

All scores but perplexity are in percent. Nothing is normalised before comparing: case, accents and inner spaces count.
"""

from __future__ import annotations

from dragoman.metrics.choice import Choice, choose, of_language_model
from dragoman.metrics.counting import METRICS, Counts, Metric, bleu_tokenizer, counts, score, words
from dragoman.metrics.intervals import Comparison, compare, resample
from dragoman.metrics.report import LengthRow, Report, Score, by_length, evaluate, evaluate_text

__all__ = [
    "METRICS", "Choice", "Comparison", "Counts", "LengthRow", "Metric", "Report", "Score", "bleu_tokenizer",
    "by_length", "choose", "compare", "counts", "evaluate", "evaluate_text", "of_language_model", "resample", "score",
    "words",
]  # fmt: skip
