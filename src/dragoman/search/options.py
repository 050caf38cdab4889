"""The settings of search: what is chosen, when to stop, how outputs of different length compare."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dragoman.config import ConfigError, Section

Natural = Annotated[int, Field(ge=0)]
Width = Annotated[int, Field(ge=1, le=10_000)]  # memory grows with it

SAMPLING = ("samples", "temperature", "top_k", "top_p", "seed")  # settings of sampling alone
SEARCHING = ("beam", "stop")  # settings of search alone


class SearchConfig(Section):
    """Greedy (``beam = 1``), beam search, or sampling (``sample = true``; ``beam`` and ``n_best`` are then unused).

    ``normalize`` is how the sum of log-probabilities becomes the score that outputs are ranked by. |y| counts all
    tokens of the output, the end symbol and a forced prefix included:

    - ``none``: the sum itself;
    - ``average``: sum / |y|;
    - ``gnmt``: sum / ((5 + |y|) / 6) ** alpha (Wu et al. 2016, equation 14, without the coverage term).

    ``stop`` is when a beam is done:

    - ``complete``: a finished hypothesis leaves the frontier and the beam shrinks by one, until ``beam`` are complete;
    - ``certain``: the beam keeps its width and stops as soon as no live hypothesis can still beat the ``n_best`` best
      finished ones (Huang, Zhao and Ma 2017, "When to Finish?"). Log-probabilities only lower a sum, so a live
      hypothesis can at best keep its sum and, where normalisation favours length, finish at the limit. For ``none``
      this stops early; for ``average`` and ``gnmt`` the bound is loose and the search may run to the limit.

    A beam of one is greedy search under either rule. At the length limit live hypotheses are cut off: they are
    returned as unfinished, and only where fewer than ``n_best`` hypotheses finished, since a loop that runs into the
    limit would otherwise win by its high average.
    """

    beam: Width = 5
    """Width of the beam. 1: greedy search."""
    n_best: Width = 1
    """Number of outputs per source."""
    normalize: Literal["none", "average", "gnmt"] = "average"
    alpha: Annotated[float, Field(ge=0)] = 0.6
    """Exponent of gnmt."""
    ctc: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Weight of CTC in the ranking, for runs trained with CTC."""
    stop: Literal["complete", "certain"] = "complete"

    min_length: Natural = 0
    """Fewest tokens before the end symbol."""
    max_length: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Most tokens, the end symbol included."""
    no_repeat_ngram: Natural = 0
    """No n-gram of this size occurs twice in an output. 0: off."""
    forbidden: tuple[Natural, ...] = ()
    """Token ids that are never produced."""
    forbidden_runs: tuple[tuple[Natural, ...], ...] = ()
    """Sequences of token ids that are never produced, such as words of several tokens."""

    only: tuple[tuple[Natural, ...], ...] = ()
    """Sequences of token ids of which each output is one, such as the labels of a classifier. Empty: any output."""

    sample: bool = False
    samples: Width = 1
    """Number of independent outputs per source."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_k: Natural = 0
    """Sample from the k most likely tokens. 0: from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the fewest tokens that together have this probability."""
    seed: Natural = 0

    @model_validator(mode="after")
    def _is_possible(self) -> SearchConfig:
        if not self.sample and self.n_best > self.beam:
            raise ValueError(f"n_best = {self.n_best} needs a beam at least as wide, but beam = {self.beam}")
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ValueError(
                f"min_length = {self.min_length} leaves no room for the end symbol: max_length = {self.max_length}"
            )
        return self

    def refuse_without_effect(self, given: Collection[str]) -> None:
        """Raise an error if one of the settings that were given cannot change anything beside the others."""
        for name in (name for name in SAMPLING if name in given and not self.sample):
            raise ConfigError(
                f"search: {name} has an effect on sampling only; sample as well (sample = true, --sample), or leave "
                f"{name} out"
            )
        for name in (name for name in SEARCHING if name in given and self.sample and "sample" in given):
            raise ConfigError(f"search: {name} has no effect on sampling (sample = true); leave one of the two out")
        if "stop" in given and self.beam == 1:
            raise ConfigError("search: stop is the stopping rule of a beam, and beam = 1 is greedy; leave it out")
        if "alpha" in given and self.normalize != "gnmt":
            raise ConfigError(
                f"search: alpha is the exponent of normalize = gnmt, but normalize = {self.normalize}; set "
                "normalize = gnmt (--normalize gnmt) as well, or leave alpha out"
            )

    def refuse_many_hypotheses(self) -> None:
        """Refuse settings under which a source has several hypotheses, so that its output is not known till the end."""
        if self.sample and self.samples > 1:
            raise ConfigError("search: tokens can be followed for one sample only; leave n_best and samples out")
        if not self.sample and self.beam > 1:
            raise ConfigError(
                f"search: tokens can be followed in greedy search and sampling only, and beam = {self.beam} chooses "
                "its output at the end; set beam = 1, or sample"
            )

    def penalty(self, length: int) -> float:
        """Return what the summed log-probability of an output of ``length`` tokens is divided by."""
        if self.normalize == "average":
            return float(max(length, 1))
        if self.normalize == "gnmt":
            return float(((5 + length) / 6) ** self.alpha)
        return 1.0
