"""The engines that are compared, each made from a system in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from dragoman.export.ctranslate2 import write_model
from dragoman.export.ctranslate2_spec import check_shape
from dragoman.export.onnx_graph import encode_graph, step_graph
from dragoman.inference.engine.contract import Engine
from dragoman.inference.engine.ctranslate2 import CTranslate2Engine
from dragoman.inference.engine.native import NativeEngine
from dragoman.inference.engine.onnx import OnnxRunner
from dragoman.inference.engine.programs import ProgramEngine, ReferenceRunner
from dragoman.inference.system import System
from dragoman.program.native import NativeProgram


def make_onnx(system: System) -> Engine:
    program = system.model.lower()
    encode = encode_graph(program).SerializeToString() if program.sources else None
    runner = OnnxRunner(program, encode, step_graph(program).SerializeToString())
    return ProgramEngine(system.inputs, runner, "onnx")


def make_numpy(system: System) -> Engine:
    return ProgramEngine(system.inputs, ReferenceRunner(system.model.lower()), "numpy")


def make_native(system: System) -> Engine:
    opened = NativeProgram(system.model.lower())
    return NativeEngine(system.inputs, opened, lambda: system.engine)


def make_ctranslate2(system: System) -> Engine:
    program = system.model.lower()
    check_shape(program)
    with tempfile.TemporaryDirectory() as place:
        write_model(system, program, Path(place) / "model", False)
        return CTranslate2Engine(system.inputs, Path(place) / "model")


MAKERS: dict[str, Callable[[System], Engine]] = {
    "onnx": make_onnx,
    "native": make_native,
    "numpy": make_numpy,
    "ctranslate2": make_ctranslate2,
}
