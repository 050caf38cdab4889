"""How long training will take, the work after its last update included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragoman.data.examples import references
from dragoman.data.splits import Data, validation_sample
from dragoman.recipe.schema import Recipe
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.events import Stepped

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


def expect_last_update(
    last: int | None, limit: float | None, first: Stepped | None, step: Stepped | None, ending: float
) -> int | None:
    """Return the update at which training ends: the last one, or the one that a time limit lets it get to.

    ``first`` and ``step`` are the first and the latest report since the program started, between which the speed is
    measured; ``ending`` are the seconds of the work after the last update. None: it cannot be told yet.
    """
    if limit is None:
        return last
    if step is None or first is None or step.update == first.update:
        return None
    per_update = (step.seconds - first.seconds) / (step.update - first.update)
    left = max(0.0, limit - kept_of_limit(limit, ending) - step.seconds)
    reached = step.update + round(left / max(per_update, 1e-9))
    return reached if last is None else min(last, reached)


def expect_seconds_left(last: int | None, limit: float | None, first: Stepped, step: Stepped) -> float | None:
    """Return the seconds until the last update or until the time limit, whichever is sooner; None: both are unknown."""
    updates = step.update - first.update
    seconds = [] if limit is None else [max(0.0, limit - step.seconds)]
    if updates and last is not None:
        seconds.append((step.seconds - first.seconds) / updates * (last - step.update))
    return min(seconds, default=None)


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
