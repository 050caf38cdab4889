"""Learning-rate schedules: pure functions of the update, except for the plateau."""

from __future__ import annotations

import math

from dragoman.recipe.training import OptimConfig


def learning_rate(config: OptimConfig, update: int, last_update: int, reductions: int) -> float:
    """Return the learning rate of ``update`` (from 1).

    ``last_update`` is the end of the cosine; ``reductions`` counts the plateaus so far.
    """
    rate = config.learning_rate
    warm = min(1.0, update / config.warmup) if config.warmup else 1.0
    if config.schedule == "inverse-sqrt":
        return rate * warm * math.sqrt(max(config.warmup, 1) / max(update, config.warmup, 1))
    if config.schedule == "cosine":
        progress = min(1.0, max(0.0, (update - config.warmup) / max(1, last_update - config.warmup)))
        share = config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * progress))
        return rate * warm * share
    if config.schedule == "plateau":
        return rate * warm * config.plateau_factor**reductions
    return rate * warm
