"""A system's outputs row by row: the metrics of each, and how it differs from its reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from dragoman.data.examples import Example, Identity, identity
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import Decoded, decode
from dragoman.evaluation.metrics import METRICS, Report, Statistics, compute_statistics
from dragoman.evaluation.metrics.perplexity import perplexity
from dragoman.inference.predictions import texts_of
from dragoman.inference.system import System

OTHER_TOKENS = "perplexity is not compared: the runs divide the references into different tokens"
LONGEST_BY_CHARACTER = 400  # characters; longer texts are compared word by word


@dataclass(frozen=True, slots=True)
class MetricName:
    """What a metric is called in one report, and which way is better."""

    name: str
    label: str
    better: str
    unit: str


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of output and reference; where ``same`` is False either may be empty."""

    same: bool
    output: str
    reference: str


def decode_rows(
    system: System,
    examples: Sequence[Example],
    beam: int | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Decoded:
    """Decode every distinct source, for a view of single rows. ``cancelled`` is that of ``decode``."""
    if system.is_language_model:
        raise UserError("a language model has no outputs to lay beside references; dragoman evaluate measures it")
    if not examples:
        raise UserError("the file has no usable row; dragoman check says why")
    return decode(system, examples, beam=beam, cancelled=cancelled)


def row_statistics(decoded: Decoded, report: Report, also: Sequence[str] = ()) -> dict[str, Statistics]:
    """Return the statistics of the report's metrics, headline first, and of those in ``also``.

    Of the metrics that are computed from log-probabilities, only perplexity is among them: as headline, or in ``also``.
    """
    outputs = texts_of(decoded.predictions)
    names = dict.fromkeys([report.headline, *report.scores, *also])
    statistics = {
        name: compute_statistics(name, outputs, decoded.references) for name in names if METRICS[name].compute
    }
    if "perplexity" in (report.headline, *also):
        tokens = [len(scored.tokens) for scored in decoded.scored]
        statistics["perplexity"] = perplexity([scored.log_prob for scored in decoded.scored], tokens)
    return {name: statistics[name] for name in names if name in statistics}


def have_same_tokens(decoded: Sequence[Decoded]) -> bool:
    """Tell whether systems divide the references into the same numbers of tokens, so that perplexities compare."""
    counts = [[len(scored.tokens) for scored in each.scored] for each in decoded]
    return all(each == counts[0] for each in counts)


def name_metric(name: str, report: Report) -> MetricName:
    """Return a metric's name with the label that the report gives it."""
    metric = METRICS[name]
    label = report.scores[name].label if name in report.scores else metric.label
    return MetricName(name, label, metric.better, metric.unit)


def first_examples(examples: Sequence[Example]) -> list[Example]:
    """Return the example where each distinct source first occurs, in the order of ``references``."""
    first: dict[Identity, Example] = {}
    for example in examples:
        first.setdefault(identity(example), example)
    return list(first.values())


def diff_texts(output: str, reference: str, whole: bool = False) -> list[Span]:
    """Return where two texts agree and differ: by character in single words, else by word.

    ``whole``: they are labels, which are the same or not.
    """
    if whole:
        return [Span(output == reference, output, reference)]
    by_character = max(len(output), len(reference)) <= LONGEST_BY_CHARACTER and " " not in output + reference
    ours, theirs = ([*text] if by_character else re.findall(r"\s+|[^\s]+", text) for text in (output, reference))
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    return [
        Span(kind == "equal", "".join(ours[a:b]), "".join(theirs[c:d])) for kind, a, b, c, d in matcher.get_opcodes()
    ]


def nearest_reference(output: str, references: Sequence[str]) -> str:
    """Return the reference that the fewest edits make of the output."""
    from rapidfuzz.distance import Levenshtein

    return min(references, key=lambda reference: Levenshtein.distance(output, reference))
