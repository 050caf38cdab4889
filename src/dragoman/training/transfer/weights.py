"""Copy the weights of other runs into a new model.

An encoder can come from another run and a decoder from a language model (Ramachandran et al. 2017).
Every tensor whose name and shape fit is copied. Token vectors and output layers are matched row by
row, by the token's string, because two vocabularies number their tokens differently. What is not
copied stays freshly initialised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.config import ConfigError
from dragoman.data.vocabulary import SPECIALS, Vocabulary
from dragoman.inference.system import System
from dragoman.nn.contracts import Decoder, Frontend
from dragoman.parts import kind_of
from dragoman.training.transfer.origins import Origins, SourceOrigin


@dataclass(frozen=True, slots=True)
class TensorTransfer:
    """What became of one tensor of the new model."""

    name: str
    size: int
    is_vector: bool
    copied: int = 0  # numbers copied
    rows: tuple[int, int] | None = None  # where matched by token: rows copied, rows of the tensor
    reason: str = ""  # why nothing was copied


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one part of the new model took from another run."""

    part: str  # "decoder", or "encoder (NAME OF THE SOURCE)"
    run: str
    tensors: tuple[TensorTransfer, ...]

    @property
    def taken(self) -> dict[str, int]:
        """Return how many numbers were copied into each tensor that was taken over."""
        return {tensor.name: tensor.copied for tensor in self.tensors if not tensor.reason}

    @property
    def rows(self) -> dict[str, tuple[int, int]]:
        """Return, for tensors matched by token, the rows copied and the rows there are."""
        return {tensor.name: tensor.rows for tensor in self.tensors if tensor.rows}

    @property
    def fresh(self) -> dict[str, str]:
        """Return why each of the other tensors stays freshly initialised."""
        return {tensor.name: tensor.reason for tensor in self.tensors if tensor.reason}

    @property
    def total(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    @property
    def fits(self) -> bool:
        """Return whether more than single vectors was copied: those may fit by chance."""
        return any(not tensor.reason and not tensor.is_vector for tensor in self.tensors)

    def describe(self) -> list[str]:
        copied = sum(self.taken.values())
        lines = [
            f"init: {self.part} from {self.run}: {len(self.taken)} of {len(self.tensors)} tensors, "
            f"{copied:,} of {self.total:,} numbers taken"
        ]
        for matched, there in dict.fromkeys(self.rows.values()):
            tables = ", ".join(name for name, size in self.rows.items() if size == (matched, there))
            lines.append(
                f"init:   {tables}: {matched:,} of {there:,} rows found there by their token, the others fresh"
            )
        for reason in dict.fromkeys(self.fresh.values()):
            names = [name for name, why in self.fresh.items() if why == reason]
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            lines.append(f"init:   fresh: {shown} ({reason})")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.part, "run": self.run, "taken": self.taken, "rows_by_token": self.rows, "fresh": self.fresh,
            "numbers": {"taken": sum(self.taken.values()), "all": self.total},
        }  # fmt: skip


def transfer_weights(system: System, origins: Origins) -> list[Transfer]:
    """Copy the weights of other runs into a system's model and return what became of each."""
    transfers: list[Transfer] = []
    copied: set[int] = set()  # addresses of tensors that hold another run's weights: parts may share tensors
    if origins.decoder is not None:
        transfers.append(_transfer_decoder(system, origins.decoder, str(origins.config.decoder), copied))
    for name, origin in origins.sources.items():
        transfers.append(_transfer_source(system, name, origin, copied))
    return transfers


def _transfer_decoder(system: System, other: System, run: str, copied: set[int]) -> Transfer:
    # A decoder inside a decoder counts too: one network over source and target is a language model inside.
    matches = [
        (ours, theirs)
        for ours, decoder in _decoders(system).items()
        for theirs, candidate in _decoders(other).items()
        if type(decoder) is type(candidate)
    ]
    if not matches:
        theirs, ours = (kind_of(each.recipe.decoder) for each in (other, system))
        raise ConfigError(f"init.decoder = {run!r}: has a {theirs} decoder, but this model's is {ours}")
    ours, theirs = matches[0]
    names = [
        f"{name.removeprefix(ours)}.{table}".removeprefix(".")  # of the decoder itself the name is ""
        for name, decoder in _decoders(system).items()
        if name.startswith(ours)
        for table in decoder.token_tables
    ]
    tables = dict.fromkeys(names, (system.target.vocabulary, other.target.vocabulary))
    tensors = _copy_module(system, other, ours, theirs, tables, copied)
    return _checked(Transfer("decoder", run, tuple(tensors)), "init.decoder")


