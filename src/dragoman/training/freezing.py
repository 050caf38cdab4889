"""Parts of a model that training does not change.

A name is ``encoder`` (the token vectors and encoders of all sources), ``decoder``, the name of a
source, or the beginning of a parameter's name up to a dot, such as ``decoder.embedding``. A tensor
that several parts share is frozen if any of its names is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dragoman.config import ConfigError, nearest
from dragoman.nn.model import Model


@dataclass(frozen=True, slots=True)
class Frozen:
    """The parts of a model that stay as they are."""

    parameters: tuple[nn.Parameter, ...]
    statistics: tuple[nn.Module, ...]  # batch norms, whose running averages would change too
    shared: tuple[tuple[str, str], ...]  # names outside the frozen parts, each with the frozen name of its tensor
    trained_count: int
    count: int

    def describe(self, names: Sequence[str]) -> list[str]:
        """Describe what ``names`` freezes, in sentences."""
        if not names:
            return []
        lines = [f"frozen: {', '.join(names)}: {self.count:,} parameters; {self.trained_count:,} are trained"]
        lines += [f"frozen too: {name}, because it is one tensor with {other}" for name, other in self.shared]
        return lines


def find_frozen(model: Model, names: Sequence[str]) -> Frozen:
    """Find what ``names`` freezes.

    A name that fits nothing is refused, and so is freezing the whole model.
    """
    parts = {"encoder": ("frontends", "encoders"), "decoder": ("decoder",)}
    sources = {name: (f"frontends.{name}", f"encoders.{name}") for name in model.encoders}
    parameters = list(model.named_parameters(remove_duplicate=False))
    prefixes: list[str] = []
    for name in names:
        inside = parts.get(name) or sources.get(name) or (name,)
        if not any(_is_under(parameter, inside) for parameter, _ in parameters):
            known = [
                part
                for part, inner in (parts | sources).items()
                if any(_is_under(parameter, inner) for parameter, _ in parameters)
            ]
            known += sorted({".".join(parameter.split(".")[:2]) for parameter, _ in parameters})
            raise ConfigError(f"training.freeze: nothing in this model is called {name!r}; {nearest(name, known)}")
        prefixes += inside
    frozen_names = {id(parameter): name for name, parameter in parameters if _is_under(name, prefixes)}
    frozen = [parameter for parameter in model.parameters() if id(parameter) in frozen_names]
    count = sum(parameter.numel() for parameter in frozen)
    trained = sum(parameter.numel() for parameter in model.parameters()) - count
    if not trained:
        raise ConfigError(f"training.freeze = {list(names)}: that is all of the model, and nothing is left to train")
    shared = [
        (name, frozen_names[id(parameter)])
        for name, parameter in parameters
        if id(parameter) in frozen_names and not _is_under(name, prefixes)
    ]
    statistics = [
        module for name, module in model.named_modules() if _is_under(name, prefixes) and isinstance(module, _BatchNorm)
    ]
    return Frozen(tuple(frozen), tuple(statistics), tuple(shared), trained, count)


def _is_under(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
