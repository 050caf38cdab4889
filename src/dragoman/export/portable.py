"""Export a run to one file, ``model.dragoman``, which the native library and ``dragoman-runtime`` run.

The file has the program with its weights, the tokenisers as tables, the search settings of the run and
its length limits (``program/file.py`` describes it). It is written after it has answered as the run
does: the search of the library on real inputs, and its tokenisers on the same inputs and on ``PROBES``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragoman import __version__
from dragoman.data.vocabulary import BOS, EOS
from dragoman.errors import UserError
from dragoman.export.parity import Parity, check_parity
from dragoman.export.tokenizer_table import tokenizer_table
from dragoman.files import read_tensor_header, write_json, write_run_file
from dragoman.files.checksums import KEY
from dragoman.inference.engine.native import open_engine
from dragoman.inference.predictions import Prediction
from dragoman.inference.system import System
from dragoman.parts import dump
from dragoman.program.file import Section, write_program
from dragoman.runs.weights import PORTABLE, WEIGHTS
from dragoman.runtime.container import Container
from dragoman.runtime.model import Model as RuntimeModel
from dragoman.runtime.settings import Limits, pack_runs, pack_settings

# Texts on which tokenisers that differ would show it: normalisation, spaces, marks, scripts, characters of four bytes.
PROBES = (
    "e\u0301lan a\u0300 q\u0323\u0307 \u212b \u1e9b\u0323 \u0958 \u1112\u1161\u11ab \uac00\u11a8",
    "a  b\tc \u00a0d\u2003e \u3000f_g don't 12.5% x\u200dy",
    "Élan ĀŻ ß 한국어 日本語 ไทย हिन्दी ترجمة 😀👍🏽 </s> <unk> ▁ \ufffd",
)
SHOWN = 20  # inputs that the runtime itself is asked


def export_portable(system: System, folder: Path, inputs: Sequence[Any], *, int8: bool = False) -> Parity:
    """Write the file into a folder, and the figures of the check beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    parity = write_portable(system, folder, inputs, int8=int8)
    record = {"format": "portable", "version": __version__, "int8": int8, "parity": parity.to_json()}
    write_json(folder / "export.json", record)
    return parity


def write_portable(system: System, folder: Path, inputs: Sequence[Any], *, int8: bool = False) -> Parity:
    """Write the file alone: the figures are also in it."""
    data, parity = make_portable(system, inputs, int8=int8)
    write_run_file(folder / PORTABLE, data)
    return parity


def make_portable(system: System, inputs: Sequence[Any], *, int8: bool = False) -> tuple[bytes, Parity]:
    """Return the bytes of the file and how it compares with the run. Raise an error where they do not say the same."""
    parity = _check(system, pack_portable(system, None, int8=int8), inputs, int8)
    return pack_portable(system, parity, int8=int8), parity


def pack_portable(system: System, parity: Parity | None, *, int8: bool = False) -> bytes:
    """Return the bytes of the file. ``parity``: the figures of a check, which whoever calls this has made."""
    more = [*_tables(system), *_settings(system), _about(system, int8, parity)]
    return write_program(system.model.lower(), int8=int8, more=more)


def _check(system: System, data: bytes, inputs: Sequence[Any], int8: bool) -> Parity:
    """Return how the bytes of a file compare with the run."""
    container = Container(np.frombuffer(data, np.uint8), PORTABLE)
    engine = open_engine(system.inputs, system.target, container, lambda: system.engine)
    parity = check_parity(system, engine, "native library", inputs, quantized=int8)
    native = replace(system, combined=engine)
    answers = native.predict(list(inputs)[:SHOWN], attention=False, trace=False, probabilities=False)
    check_texts(system, RuntimeModel(container), inputs, answers)
    return parity


def check_texts(system: System, model: RuntimeModel, inputs: Sequence[Any], answers: Sequence[Prediction]) -> None:
    """Refuse a file whose tokenisers or settings are not those of the run.

    ``answers``: those of the run's own search settings to the first inputs, computed by the same library.
    """
    texts = {name: list(PROBES) for name in ("target", *model.readers)}
    for each in inputs:
        named = each if isinstance(each, dict) else {next(iter(system.modalities), "target"): each}
        for name, text in named.items():
            if name in texts:
                texts[name].append(str(text))
    for name, reader in (("target", model.target), *model.readers.items()):
        own = system.target if name == "target" else system.modalities[name].tokenizer
        assert own is not None
        for text in texts[name]:
            ids = own.encode(text)
            if (
                reader.encode(text) != ids
                or reader.decode(ids) != own.decode(ids)
                or reader.pieces(ids) != own.pieces(ids)
            ):
                raise UserError(
                    f"the export does not say what the run says: its tokeniser of {name!r} reads {text!r} differently"
                )
    if any(modality.is_file for modality in system.modalities.values()) or system.recipe.search.ctc:
        return  # the runtime reads arrays, not files, and has no CTC
    for given, answer in zip(inputs, answers, strict=False):
        found = model.predict(given)
        if (found.text, found.error is None) != (answer.text, answer.error is None):
            raise UserError(
                f"the export does not say what the run says: to {given!r} the run answers {answer.text!r}, and the "
                f"runtime {found.text!r}"
            )


def _tables(system: System) -> list[Section]:
    """Return the tokenisers of the text sources and of the target, numbered as the sources are."""
    tokenizers = [modality.tokenizer for modality in system.modalities.values()]
    tables = [
        Section("tokenizer", tokenizer_table(tokenizer), number)
        for number, tokenizer in enumerate([*tokenizers, system.target])
        if tokenizer is not None
    ]
    return tables


def _settings(system: System) -> list[Section]:
    config = system.search_config()
    lengths, data = system.lengths, system.recipe.data
    limits = Limits(lengths.ratio, lengths.extra, lengths.most, 0 if data.running else data.max_characters)
    numbers = pack_settings(config.model_dump(), limits, BOS, EOS)
    forbidden = [*((token,) for token in config.forbidden), *config.forbidden_runs]
    return [
        Section("settings", np.array(numbers, "<f8").tobytes()),
        Section("forbidden", np.array(pack_runs(forbidden), "<i4").tobytes()),
        *([Section("only", np.array(pack_runs(config.only), "<i4").tobytes())] if config.only else []),
    ]


def _about(system: System, int8: bool, parity: Parity | None = None) -> Section:
    """Return what the file says of itself: plain facts, which the library never reads."""
    outline = system.outline
    weights = None
    if system.folder is not None and (system.folder / WEIGHTS).exists():
        weights = read_tensor_header(system.folder / WEIGHTS).metadata.get(KEY)
    facts = {
        "run": system.run,
        "name": system.folder.name if system.folder else None,
        "version": __version__,
        "preset": system.recipe.preset,
        "weights": weights,  # the SHA-256 that model.safetensors carries
        "int8": int8,
        "parameters": outline.parameters,
        "strides": dict(outline.strides),
        "reads_source": outline.reads_source,
        "sources": {name: dump(modality.config) for name, modality in system.modalities.items()},
        "tokenizers": {
            name: tokenizer.kind
            for name, tokenizer in (
                *((name, modality.tokenizer) for name, modality in system.modalities.items()),
                ("target", system.target),
            )
            if tokenizer is not None
        },
        "classes": list(system.classes),
        "ctc": system.recipe.search.ctc,
        "confidence": None if system.confidence is None else system.confidence.to_json(),
        "parity": None if parity is None else asdict(parity),
    }
    return Section("about", json.dumps(facts, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace"))
