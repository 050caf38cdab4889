"""From what a person gives to what a session works with: inputs as strings by source, and search settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic import ValidationError

from dragoman.config import ConfigError, explain, nearest
from dragoman.data.corpus.files import PendingFile
from dragoman.data.examples import SOURCE, tidy
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import UNK
from dragoman.errors import UserError
from dragoman.inference.engine.contract import Arrays, Features
from dragoman.inference.predictions import Raw
from dragoman.search.options import SearchConfig

BY_TOKENS = ("forbidden", "forbidden_runs", "only")  # settings in token ids, which other options stand for
OneInput: TypeAlias = "Raw | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]"  # as a caller gives it


@dataclass(frozen=True, slots=True)
class PreparedInput:
    """One input as an engine reads it."""

    source: Raw  # as it was given
    texts: Mapping[str, str]  # tidied strings by source; the prompt of a language model is under "source"
    features: Features  # by source; empty for a language model
    problem: str | None = None  # why it cannot be answered

    @property
    def is_empty(self) -> bool:
        """Tell whether no source has any content. A language model's prompt may be empty."""
        return self.problem is None and bool(self.features) and not any(self.texts.values())

    @property
    def length(self) -> int:
        """Return the length of the longest source; of a language model, that of its prompt."""
        self._refuse_problem()
        if not self.features:
            return len(self.texts.get(SOURCE, ""))
        return max(len(feature) for feature in self.features.values())

    def read(self) -> PreparedInput:
        """Return this input with its files read. Raise a ``UserError`` for one that cannot be answered."""
        self._refuse_problem()
        arrays = {
            name: feature.read() if isinstance(feature, PendingFile) else feature
            for name, feature in self.features.items()
        }
        return replace(self, features=arrays)

    def _refuse_problem(self) -> None:
        if self.problem is not None:
            raise UserError(self.problem)

    @property
    def arrays(self) -> Arrays:
        """Return the features of an input whose files have been read."""
        arrays = {name: feature for name, feature in self.features.items() if not isinstance(feature, PendingFile)}
        assert len(arrays) == len(self.features), "read() comes first"
        return arrays


def is_single(sources: Any) -> bool:
    """Tell whether this is one input, not several: a text, a path, or a mapping of these by source."""
    return isinstance(sources, (str, os.PathLike, Mapping))


def as_inputs(sources: Any, what: str = "an input") -> list[Any]:
    """Return one input, or several, as a list. ``what`` is what messages call one of them."""
    if is_single(sources):
        return [sources]
    if isinstance(sources, (bytes, bytearray)) or not isinstance(sources, Iterable):
        kinds = "a text" if what == "a target" else "a text, a path, or several of these by name"
        raise UserError(f"{what} is {kinds}; give one, or a list of them, not {type(sources).__name__}")
    return list(sources)


def check_batch(batch: Any) -> None:
    """Refuse a number of inputs to decode together that is none."""
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise UserError(f"batch is the number of inputs that are decoded together, 1 or more; got {batch!r}")


def check_abstain(abstain: Any) -> None:
    """Refuse a confidence that is no probability."""
    is_number = isinstance(abstain, (int, float)) and not isinstance(abstain, bool)
    if abstain is not None and not (is_number and 0 <= abstain <= 1):
        raise UserError(f"abstain is the least confidence that an output needs, from 0 to 1; got {abstain!r}")


def as_strings(source: Any) -> Raw:
    """Return an input as strings. Paths may be given as path objects."""
    if isinstance(source, Mapping):
        return {str(name): _as_string(value) for name, value in source.items()}
    return _as_string(source)


def only_sources(source: Any, names: Sequence[str] | None) -> Any:
    """Return an input without what is no source of the run: a row may have other columns, such as the target."""
    if names is None or not isinstance(source, Mapping) or not {*names} <= source.keys():
        return source
    return {name: source[name] for name in names}


def as_text(value: Any, what: str) -> str:
    """Return a text, or refuse what is none. ``what`` is what the message calls it."""
    if not isinstance(value, str):
        raise UserError(f"{what} is a text; got {type(value).__name__}")
    return value


