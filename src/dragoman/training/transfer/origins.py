"""The runs that a new run starts from, and the settings and tokenizers that it takes from them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dragoman import parts
from dragoman.config import ConfigError
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit
from dragoman.errors import UserError
from dragoman.files import open_regular
from dragoman.inference.system import System
from dragoman.recipe.schema import InitConfig


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """The run that a source's token vectors and encoder come from."""

    setting: str  # the key of the recipe that names the run
    system: System
    name: str  # of the source in that run


@dataclass(frozen=True, slots=True)
class TokenizerChoice:
    """The tokenizer of another run, or the settings to fit one with."""

    config: TokenizerConfig
    tokenizer: Tokenizer | None = None
    notes: tuple[str, ...] = ()  # reasons, in sentences

    def fit(self, texts: Sequence[str], side: str, choice: tuple[str, str] | None = None) -> Tokenizer:
        """Return the other run's tokenizer, or fit one on ``texts``, of the kind in ``choice`` for "auto"."""
        return fit(self.config, texts, side, choice) if self.tokenizer is None else self.tokenizer


@dataclass(frozen=True, slots=True)
class Origins:
    """The runs that a recipe starts from, each opened once."""

    config: InitConfig
    sources: Mapping[str, SourceOrigin]
    decoder: System | None
    target_tokenizer: Tokenizer | None
    digests: Mapping[str, str]  # of the weights, by run
    teachers: tuple[System, ...] = ()  # runs whose probabilities are learnt

    def settings(self) -> dict[str, Any]:
        """Return how the parts that are taken over were built.

        A person's settings go above these; what ``auto`` chooses goes below.
        """
        settings: dict[str, Any] = {}
        for name, origin in self.sources.items():
            source = origin.system.recipe.sources[origin.name]
            modality = {key: value for key, value in parts.dump(source.modality).items() if key != "tokenizer"}
            settings.setdefault("sources", {})[name] = {"modality": modality, "encoder": parts.dump(source.encoder)}
        if self.decoder is not None:
            settings["decoder"] = parts.dump(self.decoder.recipe.decoder)
        return settings

    def choose_source_tokenizer(self, name: str, config: TokenizerConfig, texts: Sequence[str]) -> TokenizerChoice:
        """Choose between the other run's tokenizer and a new one for a text source."""
        if name not in self.sources:
            return TokenizerChoice(config)
        origin = self.sources[name]
        tokenizer = origin.system.modalities[origin.name].tokenizer
        return TokenizerChoice(config) if tokenizer is None else self._choose(tokenizer, config, texts, name)

    def choose_target_tokenizer(
        self, config: TokenizerConfig, texts: Sequence[str], shared: bool = False
    ) -> TokenizerChoice:
        """Choose between another run's tokenizer and a new one for the target.

        ``shared``: for the sources too.
        """
        if self.target_tokenizer is not None:
            note = f"target: the tokeniser of {self.config.target_tokenizer}, as asked for"
            return TokenizerChoice(config, self.target_tokenizer.with_drop(config.drop, texts), (note,))
        if self.decoder is not None:
            return self._choose(self.decoder.target, config, texts, "target")
        if shared and self.sources:
            return self.choose_source_tokenizer(next(iter(self.sources)), config, texts)
        return TokenizerChoice(config)

    def _choose(
        self, tokenizer: Tokenizer, config: TokenizerConfig, texts: Sequence[str], side: str
    ) -> TokenizerChoice:
        """Choose between ``tokenizer``, of another run, and a new one."""
        reuse = self.config.tokenizers
        vocabulary = config.model_copy(update={"drop": 0.0})  # how training varies the tokens does not change the set
        agrees = vocabulary in (TokenizerConfig(), TokenizerConfig(kind=tokenizer.kind))
        if reuse == "fit" or (reuse == "auto" and not agrees):
            return TokenizerChoice(config)
        if not agrees:
            raise ConfigError(
                "init.tokenizers = 'reuse' takes the tokeniser of the other run, but the one of "
                f"{side} has settings of its own; leave one of the two out"
            )
        unknown = 0 if reuse == "reuse" else sum(tokenizer.unknown(text) > 0 for text in texts)
        if not unknown:
            note = f"{side}: the tokeniser of the run it starts from ({tokenizer.kind}, {tokenizer.size:,} tokens)"
            return TokenizerChoice(config, tokenizer.with_drop(config.drop, texts), (note,))
        note = (
            f"{side}: {tokenizer.kind} as in the run it starts from, but fitted anew, because {unknown:,} of "
            f"{len(texts):,} training texts have tokens that are not known there"
        )
        return TokenizerChoice(config.resolved(tokenizer.kind), notes=(note,))


def open_origins(config: InitConfig, sources: Sequence[str], teachers: Sequence[str] = ()) -> Origins:
    """Open every run that ``config`` names, and the teachers. ``sources``: the names of the new run's sources."""
    unknown = [name for name in config.sources if name not in sources]
    if unknown:
        known = ", ".join(sources) or "none"
        raise ConfigError(f"init.sources.{unknown[0]}: this model has no source of that name (it has: {known})")
    if config.encoder is not None and not sources:
        raise ConfigError("init.encoder: a language model has no encoder; leave it out")
    opened: dict[str, System] = {}
    origins = {}
    for name in sources:
        setting = f"init.sources.{name}" if name in config.sources else "init.encoder"
        run = config.sources.get(name, config.encoder)
        if run is not None:
            system = _open(run, setting, opened)
            origins[name] = SourceOrigin(setting, system, _matching_source(name, system, setting))
    decoder = None if config.decoder is None else _open(config.decoder, "init.decoder", opened)
    wanted = config.target_tokenizer
    tokenizer = None if wanted is None else _open(wanted, "init.target_tokenizer", opened).target
    taught = tuple(_open(run, "training.distill.teachers", opened) for run in teachers)
    return Origins(config, origins, decoder, tokenizer, {run: _digest(Path(run)) for run in opened}, taught)


def _open(run: str, setting: str, opened: dict[str, System]) -> System:
    if run not in opened:
        try:
            opened[run] = System.load(run, "cpu")
        except UserError as error:
            raise ConfigError(f"{setting} = {run!r}: {error}") from None
    return opened[run]


def _matching_source(name: str, system: System, setting: str) -> str:
    """Return the other run's source of the same name, or its only one."""
    names = list(system.modalities)
    if name in names:
        return name
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigError(f"{setting}: {system.folder} is a language model and has no encoder; use init.decoder")
    raise ConfigError(f"{setting}: {system.folder} has no source called {name!r} (it has: {', '.join(names)})")


def _digest(folder: Path) -> str:
    with open_regular(folder / "model.safetensors") as file:
        return hashlib.file_digest(cast(io.BufferedReader, file), "blake2b").hexdigest()[:32]
