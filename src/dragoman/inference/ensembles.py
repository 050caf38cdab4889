"""Systems made of several runs: ensembles, and a run fused with a language model. Both are used as any system is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import SPECIALS
from dragoman.errors import UserError
from dragoman.inference.engine.contract import Arrays, Engine, Features, SelfAttention
from dragoman.inference.system import System
from dragoman.runs.confidence import read_confidence, weights_digest
from dragoman.search.combined import Ensemble, Fusion, Renumbered
from dragoman.search.options import SearchConfig
from dragoman.search.rows import SearchDecoder

Value = TypeVar("Value")


def ensemble(members: Sequence[System]) -> System:
    """Return the mean of the probabilities of several systems as one system.

    The members share the target vocabulary and the names of the sources. Each tokenises the source itself. Search
    settings and attention with its labels are those of the first member; the length limit is the largest.
    """
    if not members:
        raise UserError("an ensemble needs at least one run")
    first = members[0]
    for other in members[1:]:
        if other.modalities.keys() != first.modalities.keys():
            raise UserError(
                f"{other.name}: reads {sorted(other.modalities) or 'no source'}, but {first.name} reads "
                f"{sorted(first.modalities) or 'none'}; the runs of an ensemble read the same sources"
            )
        _check_device(other.name, other, first)
    shared = set.intersection(*({*member.classes} for member in members))
    classes = tuple(label for label in first.classes if label in shared)
    together = replace(first, combined=EnsembleEngine(members), classes=classes)
    return _with_confidence(together, [digest for member in members for digest in member.made_of or ("",)])


def fuse(system: System, language_model: System, weight: float) -> System:
    """Return a system whose outputs are ranked by log p(y | x) + ``weight`` * log p_lm(y).

    Fusion changes what is chosen and the ``score`` it is chosen by. The ``log_probs`` of an output stay the system's
    own, and so does forced scoring, since the fused numbers are not log-probabilities. The trace shows the search in
    the numbers that it ranked by.
    """
    if language_model.modalities:
        raise UserError(
            f"--lm {language_model.name}: not a language model, it reads {sorted(language_model.modalities)}; "
            "give a run that was trained on text alone"
        )
    if not weight >= 0:
        raise UserError(f"--lm-weight {weight:g}: must be 0 or more")
    _check_device("the language model", language_model, system)
    together = replace(system, combined=FusedEngine(system, language_model, weight))
    folder = language_model.folder
    digest = "" if folder is None else weights_digest(folder)
    return _with_confidence(together, [*system.made_of, f"lm {digest} {weight:g}"])


class EnsembleEngine(Engine):
    """The engines of several systems. The features of a member have its index before their names."""

    name = "ensemble"

    def __init__(self, members: Sequence[System]) -> None:
        first = members[0]
        self._members = list(members)
        self._engines = [member.engine for member in members]
        self._decoder = Ensemble([_align(first, one, one.engine.decoder, exactly=True) for one in members])
        self.has_attention = self._engines[0].has_attention

    @property
    def chunk(self) -> int | None:  # type: ignore[override]
        chunks = {engine.chunk for engine in self._engines}
        if len(chunks) > 1:
            raise UserError(
                "these language models read running text in different ways (in chunks of different lengths, or "
                "without any); score each alone, or text by text"
            )
        return chunks.pop()

    @property
    def device(self) -> torch.device:
        return self._engines[0].device

    @property
    def decoder(self) -> SearchDecoder:
        return self._decoder

    def ctc_decoder(self) -> SearchDecoder:
        first = self._members[0]
        return Ensemble([_align(first, one, one.engine.ctc_decoder(), exactly=True) for one in self._members])

    @property
    def has_ctc(self) -> bool:
        return self._engines[0].has_ctc

    def ctc_log_probs(self, rows: Sequence[Arrays]) -> list[np.ndarray]:
        return self._engines[0].ctc_log_probs([_of_member(0, row) for row in rows])

    def prepare(self, texts: Mapping[str, str]) -> Features:
        return {
            f"{index}/{name}": feature
            for index, engine in enumerate(self._engines)
            for name, feature in engine.prepare(texts).items()
        }

    def length_limit(self, features: Features) -> int:
        return max(engine.length_limit(_of_member(index, features)) for index, engine in enumerate(self._engines))

    def encode(self, rows: Sequence[Arrays]) -> list[Any]:
        return [engine.encode([_of_member(index, row) for row in rows]) for index, engine in enumerate(self._engines)]

    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        return self._engines[0].represent([_of_member(0, row) for row in rows])

    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        return self._engines[0].self_attention(_of_member(0, row), outputs)

    def own_arrays(self, arrays: Arrays) -> Arrays:
        return self._engines[0].own_arrays(_of_member(0, arrays))

    def describe_members(self) -> str | None:
        return "ensemble of " + ", ".join(map(repr, self._members))


class FusedEngine(Engine):
    """The engine of a system, searched together with the decoder of a language model."""

    name = "fusion"

    def __init__(self, system: System, language_model: System, weight: float) -> None:
        self._system, self._language_model, self._weight = system, language_model, weight
        self._engine = system.engine
        self._lm_decoder = _align(system, language_model, language_model.engine.decoder, exactly=False)
        self.has_attention = self._engine.has_attention

    @property
    def chunk(self) -> int | None:  # type: ignore[override]
        return self._engine.chunk

    @property
    def device(self) -> torch.device:
        return self._engine.device

    @property
    def decoder(self) -> SearchDecoder:
        return self._engine.decoder

    def ctc_decoder(self) -> SearchDecoder:
        return self._engine.ctc_decoder()

    @property
    def has_ctc(self) -> bool:
        return self._engine.has_ctc

    def ctc_log_probs(self, rows: Sequence[Arrays]) -> list[np.ndarray]:
        return self._engine.ctc_log_probs(rows)

    def force(self, rows: Sequence[Arrays], targets: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        return self._engine.force(rows, targets)

    def search_decoder(self, config: SearchConfig) -> SearchDecoder:
        return Fusion(self._engine.search_decoder(config), self._lm_decoder, self._weight)

    def prepare(self, texts: Mapping[str, str]) -> Features:
        return self._engine.prepare(texts)

    def length_limit(self, features: Features) -> int:
        return self._engine.length_limit(features)

    def encode(self, rows: Sequence[Arrays]) -> Any:
        return self._engine.encode(rows)

    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        return self._engine.represent(rows)

    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        return self._engine.self_attention(row, outputs)

    def own_arrays(self, arrays: Arrays) -> Arrays:
        return self._engine.own_arrays(arrays)

    def describe_members(self) -> str | None:
        return f"{self._system!r} with {self._language_model!r} at weight {self._weight:g}"


def _with_confidence(system: System, made_of: Sequence[str]) -> System:
    """Return a system of several runs with the confidence that was fitted for all of them together, if there is one."""
    found = None if system.folder is None or system.is_language_model else read_confidence(system.folder, made_of)
    return replace(system, made_of=tuple(made_of), confidence=found)


def _align(first: System, other: System, decoder: SearchDecoder, *, exactly: bool) -> SearchDecoder:
    """Return a decoder of ``other`` that uses the token ids of ``first``.

    The tokens must be the same strings; their order may differ. Not ``exactly``: further tokens on the other side do
    not matter. Subwords must be the same pieces in the same order, because another order tokenises differently.
    """
    ours, theirs = first.target, other.target
    if theirs.vocabulary.symbols == ours.vocabulary.symbols and theirs.kind == ours.kind:
        return decoder
    here, there = first.name, other.name
    remedy = f"train {there} with --set init.target_tokenizer={here}"
    if theirs.kind != ours.kind:
        raise UserError(f"{there}: writes {theirs.kind}, but {here} writes {ours.kind}; {remedy}")
    only_here, only_there = _missing(ours, theirs), _missing(theirs, ours)
    if only_here or (exactly and only_there):
        differences = [
            f"{len(tokens):,} only in {name} ({', '.join(map(repr, tokens[:3]))}{', …' if len(tokens) > 3 else ''})"
            for tokens, name in ((only_here, here), (only_there, there))
            if tokens
        ]
        raise UserError(f"{there}: has other target tokens than {here}: {' and '.join(differences)}; {remedy}")
    if ours.order_matters:
        raise UserError(f"{there}: splits text into other {ours.kind} than {here}; {remedy}")
    ids = [*range(len(SPECIALS)), *(theirs.vocabulary.id(symbol) for symbol in ours.vocabulary.symbols)]
    return Renumbered(decoder, torch.tensor(ids))


def _missing(ours: Tokenizer, theirs: Tokenizer) -> list[str]:
    return [symbol for symbol in ours.vocabulary.symbols if symbol not in theirs.vocabulary]


def _of_member(index: int, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the part of ``EnsembleEngine.prepare`` that belongs to one member."""
    start = f"{index}/"
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


def _check_device(name: str, other: System, first: System) -> None:
    if other.device != first.device:
        raise UserError(f"{name}: is on {other.device}, {first.name} on {first.device}; load both alike")
