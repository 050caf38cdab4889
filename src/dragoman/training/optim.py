"""Optimisers and learning-rate schedules. A schedule is a pure function of the update, except for the plateau."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch
from pydantic import Field

from dragoman.config import Section
from dragoman.training.muon import Muon


class OptimConfig(Section):
    kind: Literal["adam", "adamw", "muon"] = "adam"  # muon: orthogonal steps for matrices, adamw for the rest
    learning_rate: float = Field(1e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "inverse-sqrt", "cosine", "plateau"] = "inverse-sqrt"
    warmup: int = Field(100, ge=0)  # updates from 0 to the full rate
    final_share: float = Field(0.05, ge=0, le=1)  # cosine: what is left of the rate at the end
    plateau_factor: float = Field(0.5, gt=0, lt=1)  # plateau: the rate is multiplied by this
    plateau_patience: int = Field(2, ge=0)  # plateau: after so many validations without improvement
    clip: float = Field(1.0, ge=0)  # largest norm of the gradient; 0 = no clipping


def make_optimizer(
    config: OptimConfig,
    parameters: list[torch.nn.Parameter],
    matrices: Mapping[torch.nn.Parameter, int] = MappingProxyType({}),
) -> torch.optim.Optimizer:
    """``matrices``: which of the parameters may take orthogonal steps, and of how many parts each is made."""
    if config.kind == "muon":
        chosen = {parameter: matrices[parameter] for parameter in parameters if parameter in matrices}
        rest = make_adam(config, [parameter for parameter in parameters if parameter not in matrices])
        return Muon(chosen, rest, config.weight_decay) if chosen else rest
    return make_adam(config, parameters)


def make_adam(config: OptimConfig, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    build = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return build(
        [{"params": parameters}],  # there may be none
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def gradient_norm(parameters: list[torch.nn.Parameter]) -> float:
    """Of all gradients together: products of vectors with themselves, twice as fast here as their norms."""
    gradients = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    squares = torch.stack([torch.dot(g, g) for g in gradients])
    return math.sqrt(float(squares.sum(dtype=torch.float64)))


def clipped_step(optimizer: torch.optim.Optimizer, norm: float, limit: float) -> None:
    """A step with gradients of at most this norm (0 = any). The step itself divides them: no pass of their own."""
    scale = max(1.0, norm / limit) if limit else 1.0
    if scale > 1:
        first = optimizer.param_groups[0]["params"][0]
        optimizer.grad_scale = torch.tensor(scale, device=first.device)  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        optimizer.grad_scale = None  # type: ignore[attr-defined]


def learning_rate(config: OptimConfig, update: int, last_update: int, reductions: int) -> float:
    """The rate of ``update`` (from 1). ``last_update`` ends the cosine; ``reductions`` counts the plateaus so far."""
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
