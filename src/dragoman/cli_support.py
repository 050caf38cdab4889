"""What the verbs of the command line share: reading lines and files, stopping politely. Light, as ``cli`` is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer

Item = TypeVar("Item")


def column(value: str | None) -> str | int | None:
    return int(value) if value is not None and value.isdecimal() else value


def columns(values: list[str] | None) -> str | int | list[str | int] | None:
    """One column, or several: as many sources."""
    found = [int(value) if value.isdecimal() else value for value in values or []]
    return found if len(found) > 1 else found[0] if found else None


def data_settings(source: list[str] | None, target: str | None, root: str | None) -> dict[str, Any]:
    """What options of their own say about the data."""
    said = {"source": columns(source), "target": column(target), "root": root}
    return {key: value for key, value in said.items() if value is not None}


def data_config(source: list[str] | None, target: str | None, root: str | None, settings: list[str] | None) -> Any:
    from pydantic import ValidationError

    from dragoman.config import ConfigError, explain, parse_overrides
    from dragoman.data.options import DataConfig

    given = parse_overrides(settings or [])
    asked = given.pop("data", {})
    if given or not isinstance(asked, dict):
        wrong = next(iter(given), "data")
        raise ConfigError(f"--set {wrong}: only settings of the data are heeded here, for example data.format=tsv")
    try:
        return DataConfig(**(asked | data_settings(source, target, root)))
    except ValidationError as error:
        raise explain(error, DataConfig, "data") from None


def said_kinds(kind: str | None, config: Any) -> dict[str, str]:
    """Of every source, where one is said."""
    from dragoman.config import nearest
    from dragoman.data.examples import SOURCE
    from dragoman.data.media import KINDS
    from dragoman.errors import UserError

    if kind is None:
        return {}
    if kind not in ("text", *KINDS):
        raise UserError(f"--kind {kind}: no such kind; {nearest(kind, ['text', *KINDS])}")
    return dict.fromkeys(config.asked().sources or [SOURCE], kind)


def read_like(system: Any, files: list[str], source: list[str] | None, target: str | None, root: str | None) -> Any:
    """Read a file as the run's training file was read, unless columns or a folder are said."""
    from dragoman.data.audit import BROKEN_SHOWN
    from dragoman.data.reading import read
    from dragoman.errors import UserError
    from dragoman.parts import kind_of

    if source and system.is_language_model:
        raise UserError("--source: this run is a language model and reads no source")
    names = list(system.modalities)
    changes = data_settings(source, target, root)
    if source:
        if len(source) != len(names):
            raise UserError(f"--source: this run reads {', '.join(names)}; give a column for each, in this order")
        found = changes["source"]
        changes["source"] = dict(zip(names, found if isinstance(found, list) else [found], strict=True))
    kinds = {name: kind_of(one.modality) for name, one in system.recipe.sources.items()}
    corpus = read(files, system.recipe.reading.model_copy(update=changes), kinds)
    for place in corpus.audit.broken[:BROKEN_SHOWN]:
        typer.echo(str(place), err=True)
    return corpus


def load_runs(
    run: Path, device: str, ensemble: list[Path] | None, lm: Path | None = None, lm_weight: float | None = None
) -> Any:
    """A run, an ensemble, or either with a language model beside it."""
    from dragoman.errors import UserError
    from dragoman.workflow import load

    if lm is None and lm_weight is not None:
        raise UserError("--lm-weight: says how much a language model counts; give one with --lm RUN")
    weight = {} if lm_weight is None else {"lm_weight": lm_weight}
    return load([run, *(ensemble or [])], device, lm=lm, **weight)


def chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def first_few(items: Sequence[object], most: int = 5) -> str:
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


@contextmanager
def stoppable() -> Iterator[Any]:
    """Ctrl-C and a polite kill ask training to save and stop; a second one stops at once."""
    import signal

    asked = False

    def handler(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    old = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
