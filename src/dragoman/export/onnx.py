"""Export a run to ONNX: two graphs, the files that describe the run, and the figures of the check.

encode.onnx      one source → what the decoder reads, and its first state (not for a language model)
step.onnx        tokens and states of many hypotheses → logits and new states
program.json     names of the graphs' values: sources, fixed values, slots
export.json      what was compared with the run, and the figures
config.json, *.tokenizer.json, …    those of the run: how texts become ids
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.errors import UserError
from dragoman.export.onnx_graph import encode_graph, step_graph
from dragoman.export.parity import Parity, check_parity
from dragoman.files import write_atomically, write_json
from dragoman.inference.engine.onnx import DESCRIPTION, ENCODE, STEP, OnnxRunner, describe_program
from dragoman.inference.engine.programs import ProgramEngine
from dragoman.inference.system import System


def export_onnx(system: System, folder: Path, inputs: Sequence[Any], *, int8: bool = False) -> Parity:
    """Write the export into a folder, after it has given the run's answers on ``inputs``."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise UserError("exporting to ONNX needs the package onnx: pip install 'dragoman[onnx]'") from None
    program = system.model.lower()
    graphs = {STEP: step_graph(program)}
    if program.sources:
        graphs[ENCODE] = encode_graph(program)
    files = {name: _quantize(graph) if int8 else graph.SerializeToString() for name, graph in graphs.items()}
    runner = OnnxRunner(program, files.get(ENCODE), files[STEP])
    engine = ProgramEngine(system.inputs, runner, "onnx")
    parity = check_parity(system, engine, "ONNX", inputs, quantized=int8)
    folder.mkdir(parents=True, exist_ok=True)
    system.save_setup(folder)
    for name, content in files.items():
        write_atomically(folder / name, content)
    write_json(folder / DESCRIPTION, describe_program(program))
    record = {"format": "onnx", "version": __version__, "int8": int8, "parity": parity.to_json()}
    write_json(folder / "export.json", record)
    return parity


def _quantize(graph: Any) -> bytes:
    """Store the weights of matrix products with 8 bits, one scale per output."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        onnx.save(graph, path)
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)  # it advises a step that changes nothing for these graphs
        try:
            quantize_dynamic(
                path, Path(folder) / "small.onnx", per_channel=True, weight_type=QuantType.QInt8,
                op_types_to_quantize=["MatMul"],
            )  # fmt: skip
        finally:
            logging.disable(disabled)
        return (Path(folder) / "small.onnx").read_bytes()
