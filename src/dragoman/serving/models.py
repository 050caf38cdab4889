"""The models of a server: what each is called, what it reads, and which languages it translates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.inference.load import load
from dragoman.inference.system import System
from dragoman.serving.constraints import Sessions
from dragoman.serving.limits import RequestRefused

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]{2,4})?")
PAIR = re.compile(r"(?:.*[._-])?([a-z]{2})[-_]([a-z]{2})")  # the end of a folder's name: de-en, multi30k_de_en
LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch", "no": "Norwegian",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian",
    "sr": "Serbian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A run that a server answers with."""

    id: str
    system: System
    languages: tuple[str, str] | None = None  # codes of its source and its target

    @cached_property
    def files(self) -> frozenset[str]:
        """Return the names of the sources that are files."""
        return frozenset(name for name, modality in self.system.modalities.items() if modality.is_file)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the sources; a language model has none."""
        return () if self.system.is_language_model else tuple(self.system.modalities)

    def describe(self) -> dict[str, Any]:
        """Return what ``GET /v1/models`` says about it, a ``records.ModelAnswer``."""
        system = self.system
        described: dict[str, Any] = {
            "id": self.id,
            "sources": [{"name": name, "kind": type(system.modalities[name]).__name__.lower()} for name in self.names],
            "parameters": system.outline.parameters,
            "engine": system.engine.name,
            "beam": system.recipe.search.beam,
        }
        if self.languages is not None:
            described["languages"] = list(self.languages)
        if system.classes:
            described["classes"] = list(system.classes)
        return described


class Models:
    """All models of a server, by their ids."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.by_id: Mapping[str, Model] = {model.id: model for model in models}
        if len(self.by_id) < len(models):
            raise UserError("two of the runs have the same name; give them others: dragoman serve A=runs/a B=runs/b")
        self.sessions = Sessions()
        self._by_pair = {model.languages: model for model in models if model.languages is not None}

    def find(self, name: str | None) -> Model:
        """Return the model with this id; without one, the only model."""
        if name is None:
            if len(self.by_id) == 1:
                return next(iter(self.by_id.values()))
            raise RequestRefused(422, f"there are {len(self.by_id)} models here; name one: {', '.join(self.by_id)}")
        if name not in self.by_id:
            raise RequestRefused(404, f"there is no model {name[:100]!r} here; there is {', '.join(self.by_id)}")
        return self.by_id[name]

    def translator(self, source: str, target: str) -> Model:
        """Return the model that translates from one language to another; "auto" is the only one with this target."""
        found = [model for (own, other), model in self._pairs() if other == target and source in (own, "auto")]
        if len(found) == 1:
            return found[0]
        known = ", ".join(f"{own} to {other}" for (own, other), _ in self._pairs())
        what = "several models have this target, so the source has to be named" if found else "no model does that here"
        raise RequestRefused(400, f"from {source[:20]} to {target[:20]}: {what}; there is {known or 'none'}")

    def _pairs(self) -> list[tuple[tuple[str, str], Model]]:
        return [(pair, model) for pair, model in self._by_pair.items() if pair is not None]

    def list_languages(self) -> list[dict[str, Any]]:
        """Return the source languages with their targets, each a ``records.Language``."""
        targets: dict[str, list[str]] = {}
        for (source, target), _ in self._pairs():
            targets.setdefault(source, []).append(target)
        for _, target in list(self._by_pair):
            targets.setdefault(target, [])  # clients look up the names of targets here too
        return [
            {"code": code, "name": LANGUAGES.get(code, code), "targets": sorted(others)}
            for code, others in sorted(targets.items())
        ]


def load_models(
    runs: Sequence[str], languages: Sequence[str] = (), device: str = "auto", engine: str = "auto"
) -> Models:
    """Load the runs of a command line: folders, or NAME=FOLDER; ``languages``: SOURCE:TARGET of each run, in order.

    A run whose folder ends in two codes of languages, such as multi30k-de-en, has them unless others are given.
    """
    if len(languages) > len(runs):
        raise UserError(f"--languages: {len(languages)} pairs for {len(runs)} runs; give at most one for each run")
    models = []
    for index, argument in enumerate(runs):
        name, given, folder = argument.partition("=")
        if not given:
            folder = argument
            name = re.sub(r"[^A-Za-z0-9._-]", "-", Path(folder).resolve().name).lstrip("._-")
        if not NAME.fullmatch(name):
            raise UserError(f"{argument}: the name of a model has letters, digits, '.', '_' and '-'; give NAME=FOLDER")
        pair = _parse_pair(languages[index]) if index < len(languages) else _guess_pair(name)
        models.append(Model(name, load(folder, device, engine=engine), pair))
    return Models(models)


def _parse_pair(text: str) -> tuple[str, str]:
    source, _, target = text.partition(":")
    if not (CODE.fullmatch(source) and CODE.fullmatch(target)):
        raise UserError(f"--languages {text}: two codes are needed, such as de:en")
    return source, target


def _guess_pair(name: str) -> tuple[str, str] | None:
    found = PAIR.fullmatch(name)
    if found is None or not {found[1], found[2]} <= LANGUAGES.keys():
        return None
    return found[1], found[2]
