"""What the verbs of the command line share: reading lines and files, stopping politely. Light, as ``cli`` is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
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


def data_config(source: list[str] | None, target: str | None, settings: list[str] | None) -> Any:
    from pydantic import ValidationError

    from dragoman.config import ConfigError, explain, parse_overrides
    from dragoman.data.reading import DataConfig

    asked_columns = {"source": columns(source), "target": column(target)}
    given = parse_overrides(settings or [])
    asked = given.pop("data", {})
    if given or not isinstance(asked, dict):
        wrong = next(iter(given), "data")
        raise ConfigError(f"--set {wrong}: only settings of the data are heeded here, for example data.format=tsv")
    try:
        return DataConfig(**(asked | {key: value for key, value in asked_columns.items() if value is not None}))
    except ValidationError as error:
        raise explain(error, DataConfig, "data") from None


def read_like(system: Any, files: list[str], source: list[str] | None, target: str | None) -> Any:
    """Read a file as the run's training file was read, unless columns are said."""
    from dragoman.data.reading import read
    from dragoman.errors import UserError
    from dragoman.parts import kind_of

    if source and system.is_language_model:
        raise UserError("--source: this run is a language model and reads no source")
    names = list(system.modalities)
    changes: dict[str, Any] = {}
    if source:
        if len(source) != len(names):
            raise UserError(f"--source: this run reads {', '.join(names)}; give a column for each, in this order")
        found = columns(source)
        changes["source"] = dict(zip(names, found if isinstance(found, list) else [found], strict=True))
    if target is not None:
        changes["target"] = column(target)
    kinds = {name: kind_of(one.modality) for name, one in system.recipe.sources.items()}
    return read(files, system.recipe.reading.model_copy(update=changes), kinds)


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


def lines(file: str) -> Iterator[str]:
    """Lines end at \\n only. Bytes that are not UTF-8 become U+FFFD: one line in, one line out."""
    from dragoman.errors import UserError

    try:
        stream = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    with stream:
        for number, line in enumerate(stream):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
            yield text.removeprefix("\ufeff") if number == 0 else text


def chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


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