def _as_string(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(f"an input is a text, a path, or several of these by name; got {type(value).__name__}")
    return os.fsdecode(value)


def texts_by_source(source: Raw, names: Sequence[str] | None) -> dict[str, str]:
    """Return the tidied strings of an input by the run's source names. ``names`` is None for a language model."""
    if names is None:
        if not isinstance(source, str):
            raise UserError(f"this run is a language model: give it texts, not {type(source).__name__}")
        return {SOURCE: tidy(source)}
    only = names[0] if len(names) == 1 else SOURCE
    texts = {only: source} if isinstance(source, str) else dict(source)
    if texts.keys() != set(names):
        given = "a text" if isinstance(source, str) else f"{sorted(texts)}"
        raise UserError(f"this run reads {', '.join(names)}, but got {given}; give a mapping by these names")
    return {name: tidy(text) for name, text in texts.items()}


def merge_search_settings(own: SearchConfig, settings: Mapping[str, Any], never: Sequence[int]) -> SearchConfig:
    """Return a run's own search settings, overridden by ``settings``; the tokens ``never`` are forbidden too.

    A setting that cannot have an effect beside the others is refused.
    """
    overrides = {name: value for name, value in settings.items() if value is not None}
    merged = own.model_dump() | overrides
    if merged["sample"] and "n_best" in overrides:  # so many outputs, whichever way they are found
        if overrides.get("samples", overrides["n_best"]) != overrides["n_best"]:
            raise UserError(
                f"n_best = {overrides['n_best']} and samples = {overrides['samples']} both say how many outputs an "
                "input has; give one of them"
            )
        merged |= {"samples": overrides["n_best"], "n_best": 1}
    elif "n_best" in overrides and "beam" not in overrides:
        merged["beam"] = max(merged["beam"], merged["n_best"])
    merged["forbidden"] = tuple({*merged["forbidden"], *never})
    try:
        config = SearchConfig(**merged)
    except ValidationError as error:
        raise explain(error, SearchConfig, "search") from None
    config.refuse_without_effect(overrides)
    return config


def refuse_unknown(options: Iterable[str], known: Sequence[str], internal: Sequence[str] = ()) -> None:
    """Refuse options that are no settings of the search, nor ``known`` or ``internal``, which are not offered."""
    offered = [*known, *(name for name in SearchConfig.model_fields if name not in BY_TOKENS)]
    for name in options:
        if name not in (*offered, *BY_TOKENS, *internal):
            raise ConfigError(f"unknown option {name!r}; {nearest(name, offered)}")


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Texts that no output may contain. The search forbids the tokens that the tokeniser makes of them."""

    target: Tokenizer
    texts: tuple[str, ...]
    copies: bool = False  # outputs may have unknown symbols that are copied from their sources

    def token_runs(self) -> list[list[int]]:
        """Return the tokens of each text."""
        return [self.target.encode(tidy(text)) for text in self.texts]

    def refuse_without_effect(self) -> None:
        """Refuse texts if forbidding their tokens changes nothing, because the run never writes these."""
        if self.texts and not self.copies and all(map(self._is_unknown, self.texts)):
            raise UserError(f"{self._never(self.texts[0])}; leave it out, or forbid something else")

    def notes(self) -> list[str]:
        """Say of each text where forbidding its tokens does less than keeping it out of all outputs."""
        return [note for text in self.texts if (note := self._describe(text)) is not None]

    def _describe(self, text: str) -> str | None:
        if self._is_unknown(text):
            if self.copies:
                return f"forbid: this run does not know {text!r}, and may still copy it from an input"
            return self._never(text)
        if self.target.splits_at_spaces:
            longer = self._longer_word(text)
            whole = f"forbid: {text!r} is forbidden as whole words; longer words such as {longer!r} are not"
            return None if longer is None else whole
        if self.target.spelling().is_unique:
            return None
        pieces = " ".join(self.target.pieces(self.target.encode(tidy(text))))
        return f"forbid: {text!r} is forbidden as the tokens {pieces}; it may still be written with other tokens"

    def _never(self, text: str) -> str:
        longer = self._longer_word(text) if self.target.splits_at_spaces else None
        but = "" if longer is None else f", and longer words such as {longer!r} are not forbidden"
        return f"forbid: this run cannot write {text!r} anyway, so forbidding it has no effect{but}"

    def _is_unknown(self, text: str) -> bool:
        return UNK in self.target.encode(tidy(text))

    def _longer_word(self, text: str) -> str | None:
        """Return a word of the vocabulary that a text may be a part of, or begin or end in."""
        words = tidy(text).split()
        for known in (symbol.strip() for symbol in self.target.vocabulary.symbols):
            if len(words) == 1 and known != words[0] and words[0] in known:
                return known
            if len(words) > 1 and known not in words and (known.endswith(words[0]) or known.startswith(words[-1])):
                return known
        return None


def forbid_token_runs(own: SearchConfig, banned: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Return search settings under which no output contains any of these runs of tokens."""
    runs = {tuple(run) for run in banned}
    single = sorted(run[0] for run in runs if len(run) == 1)
    return {
        "forbidden": (*own.forbidden, *single),
        "forbidden_runs": (*own.forbidden_runs, *sorted(run for run in runs if len(run) > 1)),
    }
