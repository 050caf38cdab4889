"""Notice that training has failed: the loss is worse than that of a model that guesses, and stays so."""

from __future__ import annotations

import math

from dragoman.training.checkpoints.progress import Progress

SUSTAINED = 100  # updates in a row, after the warm-up
DOUBTFUL = 10  # updates in a row after which training cannot end well
MARGIN = 1.1  # times the loss of a guess, or of the first update if that was worse
MOST_SKIPPED = 20  # updates with a gradient that is not finite


def record_loss(progress: Progress, loss: float, vocabulary: int) -> None:
    """Count the updates in a row whose loss is above that of a guess among ``vocabulary`` tokens.

    A model that has not learnt anything may be a little worse than a guess. So the limit is never
    below the loss of the first update: only a model that has become worse counts.
    """
    if progress.first_loss is None and math.isfinite(loss):
        progress.first_loss = loss
    limit = MARGIN * max(math.log(vocabulary), progress.first_loss or 0.0)
    progress.above = 0 if loss <= limit else progress.above + 1


def find_divergence(progress: Progress, vocabulary: int, warmup: int, *, ends: bool) -> str:
    """Return how training has diverged, or nothing. ``ends``: no further update will be made."""
    if progress.skipped > MOST_SKIPPED:
        return f"the gradient was not finite in {progress.skipped} updates"
    enough = DOUBTFUL if ends else SUSTAINED
    if progress.above >= enough and (ends or progress.update > warmup):
        return (
            f"for {progress.above:,} updates the loss has been far above {math.log(vocabulary):.2f}, which a uniform "
            f"guess among the {vocabulary:,} tokens has"
        )
    return ""
