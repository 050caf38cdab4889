"""Parts of a model that training leaves as they are.

A name is ``encoder`` (every source's token vectors and encoder), ``decoder``, the name of a source, or the beginning of
a parameter's name up to a dot, as in ``decoder.embedding``. A tensor that several parts share is frozen if any of its
names is.
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
    """What stays as it is."""

    parameters: tuple[nn.Parameter, ...]
    statistics: tuple[nn.Module, ...]  # batch norms, which would go on averaging
    shared: tuple[tuple[str, str], ...]  # names outside of what was asked for, with the name that freezes them
    trained_count: int
    count: int

    def describe(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        lines = [f"frozen: {', '.join(names)}: {self.count:,} parameters; {self.trained_count:,} are trained"]
        lines += [f"frozen too: {name}, because it is one tensor with {other}" for name, other in self.shared]
        return lines


def find_frozen(model: Model, names: Sequence[str]) -> Frozen:
    """What ``names`` freezes. A name of nothing, or all of the model, is refused."""
    whole = {"encoder": ("frontends", "encoders"), "decoder": ("decoder",)}
    sources = {name: (f"frontends.{name}", f"encoders.{name}") for name in model.encoders}
    everything = list(model.named_parameters(remove_duplicate=False))
    prefixes: list[str] = []
    for name in names:
        meant = whole.get(name) or sources.get(name) or (name,)
        if not any(_under(parameter, meant) for parameter, _ in everything):
            known = [
                part for part, inside in (whole | sources).items() if any(_under(n, inside) for n, _ in everything)
            ]
            known += sorted({".".join(parameter.split(".")[:2]) for parameter, _ in everything})
            raise ConfigError(f"training.freeze: nothing in this model is called {name!r}; {nearest(name, known)}")
        prefixes += meant
    chosen = {id(parameter): name for name, parameter in everything if _under(name, prefixes)}
    frozen = [parameter for parameter in model.parameters() if id(parameter) in chosen]
    count = sum(parameter.numel() for parameter in frozen)
    trained = sum(parameter.numel() for parameter in model.parameters()) - count
    if not trained:
        raise ConfigError(f"training.freeze = {list(names)}: that is all of the model, and nothing is left to train")
    shared = [(n, chosen[id(p)]) for n, p in everything if id(p) in chosen and not _under(n, prefixes)]
    statistics = [
        module for name, module in model.named_modules() if _under(name, prefixes) and isinstance(module, _BatchNorm)
    ]
    return Frozen(tuple(frozen), tuple(statistics), tuple(shared), trained, count)


def _under(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
