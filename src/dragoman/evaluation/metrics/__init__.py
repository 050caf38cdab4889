"""How good the outputs are, and how certain that is: metrics, intervals and the report.

Every metric is a pair: statistics of each row (edits and length, matched n-grams, ...), and a score
of their sum. The corpus score, its bootstrap interval, the table by length and the paired
comparison are then sums over different choices of rows, so that no text is compared twice.

To add a metric, write one file here with a function from outputs and references to ``Statistics``
(``exact.py`` is the shortest example) and add a line to ``METRICS`` in ``registry.py``. Reports
show it when ``headline.py`` lists it; ``metric = "NAME"`` in a config selects it once
``Recipe.metric`` in ``recipe/schema.py`` has the name.

Nothing is normalised before texts are compared: case, accents and inner spaces count.
"""

from __future__ import annotations

from dragoman.evaluation.metrics.bleu import bleu_tokenizer
from dragoman.evaluation.metrics.bootstrap import Difference, paired_bootstrap, resample
from dragoman.evaluation.metrics.headline import LANGUAGE_MODEL_CHOICE, MetricChoice, choose_metrics
from dragoman.evaluation.metrics.measure import measure_outputs, measure_text, score_by_length
from dragoman.evaluation.metrics.metric import Metric, Statistics
from dragoman.evaluation.metrics.registry import METRICS, compute_statistics, label_metric, score
from dragoman.evaluation.metrics.report import LengthBucket, Report, Score
from dragoman.evaluation.metrics.seeds import SeedsReport, join_seeds
from dragoman.evaluation.metrics.spread import Spread, compare_means, holm, spread
from dragoman.evaluation.metrics.words import split_words

__all__ = [
    "LANGUAGE_MODEL_CHOICE",
    "METRICS",
    "Difference",
    "LengthBucket",
    "Metric",
    "MetricChoice",
    "Report",
    "Score",
    "SeedsReport",
    "Spread",
    "Statistics",
    "bleu_tokenizer",
    "choose_metrics",
    "compare_means",
    "compute_statistics",
    "holm",
    "join_seeds",
    "label_metric",
    "measure_outputs",
    "measure_text",
    "paired_bootstrap",
    "resample",
    "score",
    "score_by_length",
    "split_words",
    "spread",
]  # fmt: skip
