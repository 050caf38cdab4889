"""Run an exported program with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.config import TooLong
from dragoman.errors import UserError
from dragoman.files import LARGE, read_json, read_regular
from dragoman.inference.engine.programs import RowsAdvanced
from dragoman.program.reference import Encoded
from dragoman.program.table import VERSION, Program, Slot, Source

ENCODE, STEP, DESCRIPTION = "encode.onnx", "step.onnx", "program.json"  # the files of an export
FOLDER = "onnx"  # of the export, in the folder of the run


class OnnxRunner:
    """Runs the two graphs of an export: ``encode`` for one source, ``step`` for many rows."""

    def __init__(self, program: Program, encode: bytes | Path | None, step: bytes | Path, threads: int = 1) -> None:
        """``program`` describes the graphs; its weights are not needed. A language model has no ``encode``."""
        runtime = import_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only

        def open_graph(graph: bytes | Path) -> Any:
            model = graph if isinstance(graph, bytes) else str(graph)
            return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        self.program = program
        self._encode = None if encode is None else open_graph(encode)
        self._encoded = [] if self._encode is None else [output.name for output in self._encode.get_outputs()]
        self._step = open_graph(step)
        self._outputs = [output.name for output in self._step.get_outputs()]
        self._inputs = {given.name for given in self._step.get_inputs()}

    def encode(self, sources: Mapping[str, np.ndarray]) -> Encoded:
        program = self.program
        values: dict[str, np.ndarray] = {}
        if self._encode is not None:
            given = {
                source.name: np.asarray(sources[source.name], np.int64 if source.kind == "tokens" else np.float32)
                for source in program.sources
            }
            values = dict(zip(self._encoded, _run(self._encode, self._encoded, given), strict=True))
        slots = {}
        for slot in program.slots:
            rows = 0 if slot.grows else slot.rows
            slots[slot.name] = values[slot.begin] if slot.begin else np.zeros((rows, slot.width), np.float32)
        return Encoded(
            {name: values[name] for name in program.fixed},
            slots,
            len(values[program.states]) if program.states else 0,
            len(values[program.begin]) if program.begin else 0,
            values.get(program.ctc),
            values.get(program.summary),
        )

    def advance(
        self,
        tokens: np.ndarray,
        positions: np.ndarray,
        fixed: Mapping[str, np.ndarray],
        mask: np.ndarray,
        slots: Mapping[str, np.ndarray],
        past: np.ndarray,
    ) -> RowsAdvanced:
        given = {"token": tokens, "position": positions, "mask": mask, "past": past, **fixed, **slots}
        given = {name: array for name, array in given.items() if name in self._inputs}
        made = dict(zip(self._outputs, _run(self._step, self._outputs, given), strict=True))
        ends = {slot.name: made[slot.end] for slot in self.program.slots}
        return RowsAdvanced(made["logits"], made.get("attention"), ends)


def _run(session: Any, outputs: list[str], given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    try:
        return list(session.run(outputs, given))
    except Exception as error:
        if "out of bounds" in str(error):  # of the table of learned positions
            raise TooLong("the input or its output has more positions than the model knows; shorten it") from None
        raise


def import_runtime() -> Any:
    """Import ONNX Runtime, or say which extra has it."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(
            "the engine 'onnx' needs ONNX Runtime, which is not installed: pip install 'dragoman[onnx]'"
        ) from None
    return onnxruntime


def open_export(folder: Path) -> OnnxRunner:
    """Open an export in a folder, or in the run's folder that it was written to."""
    found = folder / FOLDER if (folder / FOLDER / STEP).exists() else folder
    if not (found / STEP).exists():
        raise UserError(f"{folder}: has no ONNX export; write one: dragoman export {folder} --to onnx")
    program = read_description(found / DESCRIPTION)
    encode = read_regular(found / ENCODE, limit=LARGE) if program.sources else None
    return OnnxRunner(program, encode, read_regular(found / STEP, limit=LARGE))


def read_description(path: Path) -> Program:
    """Read the description of an export: its program without operations and weights."""
    record = read_json(path)
    if record.get("version") != VERSION:
        raise UserError(
            f"{path}: has version {record.get('version')!r}, but this Dragoman reads {VERSION}; export again"
        )
    names = {name: record[name] for name in ("logits", "states", "begin", "ctc", "summary")}
    return Program(
        record["vocabulary"],
        tuple(Source(**source) for source in record["sources"]),
        (),
        tuple(record["fixed"]),
        tuple(Slot(**slot) for slot in record["slots"]),
        (),
        attention=tuple(record["attention"]),
        weights={},
        **names,
    )


def describe_program(program: Program) -> dict[str, Any]:
    """Return what a runner of an export has to know, as plain data."""
    return {
        "version": program.version,
        "vocabulary": program.vocabulary,
        "sources": [_fields(source) for source in program.sources],
        "fixed": list(program.fixed),
        "slots": [_fields(slot) for slot in program.slots],
        **{name: getattr(program, name) for name in ("logits", "states", "begin", "ctc", "summary")},
        "attention": list(program.attention),
    }


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
