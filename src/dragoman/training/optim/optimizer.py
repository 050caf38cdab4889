"""Optimizers, and a step with clipped gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch

from dragoman.recipe.training import OptimConfig
from dragoman.training.optim.muon import Muon


def make_optimizer(
    config: OptimConfig,
    parameters: list[torch.nn.Parameter],
    matrices: Mapping[torch.nn.Parameter, int] = MappingProxyType({}),
) -> torch.optim.Optimizer:
    """Return the optimizer of these parameters.

    ``matrices``: the parameters that may take orthogonal steps, each with the number of matrices
    stacked in it.
    """
    if config.kind == "muon":
        chosen = {parameter: matrices[parameter] for parameter in parameters if parameter in matrices}
        rest = make_adam(config, [parameter for parameter in parameters if parameter not in matrices])
        return Muon(chosen, rest, config.weight_decay) if chosen else rest
    return make_adam(config, parameters)


def make_adam(config: OptimConfig, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return Adam, or AdamW for every other kind."""
    build = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return build(
        [{"params": parameters}],  # as a group, because there may be none
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def gradient_norm(parameters: list[torch.nn.Parameter]) -> float:
    """Return the norm of all gradients together.

    Dot products are twice as fast here as torch's norms.
    """
    gradients = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    squares = torch.stack([torch.dot(g, g) for g in gradients])
    return math.sqrt(float(squares.sum(dtype=torch.float64)))


def clipped_step(optimizer: torch.optim.Optimizer, norm: float, limit: float) -> None:
    """Take a step with the gradient clipped to a norm (0 = no clipping).

    The step itself scales the gradients.
    """
    scale = max(1.0, norm / limit) if limit else 1.0
    if scale > 1:
        first = optimizer.param_groups[0]["params"][0]
        optimizer.grad_scale = torch.tensor(scale, device=first.device)  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        optimizer.grad_scale = None  # type: ignore[attr-defined]
