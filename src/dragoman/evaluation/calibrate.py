"""Fit the confidence of a system on rows that it was not trained on: how probable it is that an output is right.

An output is right if it equals a reference. Where sentences are judged by BLEU or chrF, it is right if
its sentence chrF is at least the median over these rows. The confidence is a logistic regression on
what the search knows about an output (``runtime/confidence.py``). Which features it gets, and how
strongly it is regularised, is decided by the log loss of a cross-validation. The targets of the
regression are those of Platt (1999), so that no confidence is 0 or 1, even if all rows are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dragoman.data.examples import Example, identity
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import Decoded, OnProgress, decode
from dragoman.evaluation.metrics import choose_metrics, compute_statistics
from dragoman.evaluation.metrics.calibration import ConfidenceReport, judge, measure_confidence
from dragoman.inference.predictions import Output, texts_of
from dragoman.inference.system import System
from dragoman.runtime.confidence import (
    FEATURES,
    OF_ONE,
    Confidence,
    Logistic,
    output_features,
    search_facts,
    without_smoothing,
)

BY_THRESHOLD = ("bleu", "chrf")  # headline metrics of sentences, of which more than one may be right
SHARES = np.linspace(-0.2, 0.4, 121)  # of smoothing, of which one is taken; below 0: probabilities are too high
SMALLEST = 1e-4  # probability that a token is wrong: so few tokens cannot show less
FOLDS = 10
HALF = 0.5  # standard errors by which a more complex candidate has to be better
FEWEST = 10  # outputs; with fewer, the share of right ones is all that can be learnt
# What is tried, the simplest first: features, and the weight of the penalty on squared weights.
CANDIDATES: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("share of right outputs", (), 1.0),
    ("log-probability", ("total",), 1.0),
    ("mean log-probability", ("raw_mean",), 1.0),
    ("least probable token", ("least",), 1.0),
    ("log-probability, both ends", ("total", "doubt"), 1.0),
    ("all features, strongly regularised", OF_ONE, 30.0),
    ("all features, regularised", OF_ONE, 3.0),
    ("all features", OF_ONE, 0.3),
)
OTHERS_PENALTY = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Fit:
    """A fitted confidence, and how good it is."""

    confidence: Confidence
    report: ConfidenceReport  # of each row by numbers that were fitted without it
    decoded: Decoded  # the rows, with the new confidence in their predictions

    def __repr__(self) -> str:
        return f"Fit({self.report.rows:,} rows, expected calibration error {100 * self.report.error:.2f} points)"

    def to_json(self) -> dict[str, Any]:
        """Return the numbers and the report as plain values, ready for ``json.dumps``."""
        return {"confidence": self.confidence.to_json(), "report": asdict(self.report)}

    def to_text(self) -> str:
        """Return what was fitted and how good it is, for people."""
        facts = self.confidence.fitted
        lines = [
            f"  fitted on {facts['rows']:,} rows by: {facts['chosen']}",
            f"  log loss {facts['log_loss']:.4f} by {facts['folds']}-fold cross-validation "
            f"(without any feature {facts['baseline']:.4f})",
            *self.report.to_lines(),
        ]
        return "\n".join(lines) + "\n"


def fit_confidence(
    system: System,
    examples: Sequence[Example],
    *,
    headline: str | None = None,
    batch: int = 64,
    workers: int | None = 1,
    on_progress: OnProgress | None = None,
    **search: Any,
) -> Fit:
    """Fit the confidence of a system, with its own search settings changed by ``search``.

    ``headline`` is the metric that the run is judged by; by default the one that fits the targets.
    """
    if system.is_language_model:
        raise UserError("a language model's outputs are neither right nor wrong, so they have no confidence")
    if not examples:
        raise UserError("there is no row to fit a confidence on; dragoman check says why")
    config = system.search_config(**search)
    width = {} if config.sample else {"n_best": config.beam}  # a beam has found them anyway
    asked = {**search, **width}
    decoded = decode(system, examples, batch=batch, workers=workers, on_progress=on_progress, **asked)
    metric, threshold = choose_criterion(system, decoded, headline)
    first = [targets[0] for targets in decoded.references]
    likeliest, hits = system.session().likeliest_tokens(decoded.sources, first, batch=batch)
    smoothing = fit_smoothing(likeliest, hits, system.target.size)

    def describe(output: Output) -> dict[str, float]:
        return output_features(output.log_probs, output.finished, smoothing, system.target.size)

    answered = [row for row, prediction in enumerate(decoded.predictions) if prediction.tokens]
    if not answered:
        raise UserError("no row has an output to fit a confidence on; give other rows")
    outputs = [decoded.predictions[row].outputs for row in answered]
    references = [decoded.references[row] for row in answered]
    right = judge(metric, threshold, [each[0].text for each in outputs], references)
    features = [describe(each[0]) for each in outputs]
    best, held_out, facts = choose_logistic(features, right)
    others: Logistic | None = None
    later = [
        (output, each[0], options) for each, options in zip(outputs, references, strict=True) for output in each[1:]
    ]
    if len(later) >= FEWEST and not config.sample:
        found = judge(metric, threshold, [output.text for output, _, _ in later], [options for *_, options in later])
        known = [
            own | {"behind": describe(first)["total"] - own["total"]}
            for own, first in ((describe(output), first) for output, first, _ in later)
        ]
        others = fit_logistic(known, found, FEATURES, OTHERS_PENALTY)
    confidence = Confidence(
        metric, threshold, smoothing, system.target.size, best, others, search_facts(config.model_dump()), facts
    )
    report = measure_confidence(held_out.tolist(), right.tolist(), confidence.describe())
    assert report is not None
    return Fit(confidence, report, _rated(decoded, confidence, config.sample))


def choose_criterion(system: System, decoded: Decoded, headline: str | None) -> tuple[str, float | None]:
    """Return the metric that says which outputs are right, and its threshold; None: a reference has to be met."""
    if headline is None:
        first = [targets[0] for targets in decoded.references]
        own = system.recipe.metric
        headline = own if own != "auto" else choose_metrics(system.target.kind, first, len(system.classes)).headline
    if headline not in BY_THRESHOLD or system.classes:
        return "exact", None
    scores = compute_statistics("chrf", texts_of(decoded.predictions), decoded.references).row_scores()
    return "chrf", float(np.median(scores))


def fit_smoothing(likeliest: np.ndarray, hits: np.ndarray, vocabulary: int) -> float:
    """Return the share of smoothing without which the probabilities of tokens are most believable.

    ``likeliest`` are log-probabilities of the likeliest token at each place of the references, and
    ``hits`` whether it is the token of the reference. Their log loss is a proper score.
    """
    losses = []
    for share in SHARES:
        sure = np.minimum(np.exp(without_smoothing(likeliest, share, vocabulary)), 1 - SMALLEST)
        losses.append(float(-np.mean(np.where(hits, np.log(sure), np.log(1 - sure)))))
    return float(np.round(SHARES[int(np.argmin(losses))], 6))


def choose_logistic(
    features: Sequence[dict[str, float]], right: np.ndarray
) -> tuple[Logistic, np.ndarray, dict[str, Any]]:
    """Return the best of ``CANDIDATES``, the confidence of each row by a fit without it, and facts about the fit."""
    rows = len(right)
    folds = min(FOLDS, rows)
    fold_of_row = np.random.default_rng(0).permutation(rows) % folds
    tried = CANDIDATES if rows >= FEWEST else CANDIDATES[:1]
    found = [_cross_validate(features, right, names, penalty, fold_of_row) for _, names, penalty in tried]
    losses = np.array([log_losses(each, right) for each in found])  # (candidates, rows)
    place = _simplest(losses)
    title, names, penalty = tried[place]
    means = {candidate[0]: float(mean) for candidate, mean in zip(tried, losses.mean(1), strict=True)}
    facts: dict[str, Any] = {"rows": rows, "right": int(right.sum()), "folds": folds, "chosen": title}
    facts |= {"log_loss": means[title], "baseline": means[tried[0][0]], "candidates": means}
    return fit_logistic(features, right, names, penalty), found[place], facts


def _simplest(losses: np.ndarray) -> int:
    """Return the first candidate that the best one does not beat by more than half a standard error."""
    behind = losses - losses[int(losses.mean(1).argmin())]  # (candidates, rows)
    margin = HALF * behind.std(1) / np.sqrt(behind.shape[1])
    return int(np.argmax(behind.mean(1) <= margin))


def fit_logistic(
    features: Sequence[dict[str, float]], right: np.ndarray, names: Sequence[str], penalty: float
) -> Logistic:
    """Fit a logistic regression by Newton's method. The penalty is on weights of standardised features."""
    table = np.array([[each[name] for name in names] for each in features], float).reshape(len(features), len(names))
    centre, scale = table.mean(0), table.std(0)
    varies = scale > 1e-9
    design = np.c_[np.ones(len(table)), np.where(varies, (table - centre) / np.where(varies, scale, 1.0), 0.0)]
    hits = float(right.sum())
    wanted = np.where(right, (hits + 1) / (hits + 2), 1 / (len(right) - hits + 2))  # Platt (1999)
    ridge = np.diag([1e-9, *[penalty] * len(names)])
    weights = np.zeros(design.shape[1])

    def loss(weights: np.ndarray) -> float:
        exponents = design @ weights
        return float((np.logaddexp(0, exponents) - wanted * exponents).sum() + weights @ ridge @ weights / 2)

    for _ in range(100):
        found = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -700.0, 700.0)))
        gradient = design.T @ (found - wanted) + ridge @ weights
        curvature = (design * (found * (1 - found))[:, None]).T @ design + ridge
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(weights)), gradient)
        while loss(weights - step) > loss(weights) and np.abs(step).max() > 1e-9:
            step = step / 2  # a whole step of Newton's may overshoot where nearly all is right
        weights = weights - step
        if np.abs(step).max() < 1e-8:
            break
    own = np.where(varies, weights[1:] / np.where(varies, scale, 1.0), 0.0)
    by_name = {name: float(weight) for name, weight in zip(names, own, strict=True) if weight}
    return Logistic(float(weights[0] - own @ centre), by_name)


