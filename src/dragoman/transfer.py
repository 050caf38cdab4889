"""Starting from other runs: whose tokenisers and weights are taken, what is left fresh, and why.

An encoder can come from another run and a decoder from a language model (Ramachandran et al. 2017). Taken is every
tensor whose name and shape fit. Token vectors and output layers are matched row by row, by the token's string, since
two vocabularies number their tokens differently. Whatever is not taken stays as a fresh model has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman import parts
from dragoman.config import ConfigError
from dragoman.contracts import Decoder
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig
from dragoman.data.vocabulary import SPECIALS, Vocabulary
from dragoman.errors import UserError
from dragoman.modalities.text import Text
from dragoman.recipe import InitConfig
from dragoman.system import System

BY_TOKEN = ("embedding.weight", "project.weight", "project.bias")  # of a decoder, one row a token


@dataclass
class Transfer:
    """What one part took from another run."""

    part: str  # "decoder", or "encoder (NAME OF THE SOURCE)"
    run: str
    taken: dict[str, int] = field(default_factory=dict)  # parameter → numbers taken
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # matched by token: rows found, rows there are
    fresh: dict[str, str] = field(default_factory=dict)  # parameter → why not
    total: int = 0  # numbers in this part
    fits: bool = False  # something more than single vectors, which may fit by chance

    def describe(self) -> list[str]:
        numbers = sum(self.taken.values())
        lines = [
            f"init: {self.part} from {self.run}: {len(self.taken)} of {len(self.taken) + len(self.fresh)} tensors, "
            f"{numbers:,} of {self.total:,} numbers taken"
        ]
        for found, there in dict.fromkeys(self.rows.values()):
            tables = ", ".join(name for name, size in self.rows.items() if size == (found, there))
            lines.append(f"init:   {tables}: {found:,} of {there:,} rows found there by their token, the others fresh")
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


class Origins:
    """The runs that a config starts from, opened once each."""

    def __init__(self, config: InitConfig, sources: Sequence[str]) -> None:
        self.config = config
        self.notes: list[str] = []  # on the tokenisers
        unknown = [name for name in config.sources if name not in sources]
        if unknown:
            known = ", ".join(sources) or "none"
            raise ConfigError(f"init.sources.{unknown[0]}: this model has no source of that name (it has: {known})")
        if config.encoder is not None and not sources:
            raise ConfigError("init.encoder: a language model has no encoder; leave it out")
        opened: dict[str, System] = {}
        self.sources: dict[str, tuple[str, System, str]] = {}  # our source → (key, run, its name of it)
        for name in sources:
            key = f"init.sources.{name}" if name in config.sources else "init.encoder"
            run = config.sources.get(name, config.encoder)
            if run is not None:
                system = _open(run, key, opened)
                self.sources[name] = (key, system, _matching_source(name, system, key))
        self.decoder = None if config.decoder is None else _open(config.decoder, "init.decoder", opened)
        wanted = config.target_tokenizer
        self.tokenizer = None if wanted is None else _open(wanted, "init.target_tokenizer", opened).target
        self.digests = {run: _digest(Path(run)) for run in opened}

    def settings(self) -> dict[str, Any]:
        """How the parts were built that are taken over: under all that the person says, above what auto chooses."""
        found: dict[str, Any] = {}
        for name, (_, system, theirs) in self.sources.items():
            source = system.recipe.sources[theirs]
            modality = {key: value for key, value in parts.dump(source.modality).items() if key != "tokenizer"}
            found.setdefault("sources", {})[name] = {"modality": modality, "encoder": parts.dump(source.encoder)}
        if self.decoder is not None:
            found["decoder"] = parts.dump(self.decoder.recipe.decoder)
        return found

    def source_tokenizer(self, name: str, said: TokenizerConfig, texts: Sequence[str]) -> Tokenizer | TokenizerConfig:
        """The tokeniser of a text source, or how to fit one."""
        if name not in self.sources:
            return said
        _, system, theirs = self.sources[name]
        modality = system.modalities[theirs]
        return self._choose(modality.tokenizer, said, texts, name) if isinstance(modality, Text) else said

    def target_tokenizer(
        self, said: TokenizerConfig, texts: Sequence[str], shared: bool = False
    ) -> Tokenizer | TokenizerConfig:
        """The tokeniser of the target, or how to fit one; ``shared``: of the source too."""
        if self.tokenizer is not None:
            self.notes.append(f"target: the tokeniser of {self.config.target_tokenizer}, as asked for")
            return self.tokenizer.with_drop(said.drop, texts)
        if self.decoder is not None:
            return self._choose(self.decoder.target, said, texts, "target")
        for name in self.sources if shared else ():
            return self.source_tokenizer(name, said, texts)
        return said

    def _choose(
        self, theirs: Tokenizer, said: TokenizerConfig, texts: Sequence[str], side: str
    ) -> Tokenizer | TokenizerConfig:
        how = self.config.tokenizers
        vocabulary = said.model_copy(update={"drop": 0.0})  # how it is cut in training does not change the tokens
        agrees = vocabulary in (TokenizerConfig(), TokenizerConfig(kind=theirs.kind))
        if how == "fit" or (how == "auto" and not agrees):
            return said
        if not agrees:
            raise ConfigError(
                "init.tokenizers = 'reuse' takes the tokeniser of the other run, but the one of "
                f"{side} has settings of its own; leave one of the two out"
            )
        unknown = 0 if how == "reuse" else sum(theirs.unknown(text) > 0 for text in texts)
        if not unknown:
            self.notes.append(
                f"{side}: the tokeniser of the run it starts from ({theirs.kind}, {theirs.size:,} tokens)"
            )
            return theirs.with_drop(said.drop, texts)
        self.notes.append(
            f"{side}: {theirs.kind} as in the run it starts from, but fitted anew, because {unknown:,} of "
            f"{len(texts):,} training texts have tokens that are not known there"
        )
        return said.resolved(theirs.kind)

    def apply(self, system: System) -> list[Transfer]:
        """Put the weights into the model of ``system``; what became of each tensor comes back."""
        found: list[Transfer] = []
        done: set[int] = set()
        if self.decoder is not None:
            found.append(_take_decoder(system, self.decoder, str(self.config.decoder), done))
        for name, (key, other, theirs) in self.sources.items():
            found.append(_take_source(system, name, other, theirs, key, done))
        return found


def _take_decoder(system: System, other: System, run: str, done: set[int]) -> Transfer:
    # A network inside a decoder counts too: one that reads the whole pair is a language model inside.
    pair = next(
        (
            (ours, theirs)
            for ours, mine in _decoders(system).items()
            for theirs, its in _decoders(other).items()
            if type(mine) is type(its)
        ),
        None,
    )
    if pair is None:
        kinds = [parts.kind_of(one.recipe.decoder) for one in (other, system)]
        raise ConfigError(f"init.decoder = {run!r}: has a {kinds[0]} decoder, but this model's is {kinds[1]}")
    transfer = Transfer("decoder", run)
    within = [name.removeprefix(pair[0]) for name in _decoders(system) if name.startswith(pair[0])]  # itself is ""
    names = [f"{name}.{table}".removeprefix(".") for name in within for table in BY_TOKEN]
    tables = dict.fromkeys(names, (system.target.vocabulary, other.target.vocabulary))
    _take(system, other, *pair, tables, transfer, done)
    return _checked(transfer, "init.decoder")


def _decoders(system: System) -> dict[str, Decoder]:
    modules = system.model.decoder.named_modules(prefix="decoder")
    return {name: module for name, module in modules if isinstance(module, Decoder)}


def _take_source(system: System, name: str, other: System, theirs: str, key: str, done: set[int]) -> Transfer:
    ours, its = system.recipe.sources[name], other.recipe.sources[theirs]
    for what in ("modality", "encoder"):
        kinds = [parts.kind_of(getattr(one, what)) for one in (its, ours)]
        if kinds[0] != kinds[1]:
            raise ConfigError(f"{key}: {other.folder} has a {kinds[0]} {what}, but {what} here is {kinds[1]}")
    transfer = Transfer(f"encoder ({name})", str(other.folder))
    modality, before = system.modalities[name], other.modalities[theirs]
    tables = {}
    if isinstance(modality, Text) and isinstance(before, Text):
        tables = {"embedding.weight": (modality.tokenizer.vocabulary, before.tokenizer.vocabulary)}
    _take(system, other, f"encoders.{name}", f"encoders.{theirs}", {}, transfer, done)
    _take(system, other, f"frontends.{name}", f"frontends.{theirs}", tables, transfer, done)
    return _checked(transfer, key)


def _take(
    system: System,
    other: System,
    ours: str,
    theirs: str,
    tables: Mapping[str, tuple[Vocabulary, Vocabulary]],
    transfer: Transfer,
    done: set[int],
) -> None:
    """Copy what fits from the module called ``theirs`` to the one called ``ours``; ``tables`` have a row a token."""
    offered = other.model.state_dict()
    inside: set[int] = set()  # a tensor with two names within a part counts once
    for name, tensor in system.model.state_dict().items():
        if not name.startswith(f"{ours}.") or tensor.data_ptr() in inside:
            continue
        inside.add(tensor.data_ptr())
        transfer.total += tensor.numel()
        local = name.removeprefix(f"{ours}.")
        given = offered.get(f"{theirs}.{local}")
        if tensor.data_ptr() in done:
            transfer.fresh[name] = "shared with a part that has taken it already"
        elif given is None:
            transfer.fresh[name] = "the other run has no such tensor"
        elif local in tables and tables[local][0].symbols != tables[local][1].symbols:
            _take_rows(name, tensor, given, *tables[local], transfer)
        elif given.shape != tensor.shape:
            transfer.fresh[name] = f"{_shape(given)} there, {_shape(tensor)} here"
        else:
            tensor.copy_(given)
            transfer.taken[name] = tensor.numel()
        if name in transfer.taken:
            done.add(tensor.data_ptr())
            transfer.fits = transfer.fits or tensor.dim() > 1


def _take_rows(
    name: str, tensor: Tensor, given: Tensor, ours: Vocabulary, theirs: Vocabulary, transfer: Transfer
) -> None:
    if given.shape[1:] != tensor.shape[1:]:
        transfer.fresh[name] = f"{_shape(given)} there, {_shape(tensor)} here"
        return
    pairs = [(index, index) for index in range(len(SPECIALS))]
    pairs += [(ours.id(symbol), theirs.id(symbol)) for symbol in ours.symbols if symbol in theirs]
    here, there = torch.tensor(pairs).T
    tensor[here] = given[there]
    transfer.taken[name] = len(pairs) * (tensor.numel() // len(tensor))
    transfer.rows[name] = (len(pairs), len(tensor))


def _checked(transfer: Transfer, key: str) -> Transfer:
    if not transfer.fits:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(transfer.fresh.items())[:2])
        raise ConfigError(f"{key}: nothing of {transfer.run} fits this model ({reasons}); give both the same widths")
    return transfer


def _open(run: str, key: str, opened: dict[str, System]) -> System:
    if run not in opened:
        try:
            opened[run] = System.load(run, "cpu")
        except UserError as error:
            raise ConfigError(f"{key} = {run!r}: {error}") from None
    return opened[run]


def _matching_source(name: str, system: System, key: str) -> str:
    """The other run's source of the same name, or its only one."""
    names = list(system.modalities)
    if name in names or len(names) == 1:
        return name if name in names else names[0]
    if not names:
        raise ConfigError(f"{key}: {system.folder} is a language model and has no encoder; use init.decoder")
    raise ConfigError(f"{key}: {system.folder} has no source called {name!r} (it has: {', '.join(names)})")


def _digest(folder: Path) -> str:
    with open(folder / "model.safetensors", "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "one number"
