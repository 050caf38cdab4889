"""How probable it is that an output is right: plain numbers, fitted on held-out rows, and the formula they are for.

Everything is computed from the log-probabilities of an output's own tokens and from whether it has an
end. Every engine and every search has these, so the same output has the same confidence in all of them.

Label smoothing (Szegedy et al. 2016) trains a model to predict p = (1 - s) q + s / V in place of the
probability q, for a vocabulary of V tokens. ``without_smoothing`` inverts that; s is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

FORMAT: Final = 1
LOWEST: Final = 0.01  # of a token's own probability: what is left of it at least when smoothing is taken away
LOWEST_TOTAL, LOWEST_TOKEN = -50.0, -20.0  # log-probabilities; below, all are alike
SMALLEST_DOUBT: Final = 1e-5  # a probability
OF_ONE: Final = (
    "total", "mean", "least", "second", "doubt", "unsure", "raw_total", "raw_mean", "tokens", "length", "unfinished",
)  # fmt: skip
FEATURES: Final = (*OF_ONE, "behind")
# Settings of a search that change which output is found. Of lists, the number of entries counts.
SETTINGS: Final = (
    "beam", "normalize", "alpha", "ctc", "stop", "min_length", "max_length", "no_repeat_ngram", "sample",
    "temperature", "top_k", "top_p", "forbidden", "forbidden_runs", "only",
)  # fmt: skip
GIVEN_PREFIX: Final = "outputs that begin with a given text"
CONSTRAINED: Final = "outputs that are held to constraints"
OF_SAMPLING: Final = ("temperature", "top_k", "top_p")


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic regression: p = 1 / (1 + exp(-(bias + Σ weight * feature)))."""

    bias: float
    weights: Mapping[str, float]  # by the name of the feature

    def probability(self, features: Mapping[str, float]) -> float:
        """Return the probability for these features."""
        exponent = self.bias + sum(weight * features[name] for name, weight in self.weights.items())
        return 1.0 / (1.0 + math.exp(-min(700.0, max(-700.0, exponent))))


