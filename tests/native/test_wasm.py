"""The WebAssembly says what Python says: tokenisers, pictures, sound and frames, in Node."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import wave
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from dragoman.data.tokenizers import TokenizerConfig, fit
from dragoman.export.tokenizer_table import tokenizer_table

ROOT = Path(__file__).parent.parent.parent
ARCHIVE = ROOT / "src" / "dragoman" / "export" / "runtime.zip"
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a script of Node beside the packed runtime, with an object as its standard input."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no Node")
    folder = tmp_path_factory.mktemp("runtime")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)

    def run(script: str, given: Any) -> Any:
        head = (
            'import { readFileSync } from "node:fs"; import * as runtime from "./dragoman.js";'
            'const given = JSON.parse(readFileSync(0, "utf8")); const bytes = (text) => Buffer.from(text, "base64");'
            'const library = await runtime.Library.load(readFileSync("dragoman.wasm"));'
            "const numbers = ({ buffer, byteOffset, byteLength }) =>"
            ' Buffer.from(buffer, byteOffset, byteLength).toString("base64");'
        )
        (folder / "script.mjs").write_text(head + script, encoding="utf-8")
        done = subprocess.run(
            [found, "script.mjs"], cwd=folder, input=json.dumps(given).encode(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    return run


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.float32)


@pytest.fixture(scope="module")
def packing() -> Any:
    specification = importlib.util.spec_from_file_location("pack_runtime", ROOT / "studio" / "pack_runtime.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_packed_runtime_was_built_from_these_sources(packing: Any) -> None:
    packed = packing.read_packed()
    assert packed[packing.SCRIPTS_DIGEST].decode() == packing.digest_scripts(), "the scripts are stale: `make runtime`"
    assert packed[packing.LIBRARY_DIGEST].decode() == packing.digest_library(), (
        "the WebAssembly is stale: `make runtime` (needs ziglang)"
    )
    assert len(packed["dragoman.wasm"]) < 200_000
    assert len(packed["page.js"]) + len(packed["engine.js"]) < 120_000


def test_tokenisers_give_what_pythons_give(node: Any) -> None:
    from test_tokenizers import CONFIGS, CORPUS, SPECIAL, TEXTS, door, many
    from test_tokenizers import texts as any_texts

    found: list[str] = [*CORPUS[:5], *SPECIAL, "", " "]

    @many
    @given(any_texts)
    def collect(text: str) -> None:
        found.append(text)

    collect()
    assert len(found) >= TEXTS
    texts = [door(text).decode() for text in found]  # JSON carries no lone surrogates
    tokenizers = [fit(TokenizerConfig(**config), CORPUS) for config in CONFIGS]
    tables = [text_of(tokenizer_table(tokenizer)) for tokenizer in tokenizers]
    for some in (texts[first : first + 1000] for first in range(0, len(texts), 1000)):
        answers = node(
            """
            console.log(JSON.stringify(given.tables.map((table) => {
              const tokenizer = new runtime.Tokenizer(library, bytes(table));
              return given.texts.map((text) => {
                const ids = [...tokenizer.encode(text)];
                return [ids, tokenizer.decode(ids), ids.map((id) => tokenizer.piece(id))];
              });
            })));
            """,
            {"tables": tables, "texts": some},
        )
        for tokenizer, rows in zip(tokenizers, answers, strict=True):
            for text, (ids, decoded, pieces) in zip(some, rows, strict=True):
                wanted = tokenizer.encode(text)
                assert ids == wanted, (tokenizer.kind, text)
                assert decoded == tokenizer.decode(wanted)
                assert pieces == tokenizer.pieces(wanted)


def test_pictures_are_scaled_as_pillow_scales_them(node: Any) -> None:
    image = pytest.importorskip("dragoman.modalities.image")
    pytest.importorskip("PIL", reason="Pillow is an extra")
    generator = np.random.default_rng(1)
    sizes = [(40, 60), (129, 17), (16, 16), (7, 5), (200, 150), (33, 32)]
    pixels = [generator.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    for config in ({"size": 32}, {"size": 32, "enlarge": True}, {"size": 25, "grey": True}):
        modality = image.Image(image.Image.Config(**config), (), ())
        found = node(
            """
            console.log(JSON.stringify(given.pictures.map(({ data, height, breadth }) => {
              const made = runtime.pictureFeatures({ data: bytes(data), height, breadth }, given.reading);
              return { ...made, data: numbers(made.data) };
            })));
            """,
            {
                "reading": dict(modality.describe_reading()),
                "pictures": [
                    {"data": text_of(each.tobytes()), "height": each.shape[0], "breadth": each.shape[1]}
                    for each in pixels
                ],
            },
        )
        for each, got in zip(pixels, found, strict=True):
            scaled = modality._channels(image.resize(each, *modality._scaled_size(*each.shape[:2])))
            assert (got["height"], got["breadth"]) == scaled.shape[:2]
            # Pillow takes the columns of tall pictures first, and rounds in between.
            allowed = 1 if each.shape[0] > each.shape[1] else 0
            assert np.abs(floats(got["data"]).reshape(scaled.shape) - scaled).max() <= allowed


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100])
def test_sound_becomes_the_same_frames(node: Any, tmp_path: Path, rate: int) -> None:
    pytest.importorskip("soundfile", reason="soundfile is an extra")
    from dragoman.modalities.speech import Speech

    generator = np.random.default_rng(rate)
    times = np.arange(rate // 3) / rate
    samples = np.sin(2 * np.pi * 440 * times) * 0.4 + generator.normal(0, 0.05, len(times))
    path = tmp_path / "tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 + (rate == 16000))
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").repeat(1 + (rate == 16000)).tobytes())
    modality = Speech(Speech.Config(), 16000 if rate > 8000 else 8000)
    wanted = modality.array(str(path))
    found = node(
        """
        const made = runtime.soundFeatures(runtime.readWave(bytes(given.file)), given.reading);
        console.log(JSON.stringify({ ...made, data: numbers(made.data) }));
        """,
        {"file": text_of(path.read_bytes()), "reading": dict(modality.describe_reading())},
    )
    got = floats(found["data"]).reshape(found["length"], -1)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() < 2e-3


def test_frames_become_the_same_positions(node: Any, tmp_path: Path) -> None:
    from dragoman.modalities._frames import FeatureStatistics
    from dragoman.modalities.features import Features

    frames = np.random.default_rng(2).normal(3, 2, (17, 5)).astype(np.float32)
    file = io.BytesIO()
    np.save(file, frames)
    path = tmp_path / "frames.npy"
    path.write_bytes(file.getvalue())
    for config in ({"deltas": 2, "stack": 3, "stride": 2, "normalise": "utterance"}, {"normalise": "global"}):
        overall = FeatureStatistics.of([frames + 1]) if config["normalise"] == "global" else None
        modality = Features(Features.Config(**config), 5, overall)
        found = node(
            """
            const made = runtime.frameFeatures(runtime.readArray(bytes(given.file)), given.reading);
            console.log(JSON.stringify({ ...made, data: numbers(made.data) }));
            """,
            {"file": text_of(file.getvalue()), "reading": dict(modality.describe_reading())},
        )
        wanted = modality.array(str(path))
        got = floats(found["data"]).reshape(wanted.shape)
        assert found["length"] == len(wanted)
        assert np.abs(got - wanted).max() < 1e-5
