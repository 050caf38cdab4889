"""Bodies that are forms: uploads of pictures, recordings and features, and what LibreTranslate's clients send."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman.errors import MissingExtra, UserError
from dragoman.inference.predictions import Raw
from dragoman.serving.limits import Limits
from dragoman.serving.models import Model, Models
from dragoman.serving.questions import parse_question
from dragoman.serving.records import PredictOptions, replace_surrogates
from dragoman.serving.uploads import write_upload

try:
    import python_multipart  # noqa: F401  (starlette parses forms with it)
    from starlette.datastructures import FormData, UploadFile
    from starlette.requests import Request
except ImportError:
    raise MissingExtra("fastapi, uvicorn and python-multipart", "serve", "dragoman serve") from None

OPTIONS = "options"  # the part of a form that has the options, as JSON
CHUNK = 1 << 16

FileInput = tuple[Raw, Mapping[str, str]]  # an input, and the names of its files by their paths


@asynccontextmanager
async def read_form(request: Request, limits: Limits) -> AsyncIterator[FormData]:
    """Read a form of a limited number of parts."""
    most = limits.texts * limits.sources
    async with request.form(max_files=most, max_fields=most, max_part_size=limits.body_bytes) as form:
        yield form


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """Return the fields of a form of texts; one that is there several times is a list."""
    fields: dict[str, Any] = {}
    async with read_form(request, limits) as form:
        for name in form:
            values = form.getlist(name)
            if not all(isinstance(value, str) for value in values):
                raise UserError(f"{name[:100]}: a file, where a text is expected")
            fields[name] = values[0] if len(values) == 1 else values
    return fields


@asynccontextmanager
async def read_uploads(
    request: Request, models: Models, limits: Limits, folder: Path
) -> AsyncIterator[tuple[PredictOptions, list[FileInput]]]:
    """Read a form with a part for each source of each input, and yield the options and the inputs.

    A part that is there several times makes as many inputs. Files are written into ``folder``, and deleted afterwards.
    """
    written: list[Path] = []
    try:
        async with read_form(request, limits) as form:
            given = form.getlist(OPTIONS)
            if len(given) > 1:
                raise UserError(f"{OPTIONS}: given {len(given)} times; give one JSON object")
            options = parse_question(await _read(given[0], limits) if given else b"{}", PredictOptions)
            model = models.find(options.model)
            columns = await _read_columns(form, model, limits, folder, written)
        yield options, _join_columns(columns, model)
    finally:
        for path in written:
            path.unlink(missing_ok=True)


async def _read(part: UploadFile | str, limits: Limits) -> bytes:
    """Return a part that is JSON, whether it was sent as a text or as a file."""
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    data = await part.read(limits.body_bytes + 1)
    if len(data) > limits.body_bytes:
        raise UserError(f"{OPTIONS}: longer than {limits.body_bytes:,} bytes")
    return data


async def _read_columns(
    form: FormData, model: Model, limits: Limits, folder: Path, written: list[Path]
) -> dict[str, list[tuple[str, str | None]]]:
    """Return for each source its values, and for files their names. Files are appended to ``written``."""
    columns: dict[str, list[tuple[str, str | None]]] = {}
    for part in form:
        if part == OPTIONS:
            continue
        name = model.names[0] if part == "input" and len(model.names) == 1 else part
        if name not in model.names:
            raise UserError(f"{part[:100]}: {model.id} reads {', '.join(model.names)}; name the parts so")
        values = columns.setdefault(name, [])
        limits.check("texts", len(form.getlist(part)), "inputs")
        for value in form.getlist(part):
            if name not in model.files:
                if not isinstance(value, str):
                    raise UserError(f"{name}: a file, where a text is expected")
                values.append((replace_surrogates(value), None))
                continue
            if isinstance(value, str):
                raise UserError(f"{name}: a text, where a file is expected; send it with a file name")
            given = Path((value.filename or "").replace("\\", "/")).name[:200]
            suffixes = model.system.modalities[name].suffixes
            suffix = Path(given).suffix.lower()
            if suffix not in suffixes:
                raise UserError(f"{given or name}: give a file that ends in {', '.join(suffixes)}")
            path = folder / f"upload-{secrets.token_hex(8)}{suffix}"  # the name that was given never becomes a path
            written.append(path)
            await write_upload(path, given, _chunks(value), limits)
            values.append((str(path), given))
    return columns


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(CHUNK):
        yield chunk


def _join_columns(columns: Mapping[str, list[tuple[str, str | None]]], model: Model) -> list[FileInput]:
    """Return one input for each place of the columns."""
    missing = [name for name in model.names if name not in columns]
    if missing or not model.names:
        raise UserError(f"{', '.join(missing) or 'inputs'}: missing; add a part for each source of each input")
    counts = {len(values) for values in columns.values()}
    if len(counts) > 1:
        raise UserError(f"the sources have different numbers of parts ({', '.join(map(str, sorted(counts)))})")
    inputs: list[FileInput] = []
    for place in range(counts.pop()):
        values = {name: columns[name][place] for name in model.names}
        names = {text: given for text, given in values.values() if given is not None}
        source: Raw = {name: text for name, (text, _) in values.items()}
        inputs.append((source, names))
    return inputs