@dataclass(frozen=True, slots=True)
class Confidence:
    """What turns an output of one run into the probability that it is right."""

    metric: str  # which says what is right: "exact", or a metric with a threshold
    threshold: float | None  # an output is right if it is at least as good as this; None: if it equals a reference
    smoothing: float  # s in the formula above
    vocabulary: int  # V
    best: Logistic  # of the first output, and of samples
    others: Logistic | None  # of the second and later outputs of a beam; None: they have no confidence
    search: Mapping[str, Any]  # ``search_facts`` of the search that it was fitted with
    fitted: Mapping[str, Any] = field(default_factory=dict)  # on how many rows, how well, and what else was tried

    def log_probs(self, log_probs: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the log-probabilities of tokens without the label smoothing of training."""
        return without_smoothing(np.asarray(log_probs, np.float64), self.smoothing, self.vocabulary)

    def features(self, log_probs: Sequence[float], finished: bool) -> dict[str, float]:
        """Return what is known about one output, from the log-probabilities of its tokens."""
        return output_features(log_probs, finished, self.smoothing, self.vocabulary)

    def rate(self, outputs: Sequence[tuple[Sequence[float], bool]], *, sampled: bool = False) -> list[float | None]:
        """Return the probability that each output of an input is right; None: it is not known.

        An output is given by the log-probabilities of its tokens and whether it is finished. They are
        best first, or ``sampled``.
        """
        rated: list[float | None] = []
        totals: list[float] = []
        for log_probs, finished in outputs:
            features = self.features(log_probs, finished)
            totals.append(features["total"])
            if sampled or len(totals) == 1:
                rated.append(self.best.probability(features))
            elif self.others is None:
                rated.append(None)
            else:
                rated.append(self.others.probability({**features, "behind": totals[0] - totals[-1]}))
        return rated

    def describe(self) -> str:
        """Return what an output has to be to count as right, in words."""
        if self.threshold is None:
            return "equals a reference"
        order = "at most" if self.metric in ("cer", "wer", "ser") else "at least"
        return f"has a sentence {self.metric} of {order} {self.threshold:.1f}"

    @property
    def is_constant(self) -> bool:
        """Whether every first output has the same confidence: nothing told right dev outputs from wrong ones."""
        return not self.best.weights

    def differences(self, search: Mapping[str, Any]) -> list[str]:
        """Return in which settings a search differs from the one that this was fitted with, in words."""
        sampled = bool(search.get("sample"))
        names = [name for name in self.search if name in search and search[name] != self.search[name]]
        if sampled and "sample" in names:
            names = ["sample"]
        return [f"{name} = {search[name]} in place of {self.search[name]}" for name in names]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for ``json.dumps``."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, plain: Any) -> Confidence:
        """Return what ``to_json`` made these values of. Raise a ``ValueError`` for anything else."""
        try:
            if plain["format"] != FORMAT:
                raise ValueError(f"its format is {plain['format']!r}, and this version reads {FORMAT}")
            threshold, others = plain["threshold"], plain["others"]
            read = cls(
                str(plain["metric"]),
                None if threshold is None else _number(threshold),
                _number(plain["smoothing"]),
                int(plain["vocabulary"]),
                _logistic(plain["best"], OF_ONE),
                None if others is None else _logistic(others, FEATURES),
                dict(plain["search"]),
                dict(plain.get("fitted", {})),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it does not have the numbers of a confidence ({error!r})") from None
        if not -1.0 <= read.smoothing < 1.0 or read.vocabulary < 1:
            raise ValueError("its smoothing is no share of a probability")
        return read


CONSTANT: Final = (
    "the confidence is the same for every output, because the rows that it was fitted on do not tell right outputs "
    "from wrong ones; fit it on more rows (dragoman calibrate)"
)


def describe_differences(differences: Sequence[str]) -> str | None:
    """Return why a confidence may be off, as a sentence; None: the search is the one it was fitted with."""
    if not differences:
        return None
    here = "; ".join(differences)
    return f"the confidence was fitted for another search (here: {here}), so it may be too high or too low"


def without_smoothing(log_probs: np.ndarray, smoothing: float, vocabulary: int) -> np.ndarray:
    """Return what log-probabilities would be without label smoothing. A higher one stays the higher one."""
    probabilities = np.exp(log_probs)
    without = (probabilities - smoothing / vocabulary) / (1.0 - smoothing)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, as before
        return np.asarray(np.log(np.minimum(1.0, np.maximum(without, LOWEST * probabilities))))


def output_features(
    log_probs: Sequence[float] | np.ndarray, finished: bool, smoothing: float, vocabulary: int
) -> dict[str, float]:
    """Return the features of an output whose tokens have these log-probabilities."""
    raw = np.asarray(log_probs, np.float64) if len(log_probs) else np.zeros(1)
    own = np.sort(np.maximum(LOWEST_TOKEN, without_smoothing(raw, smoothing, vocabulary)))
    total, raw_total = max(LOWEST_TOTAL, float(own.sum())), max(LOWEST_TOTAL, float(raw.sum()))
    return {
        "total": total,
        "mean": total / len(own),
        "least": float(own[0]),
        "second": float(own[1]) if len(own) > 1 else 0.0,
        "doubt": math.log(max(SMALLEST_DOUBT, -math.expm1(total))),  # of beta calibration (Kull et al. 2017)
        "unsure": -float(np.expm1(own).sum()),  # tokens that are wrong, by expectation
        "raw_total": raw_total,
        "raw_mean": raw_total / len(own),
        "tokens": float(len(own)),
        "length": math.log(len(own)),
        "unfinished": float(not finished),
    }


def search_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a search that a confidence depends on."""
    facts: dict[str, Any] = {}
    for name in SETTINGS:
        if name in settings and (bool(settings.get("sample")) or name not in OF_SAMPLING):
            value = settings[name]
            facts[name] = len(value) if isinstance(value, (tuple, list)) else value
    if facts.get("sample"):
        facts = {name: value for name, value in facts.items() if name not in ("beam", "stop", "normalize", "alpha")}
    elif facts.get("normalize") != "gnmt":
        facts.pop("alpha", None)
    if facts.get("beam") == 1:
        facts = {name: value for name, value in facts.items() if name not in ("stop", "normalize", "alpha")}
    return facts


def _logistic(plain: Mapping[str, Any], known: Sequence[str]) -> Logistic:
    weights = {str(name): _number(weight) for name, weight in plain["weights"].items()}
    if unknown := [name for name in weights if name not in known]:
        raise ValueError(f"it has a weight for {unknown[0][:40]!r}, which is unknown")
    return Logistic(_number(plain["bias"]), weights)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("one of its numbers is not finite")
    return number
