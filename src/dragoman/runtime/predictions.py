"""What a model gives back for an input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, repr=False)
class Output:
    """One output for one input."""

    text: str
    score: float  # what the search ranked by
    tokens: tuple[str, ...]  # with the end symbol, if it was produced
    log_probs: tuple[float, ...]  # of each token
    finished: bool  # False: cut off at the length limit
    entropies: tuple[float, ...] = ()  # of the model's distribution before each token, in nats
    attention: np.ndarray | None = None  # (T, A, S) on request: where each token looked, one map per layer and head
    confidence: float | None = None  # the probability that it is right; None: the file has no numbers for it

    def __repr__(self) -> str:
        unfinished = "" if self.finished else ", unfinished"
        return f"Output({self.text!r}, score {self.score:.3f}{unfinished})"

    @property
    def log_prob(self) -> float:
        """Return the log-probability of the whole output."""
        return float(sum(self.log_probs))


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The outputs for one input, best first. ``text``, ``score``, … are those of the best output."""

    source: Any
    outputs: tuple[Output, ...]
    labels: Mapping[str, tuple[str, ...]]  # of text sources: the tokens that the model read
    error: str | None = None  # why there is no output
    confidence_note: str | None = None  # why the confidence may be off: the search was not the one it was fitted with
    abstained: bool = False  # the output was left out, because it was less sure than asked for

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Prediction({self.source!r}, error {self.error!r})"
        return f"Prediction({self.source!r} → {self.text!r}, score {self.score:.3f})"

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def score(self) -> float:
        return self.outputs[0].score

    @property
    def log_prob(self) -> float:
        return self.outputs[0].log_prob

    @property
    def confidence(self) -> float | None:
        return self.outputs[0].confidence

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.outputs[0].tokens

    @property
    def log_probs(self) -> tuple[float, ...]:
        return self.outputs[0].log_probs

    @property
    def finished(self) -> bool:
        return self.outputs[0].finished

    @property
    def attention(self) -> np.ndarray | None:
        return self.outputs[0].attention

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        names = ("text", "score", "log_prob", "tokens", "log_probs", "finished")
        outputs = [
            {name: getattr(each, name) for name in names}
            | ({} if each.confidence is None else {"confidence": each.confidence})
            for each in self.outputs
        ]
        plain: dict[str, Any] = {"outputs": outputs}
        more = {"confidence_note": self.confidence_note, "abstained": self.abstained, "error": self.error}
        return plain | {name: value for name, value in more.items() if value}
