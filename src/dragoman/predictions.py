"""What a system gives back for an input, and how long an output may get."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dragoman.config import Section
from dragoman.types import Axis, Trace

Raw = str | Mapping[str, str]  # one source, or several by name


class Lengths(Section):
    """How long an output may get, learnt from the training pairs: source length times ``ratio``, plus ``extra``."""

    ratio: float = 2.0
    extra: int = 10
    most: int = 500

    @classmethod
    def of(cls, source: Sequence[int], target: Sequence[int]) -> Lengths:
        longest = max(target, default=1)
        if not source or max(source) == 0:  # a language model: so much behind the prompt
            return cls(ratio=0.0, extra=2 * longest, most=2 * longest)
        ratios = np.asarray(target) / np.maximum(np.asarray(source), 1)
        return cls(ratio=round(1.25 * float(np.quantile(ratios, 0.999)), 3), extra=10, most=2 * longest + 10)

    def limit(self, source: int) -> int:
        return min(self.most, math.ceil(self.ratio * source) + self.extra)


def read_before(source: Sequence[str], tokens: Sequence[str], reads_source: bool) -> list[str]:
    """The columns of an output's self-attention: the start symbol and the tokens behind it, and before them the
    positions of the source, where one network reads both."""
    return [*(source if reads_source else ()), "<s>", *tokens[:-1]]


@dataclass(frozen=True, slots=True)
class Output:
    """One output for one input."""

    text: str
    score: float  # what the search ranked by
    log_prob: float  # of the whole output
    tokens: tuple[str, ...]  # the end symbol included if it was produced
    log_probs: tuple[float, ...]  # one a token
    finished: bool  # False: cut off at the length limit
    attention: np.ndarray | None  # (T, A, S), rows as in ``tokens``; maps layer by layer, in a layer head by head
    self_attention: np.ndarray | None = None
    """(L, H, T, P) when asked for; columns: ``read_before``."""

    def to_json(self, maps: bool = False) -> dict[str, Any]:
        """With ``maps``: attention map by map too, and self-attention."""
        plain = {name: getattr(self, name) for name in ("text", "score", "log_prob", "tokens", "log_probs", "finished")}
        if self.attention is not None:
            plain["attention"] = np.round(self.attention.mean(1), 5).tolist()
        if maps:
            plain["attention_maps"] = _rounded(None if self.attention is None else self.attention.transpose(1, 0, 2))
            plain["self_attention"] = _rounded(self.self_attention)
        return plain


@dataclass(frozen=True, slots=True)
class Prediction:
    """All that was found for one input. ``text``, ``score``, … are those of the best output."""

    source: Raw
    outputs: tuple[Output, ...]  # best first
    axes: Mapping[str, Axis] = field(default_factory=dict)  # the S axis of attention: the sources, one behind the other
    trace: Trace | None = None
    self_attention: np.ndarray | None = (
        None  # (L, H, S, S) of the encoder, when asked for; of several sources that of the joint one
    )
    error: str | None = None  # why there is no output: a file that cannot be read

    @property
    def labels(self) -> tuple[str, ...]:
        """One a position of the S axis of attention."""
        return tuple(label for axis in self.axes.values() for label in axis.labels)

    def spans(self) -> list[dict[str, Any]]:
        """Which positions of the S axis belong to which source: from ``begin`` to before ``end``."""
        found: list[dict[str, Any]] = []
        begin = 0
        for name, axis in self.axes.items():
            span = {"name": name, "kind": axis.kind, "begin": begin, "end": begin + len(axis.labels)}
            told = {"grid": axis.grid, "seconds": axis.seconds}
            found.append(span | {key: value for key, value in told.items() if value is not None})
            begin += len(axis.labels)
        return found

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def score(self) -> float:
        return self.outputs[0].score

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.outputs[0].tokens

    @property
    def log_probs(self) -> tuple[float, ...]:
        return self.outputs[0].log_probs

    @property
    def attention(self) -> np.ndarray | None:
        return self.outputs[0].attention

    def to_json(self, maps: bool = False) -> dict[str, Any]:
        plain = {
            "source": self.source,
            "labels": list(self.labels),
            "sources": self.spans(),
            "outputs": [output.to_json(maps) for output in self.outputs],
        }
        if self.error is not None:
            plain["error"] = self.error
        return plain | ({"self_attention": _rounded(self.self_attention)} if maps else {})


@dataclass(frozen=True, slots=True)
class Scored:
    """What the model thinks of a given target."""

    log_prob: float
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]

    @property
    def perplexity(self) -> float:
        return math.exp(min(700.0, -self.log_prob / max(1, len(self.tokens))))


def texts_of(predictions: Iterable[Prediction]) -> list[str]:
    return [prediction.text for prediction in predictions]


def _rounded(weights: np.ndarray | None) -> list[Any] | None:
    return None if weights is None else np.round(weights, 5).tolist()