def log_losses(confidences: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the negative log-likelihood of what was right, (rows,)."""
    sure = np.clip(confidences, 1e-9, 1 - 1e-9)
    return np.asarray(-np.where(right, np.log(sure), np.log(1 - sure)))


def even_sample(examples: Sequence[Example], most: int) -> list[Example]:
    """Return the rows of an even sample of the distinct sources, if there are more than ``most``."""
    sources = list(dict.fromkeys(map(identity, examples)))
    if len(sources) <= most:
        return list(examples)
    kept = {sources[index * len(sources) // most] for index in range(most)}
    return [example for example in examples if identity(example) in kept]


def _cross_validate(
    features: Sequence[dict[str, float]], right: np.ndarray, names: Sequence[str], penalty: float, folds: np.ndarray
) -> np.ndarray:
    """Return the confidence of each row by a fit on the other folds."""
    found = np.zeros(len(right))
    for fold in range(int(folds.max()) + 1):
        inside = [row for row, own in enumerate(folds) if own == fold]
        outside = [row for row, own in enumerate(folds) if own != fold]
        if not outside:  # a single row
            return np.full(len(right), 0.5)
        logistic = fit_logistic([features[row] for row in outside], right[outside], names, penalty)
        found[inside] = [logistic.probability(features[row]) for row in inside]
    return found


def _rated(decoded: Decoded, confidence: Confidence, sampled: bool) -> Decoded:
    """Return the decoded rows with the best output alone and its new confidence."""
    predictions = []
    for prediction in decoded.predictions:
        best = prediction.outputs[0]
        own = confidence.rate([(best.log_probs, best.finished)], sampled=sampled)[0] if best.tokens else None
        predictions.append(replace(prediction, outputs=(replace(best, confidence=own),), confidence_note=None))
    return replace(decoded, predictions=predictions)
