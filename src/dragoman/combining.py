"""Systems made of several runs: ensembles, and a run with a language model beside it. Both are used as a system is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dragoman.data.stored import Pending
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import SPECIALS
from dragoman.errors import UserError
from dragoman.predictions import Prediction, Raw, Scored
from dragoman.search import Decodes, Ensemble, Fusion, Renumbered, Result, SearchConfig
from dragoman.system import System

Given = TypeVar("Given")


class _Combination(System):
    """Reads and writes as its first run does, but for what is overridden."""

    def __init__(self, first: System, forced: Decodes) -> None:
        super().__init__(first.recipe, first.modalities, first.target, first.model, first.lengths, first.folder)
        self.device, self.forced = first.device, forced

    def save(self, folder: Path | str) -> Path:
        raise UserError("what is put together from several runs has no folder of its own; keep the folders of the runs")


class EnsembleSystem(_Combination):
    """The mean of the probabilities of several systems, which share the target vocabulary and the names of the sources.

    Each member cuts the source with its own tokeniser. Search settings, length limits of the longest kind and
    attention (with its labels) are those of the first member.
    """

    def __init__(self, members: Sequence[System]) -> None:
        if not members:
            raise UserError("an ensemble needs at least one run")
        first = members[0]
        for other in members[1:]:
            if other.modalities.keys() != first.modalities.keys():
                raise UserError(
                    f"{name_of(other)}: reads {sorted(other.modalities) or 'no source'}, but {name_of(first)} reads "
                    f"{sorted(first.modalities) or 'none'}; the runs of an ensemble read the same sources"
                )
            if other.device != first.device:
                raise UserError(
                    f"{name_of(other)}: is on {other.device}, {name_of(first)} on {first.device}; load both alike"
                )
        super().__init__(first, Ensemble([aligned(first, other, other.forced, exactly=True) for other in members]))
        self.members = list(members)

    def __repr__(self) -> str:
        return f"EnsembleSystem({', '.join(map(repr, self.members))})"

    @property
    def heard(self) -> Decodes:
        first = self.members[0]
        return Ensemble([aligned(first, other, other.heard, exactly=True) for other in self.members])

    def _tensors(self, raw: Mapping[str, str]) -> dict[str, Tensor | Pending]:
        return {
            f"{index}/{name}": tensor
            for index, member in enumerate(self.members)
            for name, tensor in member._tensors(raw).items()
        }

    def _limit(self, tensors: Mapping[str, Tensor | Pending]) -> int:
        return max(member._limit(_of(index, tensors)) for index, member in enumerate(self.members))

    def _encode(self, tensors: Sequence[Mapping[str, Tensor]]) -> list[Any]:
        return [member._encode([_of(index, row) for row in tensors]) for index, member in enumerate(self.members)]

    def _score_texts(
        self, texts: Sequence[Raw], targets: Sequence[str] | None, batch: int, running: bool
    ) -> list[Scored]:
        if running:
            ways = {None if one.model.decoder.endless else one.recipe.training.chunk for one in self.members}
            if len(ways) > 1:
                raise UserError(
                    "these language models read running text in different ways (in chunks of different lengths, or "
                    "without any); score each alone, or text by text"
                )
        return super()._score_texts(texts, targets, batch, running)

    def _with_maps(self, prediction: Prediction, tensors: Mapping[str, Tensor], result: Result) -> Prediction:
        return self.members[0]._with_maps(prediction, _of(0, tensors), result)


class FusedSystem(_Combination):
    """A system whose outputs are ranked by log p(y | x) + weight * log p_lm(y).

    Fusion changes what is chosen and the ``score`` it is chosen by; ``log_probs`` of an output stay the system's own,
    and so does forced scoring, since the fused numbers are no probabilities. The trace shows the search, in the
    numbers it ranked by.
    """

    def __init__(self, system: System, language_model: System, weight: float) -> None:
        if language_model.modalities:
            raise UserError(
                f"--lm {name_of(language_model)}: not a language model, it reads {sorted(language_model.modalities)}; "
                "give a run that was trained on text alone"
            )
        if not weight >= 0:
            raise UserError(f"--lm-weight {weight:g}: must be 0 or more")
        if language_model.device != system.device:
            raise UserError(
                f"the language model is on {language_model.device}, the run on {system.device}; load both alike"
            )
        super().__init__(system, system.forced)
        self.system, self.language_model, self.weight = system, language_model, weight
        self.speaker = aligned(system, language_model, language_model.forced, exactly=False)

    def __repr__(self) -> str:
        return f"FusedSystem({self.system!r}, {self.language_model!r}, {self.weight:g})"

    def searched(self, config: SearchConfig) -> Decodes:
        return Fusion(self.system.searched(config), self.speaker, self.weight)

    def _tensors(self, raw: Mapping[str, str]) -> dict[str, Tensor | Pending]:
        return self.system._tensors(raw)

    def _limit(self, tensors: Mapping[str, Tensor | Pending]) -> int:
        return self.system._limit(tensors)

    def _encode(self, tensors: Sequence[Mapping[str, Tensor]]) -> Any:
        return self.system._encode(tensors)

    def _with_maps(self, prediction: Prediction, tensors: Mapping[str, Tensor], result: Result) -> Prediction:
        return self.system._with_maps(prediction, tensors, result)


def aligned(first: System, other: System, decoder: Decodes, *, exactly: bool) -> Decodes:
    """A decoder of ``other`` as something that speaks in the token numbers of ``first``.

    The tokens must be the same strings; their order may differ. Not ``exactly``: further tokens on the other side do
    not matter. Subwords must be the same pieces in the same order: another order is another way of cutting.
    """
    ours, theirs = first.target, other.target
    if theirs.vocabulary.symbols == ours.vocabulary.symbols and theirs.kind == ours.kind:
        return decoder
    here, there = f"{name_of(first)}", f"{name_of(other)}"
    remedy = f"train {there} with --set init.target_tokenizer={here}"
    if theirs.kind != ours.kind:
        raise UserError(f"{there}: writes {theirs.kind}, but {here} writes {ours.kind}; {remedy}")
    only_here, only_there = _missing(ours, theirs), _missing(theirs, ours)
    if only_here or (exactly and only_there):
        found = [
            f"{len(tokens):,} only in {name} ({', '.join(map(repr, tokens[:3]))}{', …' if len(tokens) > 3 else ''})"
            for tokens, name in ((only_here, here), (only_there, there))
            if tokens
        ]
        raise UserError(f"{there}: has other target tokens than {here}: {' and '.join(found)}; {remedy}")
    if ours.kind == "subwords":
        raise UserError(f"{there}: cuts text into other subwords than {here}; {remedy}")
    ids = [*range(len(SPECIALS)), *(theirs.vocabulary.id(symbol) for symbol in ours.vocabulary.symbols)]
    return Renumbered(decoder, torch.tensor(ids))


def _missing(ours: Tokenizer, theirs: Tokenizer) -> list[str]:
    return [symbol for symbol in ours.vocabulary.symbols if symbol not in theirs.vocabulary]


def _of(index: int, tensors: Mapping[str, Given]) -> dict[str, Given]:
    """The member's share of ``EnsembleSystem._tensors``."""
    start = f"{index}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def name_of(system: System) -> str:
    return str(system.folder) if system.folder else "this system"
