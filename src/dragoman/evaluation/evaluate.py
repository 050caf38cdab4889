"""Evaluate a system on examples with references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dragoman.data.examples import Example, references
from dragoman.errors import UserError
from dragoman.evaluation import metrics
from dragoman.evaluation.metrics.calibration import ConfidenceReport, judge, measure_confidence
from dragoman.inference.predictions import Prediction, Scored, texts_of
from dragoman.inference.system import System
from dragoman.runtime.confidence import CONSTANT

OnProgress: TypeAlias = Callable[[int, int], None]  # how many inputs are done, and how many there are


@dataclass(frozen=True, slots=True)
class Decoded:
    """Every distinct source of some examples, with what the system predicts for it."""

    sources: list[dict[str, str]]
    references: list[list[str]]
    predictions: list[Prediction]
    scored: list[Scored]  # the first reference of each source
    examples: int  # rows that these are: those with the same source are one here


def evaluate(
    system: System,
    examples: Sequence[Example],
    *,
    headline: str | None = None,
    names: Sequence[str] | None = None,
    batch: int = 64,
    on_progress: OnProgress | None = None,
    **search: Any,
) -> metrics.Report:
    """Decode every distinct source once, and measure the outputs against all its targets.

    ``headline`` and ``names`` are the metrics to report; by default those that fit the targets.
    ``search`` changes settings of the search. A language model is measured by its log-probabilities
    of the targets themselves, without a search. ``on_progress`` is told how many of how many
    sources are decoded.
    """
    if system.is_language_model:
        if given := [name for name, value in search.items() if value is not None]:
            raise UserError(f"a language model is measured without a search, so {given[0]} has no effect; leave it out")
        return _evaluate_language_model(system, [example.target for example in examples], batch)
    decoded = decode(system, examples, batch=batch, on_progress=on_progress, **search)
    return measure(system, decoded, headline=headline, names=names)


def evaluate_seeds(
    systems: Mapping[str, System], examples: Sequence[Example], *, batch: int = 64, **search: Any
) -> metrics.SeedsReport:
    """Evaluate the runs of several seeds on the same examples, and average their scores.

    ``systems`` is by the name of the run. The metrics are those that fit the first run.
    """
    reports: dict[str, metrics.Report] = {}
    for name, system in systems.items():
        first = next(iter(reports.values()), None)
        headline, names = (None, None) if first is None else (first.headline, list(first.scores))
        reports[name] = evaluate(system, examples, headline=headline, names=names, batch=batch, **search)
    return metrics.join_seeds(reports)


def decode(
    system: System,
    examples: Sequence[Example],
    *,
    batch: int = 64,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
    **search: Any,
) -> Decoded:
    """Predict an output for every distinct source, and score its first reference.

    ``cancelled`` is asked before every token and every batch; when it returns True, or raises, decoding ends.
    """
    groups = references(examples)
    sources = [dict(source) for source, _ in groups]
    predictions: list[Prediction] = []
    plain = {"attention": False, "trace": False, "probabilities": False}
    for prediction in system.stream(sources, batch=batch, cancelled=cancelled, **plain, **search):
        predictions.append(prediction)
        if on_progress is not None:
            on_progress(len(predictions), len(sources))
    scored = system.session().score(sources, [targets[0] for _, targets in groups], batch=batch, on_batch=cancelled)
    for prediction in predictions:
        if prediction.error is not None:
            raise UserError(prediction.error)
    return Decoded(sources, [targets for _, targets in groups], predictions, scored, len(examples))


def measure(
    system: System, decoded: Decoded, *, headline: str | None = None, names: Sequence[str] | None = None
) -> metrics.Report:
    """Measure decoded outputs by the metrics that are named, or by those that fit the targets."""
    first = [targets[0] for targets in decoded.references]
    choice = metrics.choose_metrics(system.target.kind, first, len(system.classes))
    report = metrics.measure_outputs(
        texts_of(decoded.predictions),
        decoded.references,
        headline=headline or (system.recipe.metric if system.recipe.metric != "auto" else choice.headline),
        metrics=names or choice.metrics,
        source_lengths=[source_length(system, source) for source in decoded.sources],
        length_unit=_length_unit(system),
        log_probs=[scored.log_prob for scored in decoded.scored],
        tokens=[len(scored.tokens) for scored in decoded.scored],
        unknown=sum(scored.unknown > 0 for scored in decoded.scored),
        symbols=system.target.units == "symbols",
        examples=decoded.examples,
        classes=system.classes,
    )
    return replace(report, confidence=_measure_confidence(system, decoded))


def _measure_confidence(system: System, decoded: Decoded) -> ConfidenceReport | None:
    """Compare the confidence of the outputs with which of them are right. Empty inputs have no confidence."""
    confidence = system.confidence
    if confidence is None:
        return None
    rows = [row for row, prediction in enumerate(decoded.predictions) if prediction.confidence is not None]
    if not rows:
        return None
    texts = [decoded.predictions[row].text for row in rows]
    right = judge(confidence.metric, confidence.threshold, texts, [decoded.references[row] for row in rows])
    rated = [decoded.predictions[row].confidence or 0.0 for row in rows]
    note = decoded.predictions[rows[0]].confidence_note or (CONSTANT if confidence.is_constant else "")
    return measure_confidence(rated, list(right), confidence.describe(), note)


def source_length(system: System, source: Mapping[str, str]) -> int:
    """Return the positions of the longest source, not counting the end symbol of a text."""
    return max(modality.length(source[name]) - (not modality.is_file) for name, modality in system.modalities.items())


def _length_unit(system: System) -> str:
    """Return what ``source_length`` counts, in words."""
    unit = "positions" if any(modality.is_file for modality in system.modalities.values()) else "tokens"
    return f"{unit} of the longest source" if len(system.modalities) > 1 else unit


def _evaluate_language_model(system: System, texts: Sequence[str], batch: int) -> metrics.Report:
    scored = system.score(texts, batch=batch)
    return metrics.measure_text(
        texts,
        [each.log_prob for each in scored],
        [len(each.tokens) for each in scored],
        token_kind=system.target.units,
        unknown=sum(map(system.target.unknown, texts)),
    )