def _decoders(system: System) -> dict[str, Decoder]:
    """Return the decoder and every decoder inside it, by the name of the module."""
    modules = system.model.decoder.named_modules(prefix="decoder")
    return {name: module for name, module in modules if isinstance(module, Decoder)}


def _transfer_source(system: System, name: str, origin: SourceOrigin, copied: set[int]) -> Transfer:
    other = origin.system
    ours, theirs = system.recipe.sources[name], other.recipe.sources[origin.name]
    for part, here, there in (
        ("modality", kind_of(ours.modality), kind_of(theirs.modality)),
        ("encoder", kind_of(ours.encoder), kind_of(theirs.encoder)),
    ):
        if here != there:
            raise ConfigError(f"{origin.setting}: {other.folder} has a {there} {part}, but {part} here is {here}")
    tokenizer, other_tokenizer = system.modalities[name].tokenizer, other.modalities[origin.name].tokenizer
    tables = {}
    if tokenizer is not None and other_tokenizer is not None:
        frontend: Frontend = system.model.frontends[name]  # type: ignore[assignment]
        tables = dict.fromkeys(frontend.token_tables, (tokenizer.vocabulary, other_tokenizer.vocabulary))
    tensors = [
        *_copy_module(system, other, f"encoders.{name}", f"encoders.{origin.name}", {}, copied),
        *_copy_module(system, other, f"frontends.{name}", f"frontends.{origin.name}", tables, copied),
    ]
    return _checked(Transfer(f"encoder ({name})", str(other.folder), tuple(tensors)), origin.setting)


def _copy_module(
    system: System,
    other: System,
    ours: str,
    theirs: str,
    tables: Mapping[str, tuple[Vocabulary, Vocabulary]],
    copied: set[int],
) -> list[TensorTransfer]:
    """Copy what fits from the module named ``theirs`` to the one named ``ours``.

    ``tables`` are the tensors with one row per token, with the vocabularies of both runs. The
    addresses of tensors that were filled are added to ``copied``.
    """
    offered = other.model.state_dict()
    transfers: list[TensorTransfer] = []
    seen: set[int] = set()  # a tensor with two names within a part counts once
    for name, tensor in system.model.state_dict().items():
        if not name.startswith(f"{ours}.") or tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        local = name.removeprefix(f"{ours}.")
        source = offered.get(f"{theirs}.{local}")
        count, rows, reason = 0, None, ""
        if tensor.data_ptr() in copied:
            reason = "shared with a part that has taken it already"
        elif source is None:
            reason = "the other run has no such tensor"
        elif local in tables and tables[local][0].symbols != tables[local][1].symbols:
            if source.shape[1:] == tensor.shape[1:]:
                matched = _copy_rows(tensor, source, *tables[local])
                count, rows = matched * (tensor.numel() // len(tensor)), (matched, len(tensor))
            else:
                reason = _shape_difference(source, tensor)
        elif source.shape != tensor.shape:
            reason = _shape_difference(source, tensor)
        else:
            tensor.copy_(source)
            count = tensor.numel()
        if not reason:
            copied.add(tensor.data_ptr())
        transfers.append(TensorTransfer(name, tensor.numel(), tensor.dim() < 2, count, rows, reason))
    return transfers


def _copy_rows(tensor: Tensor, source: Tensor, ours: Vocabulary, theirs: Vocabulary) -> int:
    """Copy the rows of the tokens that both vocabularies have and return their number."""
    pairs = [(index, index) for index in range(len(SPECIALS))]
    pairs += [(ours.id(symbol), theirs.id(symbol)) for symbol in ours.symbols if symbol in theirs]
    here, there = torch.tensor(pairs).T
    tensor[here] = source[there]
    return len(pairs)


def _checked(transfer: Transfer, setting: str) -> Transfer:
    if not transfer.fits:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(transfer.fresh.items())[:2])
        raise ConfigError(
            f"{setting}: nothing of {transfer.run} fits this model ({reasons}); give both the same widths"
        )
    return transfer


def _shape_difference(source: Tensor, tensor: Tensor) -> str:
    return f"{_shape(source)} there, {_shape(tensor)} here"


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "one number"
