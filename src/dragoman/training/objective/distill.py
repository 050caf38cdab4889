"""Token-level distillation (Kim & Rush 2016, section 3.1; Sun et al. 2019, section 3.2).

    loss = (1 - weight) · CE  +  weight · τ² · Σ_v -q(v) log p(v)

q is the mean of the probabilities that the teachers give to each token after the gold tokens before
it, as an ensemble averages them; p are the model's. Both are taken at the temperature τ, and τ² keeps
the gradient as large as without it (Hinton et al. 2015). Teachers compute q at every update, so nothing
of it is stored, and training resumes exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dragoman.config import ConfigError
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import SPECIALS, UNK
from dragoman.inference.system import System
from dragoman.nn.model import Model
from dragoman.types import Batch, Padded, Step


@dataclass(frozen=True, slots=True)
class Member:
    """A model that teaches, with its ids for the tokens of the model that learns."""

    model: Model
    sources: Mapping[str, Tensor]  # (V,) by source
    target: Tensor  # (V,)

    def log_probs(self, batch: Batch) -> Tensor:
        """Return the log-probabilities (tokens, V) of the real target positions, given the gold tokens before."""
        sources = {name: Padded(self.sources[name][padded.data], padded.mask) for name, padded in batch.sources.items()}
        # the gold tokens: some of the batch's inputs may be hidden or sampled
        inputs = torch.cat([batch.inputs[:, :1], batch.targets[:, :-1]], 1)
        step = self.model.teach(replace(batch, sources=sources, inputs=self.target[inputs]))
        own = torch.log_softmax(step.readout(step.features[batch.mask]).float(), -1)
        return own[:, self.target]


class Teacher:
    """The mean of several models' probabilities. They are not trained, and draw no random numbers."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        for member in self.members:
            member.model.eval().requires_grad_(False)

    def to(self, device: torch.device) -> Teacher:
        """Return the teacher on a device."""
        return Teacher(
            [
                Member(
                    member.model.to(device),
                    {name: ids.to(device) for name, ids in member.sources.items()},
                    member.target.to(device),
                )
                for member in self.members
            ]
        )

    @torch.no_grad()
    def probabilities(self, batch: Batch, temperature: float = 1.0) -> Tensor:
        """Return q (tokens, V): the mean of the members' probabilities, at a temperature."""
        together = torch.stack([member.log_probs(batch) for member in self.members])
        mean = together.logsumexp(0) - math.log(len(self.members))
        return torch.softmax(mean / temperature, -1)


def distillation(step: Step, mask: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return τ² Σ -q log p, summed over the real target tokens; ``teacher`` (tokens, V) is q."""
    logits = step.readout(step.features[mask]).float()  # (tokens, V)
    return -(temperature**2) * (teacher * torch.log_softmax(logits / temperature, -1)).sum()


def make_teacher(system: System, runs: Sequence[System]) -> Teacher | None:
    """Return the teacher of a system, or refuse runs that cannot teach it; None: no run teaches."""
    if not runs:
        return None
    if system.recipe.data.running or system.recipe.copying:
        what = "data.running = true" if system.recipe.data.running else "copying = true"
        raise ConfigError(f"training.distill.teachers: a model with {what} cannot be taught; leave teachers out")
    return Teacher([_make_member(system, run) for run in runs])


def _make_member(system: System, run: System) -> Member:
    if run.recipe.copying:
        raise ConfigError(f"training.distill.teachers: {run.name} copies source tokens (copying), so it cannot teach")
    if run.modalities.keys() != system.modalities.keys():
        raise ConfigError(
            f"training.distill.teachers: {run.name} reads {sorted(run.modalities) or 'no source'}, but this run reads "
            f"{sorted(system.modalities) or 'none'}; teachers read the same sources"
        )
    sources = {}
    for name, modality in system.modalities.items():
        ours, theirs = modality.tokenizer, run.modalities[name].tokenizer
        if ours is None or theirs is None:
            raise ConfigError(f"training.distill.teachers: {name!r} is not a text, and teachers read texts")
        sources[name] = _ids(ours, theirs, run.name, name)
    lacking = [symbol for symbol in system.target.vocabulary.symbols if symbol not in run.target.vocabulary]
    if lacking or system.target.size != run.target.size:
        difference = f", such as {lacking[0]!r}" if lacking else ""
        raise ConfigError(
            f"training.distill.teachers: {run.name} has other target tokens than this run{difference}; train with "
            f"--set init.target_tokenizer={run.name}"
        )
    return Member(run.model, sources, _ids(system.target, run.target, run.name, "target"))


def _ids(ours: Tokenizer, theirs: Tokenizer, run: str, side: str) -> Tensor:
    """Return the other run's id of each of our tokens; a token that it does not know is its unknown one."""
    symbols = ours.vocabulary.symbols
    if ours.kind != theirs.kind or (ours.order_matters and symbols != theirs.vocabulary.symbols):
        raise ConfigError(
            f"training.distill.teachers: {run} splits {side} into other tokens than this run ({theirs.kind}, here "
            f"{ours.kind}); teachers need the same tokeniser"
        )
    known = (theirs.vocabulary.id(symbol) if symbol in theirs.vocabulary else UNK for symbol in symbols)
    return torch.tensor([*range(len(SPECIALS)), *known])
