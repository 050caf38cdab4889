"""Export a run for Node: the model file, the native library as WebAssembly, a module of JavaScript.

model.dragoman     the run, as ``export/portable.py`` describes it
dragoman.js        ``Dragoman.load(model, { wasm })`` and ``predict``; for browsers too
dragoman.wasm      the native library
ask.mjs            a program: node ask.mjs model.dragoman < inputs.txt
export.json        what was compared with the run, and the figures

The scripts and the WebAssembly are in the archive runtime.zip beside this file
(``studio/pack_runtime.py``).
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from dragoman import __version__
from dragoman.errors import UserError
from dragoman.export.parity import Answer, Parity, check_answers
from dragoman.export.portable import make_portable, pack_portable
from dragoman.files import write_atomically, write_json, write_run_file
from dragoman.inference.requests import PreparedInput
from dragoman.inference.system import System
from dragoman.runs.weights import PORTABLE
from dragoman.types import Hypothesis

LIBRARY = "dragoman.wasm"
SHIPPED = ("ask.mjs", "dragoman.js", LIBRARY)
OLDEST = 20  # major version of Node with everything that the scripts use
SECONDS = 3600  # after which Node is given up


def read_runtime() -> Mapping[str, bytes]:
    """Return the files that run a model without Python, by name."""
    return _read_archive(Path(str(resources.files("dragoman.export"))) / "runtime.zip")


@cache
def _read_archive(path: Path) -> Mapping[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: the runtime of pages cannot be read ({error}); install dragoman again, or run `make runtime` in "
            "a checkout"
        ) from None


def export_node(system: System, folder: Path, inputs: Sequence[Any], *, int8: bool = False) -> Parity:
    """Write the files into a folder, after they have given the run's answers on ``inputs``."""
    files = read_runtime()
    model, parity = check_model(system, files, inputs, int8=int8)
    folder.mkdir(parents=True, exist_ok=True)
    write_run_file(folder / PORTABLE, model)
    for name in SHIPPED:
        write_atomically(folder / name, files[name])
    record = {"format": "node", "version": __version__, "int8": int8, "parity": parity.to_json()}
    write_json(folder / "export.json", record)
    return parity


def check_model(
    system: System, files: Mapping[str, bytes], inputs: Sequence[Any], *, int8: bool = False
) -> tuple[bytes, Parity]:
    """Return a model file that has given the run's answers on ``inputs``, and the figures.

    They are asked in Node, which runs the same scripts and WebAssembly as a browser does. Where there is
    no Node, the native library answers from the same model file.
    """
    if system.recipe.search.ctc:
        raise UserError(
            f"this run searches with CTC (search.ctc = {system.recipe.search.ctc}), which its own search alone can do; "
            "set search.ctc = 0 in the run's config.json, or export it to ONNX"
        )
    if find_node() is None:
        return make_portable(system, inputs, int8=int8)
    parity = check_in_node(system, pack_portable(system, None, int8=int8), files, inputs, quantized=int8)
    return pack_portable(system, parity, int8=int8), parity


@cache
def find_node() -> str | None:
    """Return the path of Node, or None where there is none or one that is too old."""
    path = shutil.which("node")
    if path is None:
        return None
    try:
        shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v(\d+)\.", shown)
    return path if version and int(version[1]) >= OLDEST else None


def check_in_node(
    system: System, model: bytes, files: Mapping[str, bytes], inputs: Sequence[Any], *, quantized: bool
) -> Parity:
    """Compare a model file in Node with the run; raise an error where they do not say the same.

    Texts are read by the scripts. Pictures, recordings and other files are read here, because Node cannot
    decode all of them.
    """

    def answer(beam: int, prepared: Sequence[PreparedInput]) -> list[Answer]:
        options = {"beam": beam, "nBest": 1}
        known: dict[int, Answer] = {}
        asked = []
        for row, each in enumerate(prepared):
            try:
                if each.is_empty:
                    known[row] = "the input is empty"
                else:
                    asked.append({"input": _plain(system, each.read()), "options": options})
            except UserError as error:
                known[row] = str(error)
        found = map(_answered, ask(model, files, asked))
        return [known[row] if row in known else next(found) for row in range(len(prepared))]

    return check_answers(system, answer, "WebAssembly in Node", inputs, quantized=quantized)


def ask(model: bytes, files: Mapping[str, bytes], asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the model answers in Node to requests ``{"input": …, "options": …}``."""
    node = find_node()
    if node is None:
        raise UserError(f"there is no Node {OLDEST} or later to ask the model with; install it, or leave this out")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in SHIPPED:
            (folder / file).write_bytes(files[file])
        (folder / PORTABLE).write_bytes(model)
        lines = "".join(f"{json.dumps(each)}\n" for each in asked)
        command = [node, "ask.mjs", PORTABLE, "--json"]
        done = subprocess.run(
            command, cwd=folder, input=lines.encode(), capture_output=True, check=False, timeout=SECONDS
        )
    if done.returncode:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"])[-1]
        raise UserError(f"the model cannot be asked in Node: {reason}")
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def _plain(system: System, prepared: PreparedInput) -> Any:
    """Return an input as JSON: texts as they are, other sources as the numbers that the model reads."""
    if not system.modalities:
        return next(iter(prepared.texts.values()))
    return {
        name: _features(prepared.arrays[name]) if modality.is_file else prepared.texts[name]
        for name, modality in system.modalities.items()
    }


def _features(array: np.ndarray) -> dict[str, Any]:
    floats = base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()
    if array.ndim == 3:
        height, breadth = array.shape[:2]
        return {"floats": floats, "length": height * breadth, "height": height, "breadth": breadth}
    return {"floats": floats, "length": len(array)}


def _answered(answer: Mapping[str, Any]) -> Answer:
    if "error" in answer:
        return str(answer["error"])
    best = answer["outputs"][0]
    return Hypothesis(tuple(best["ids"]), tuple(best["logProbs"]), best["score"], best["finished"], ())
