"""How long training will take, the work after its last update included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragoman.data.examples import references
from dragoman.data.splits import Data, validation_sample
from dragoman.recipe.schema import Recipe
from dragoman.training.checkpoints.progress import Progress

MOST_OF_LIMIT = 0.5  # the largest share of a time limit that is kept for the work after the last update
# Measured on recurrent models and Transformers: a validation takes about as long as training on twice its tokens,
# and an evaluation with a beam of 5 up to twice as long as a validation of as many sources.
TRAINED_TOKENS = 2.0
BEAM_COST = 0.2


@dataclass(frozen=True, slots=True)
class Ending:
    """The work that follows the last update: a last validation, one of the averaged weights, the evaluation."""

    tokens: int = 0  # target tokens that a validation reads
    validations: float = 0.0  # how many validations the work is worth

    def seconds(self, validation: float, per_token: float) -> float:
        """Forecast how long the work takes.

        ``validation`` is how long the last one took; 0 before the first, when the forecast is made
        from ``per_token``, the seconds that training takes per target token.
        """
        return self.validations * (validation or TRAINED_TOKENS * per_token * self.tokens)

    def is_due(self, progress: Progress, limit: float) -> bool:
        """Tell whether it is time for this work, so that training ends within ``limit`` seconds."""
        expected = self.seconds(progress.validation_seconds, progress.seconds / max(progress.tokens, 1))
        return progress.seconds + kept_of_limit(limit, expected) >= limit


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long training is expected to take, at the speed that was measured."""

    per_update: float  # seconds
    updates: int  # that are left to do
    ending: float  # seconds of the work after the last update
    limit: float | None = None  # seconds that are left of a time limit

    @property
    def training(self) -> float:
        """Return the seconds of all updates."""
        return self.per_update * self.updates

    @property
    def updates_within_limit(self) -> int:
        """Return how many updates are done before the time limit ends training."""
        if self.limit is None:
            return self.updates
        return min(self.updates, max(1, int((self.limit - self.kept) / self.per_update)))

    @property
    def kept(self) -> float:
        """Return the seconds of the limit that are kept for the work after the last update."""
        return 0.0 if self.limit is None else kept_of_limit(self.limit, self.ending)


def kept_of_limit(limit: float, ending: float) -> float:
    """Return how many seconds of a time limit are kept for the work after the last update."""
    return min(ending, MOST_OF_LIMIT * limit)


def foresee_ending(data: Data, recipe: Recipe, target_lengths: np.ndarray) -> Ending:
    """Foresee the work after the last update from the number of rows. ``target_lengths``: of the training rows."""
    rows = data.test or data.dev
    if recipe.is_language_model:
        evaluation = len(rows) / len(data.dev)
    else:
        share = len(references(rows)) / len(validation_sample(data.dev))
        evaluation = share * (1 + BEAM_COST * recipe.search.beam)
    tokens = len(data.dev) * (1 + int(target_lengths.sum(dtype=np.int64)) // max(len(target_lengths), 1))
    return Ending(tokens, 1 + (recipe.training.average > 1) + evaluation)
