"""Random input to everything that reads files: an answer or a sentence, and nothing else."""

from __future__ import annotations

import io
import json
import shutil
import wave
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dragoman
from dragoman.data import tokenizers
from dragoman.data.media import MediaError
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import read
from dragoman.errors import UserError
from dragoman.files import read_json, read_tensor_file
from dragoman.files.checksums import BLANK, seal
from dragoman.modalities import _array_reader, _audio_reader, _image_reader

pytestmark = pytest.mark.filterwarnings("ignore")

Amount = Callable[[int, int], int]
Record = Callable[[str, dict[str, Any]], None]

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.sampled_from([10**9, 10**18, 2**63, -1, 0, 1e308, "auto", "rnn", "transformer", "../x", "\0"]),
)  # fmt: skip
values = st.recursive(scalars, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)), max_leaves=8)  # fmt: skip


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """Bytes with some of them changed, left out, doubled or replaced by others."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 40))
        middle = draw(st.one_of(st.binary(max_size=40), st.just(b""), st.just(data[start : start + size] * 2)))
        data = data[:start] + middle + data[start + size :]
    return data


def paths_of(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [above] if above else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [path for key, inner in items for path in paths_of(inner, (*above, key))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    value = json.loads(json.dumps(value))
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return value


def write_sealed(path: Path, plain: dict[str, Any]) -> None:
    plain = {"sha256": BLANK, **{key: value for key, value in plain.items() if key != "sha256"}}
    path.write_bytes(b"".join(map(bytes, seal([json.dumps(plain).encode("utf-8", "surrogatepass")]))))


def run(number: int, strategy: Any, attempt: Callable[[Any], object]) -> int:
    """Call ``attempt`` with many examples, and return how many; a ``UserError`` is an answer, other errors are not."""
    checks = list(HealthCheck)
    tried = 0

    @settings(max_examples=number, deadline=None, database=None, derandomize=True, suppress_health_check=checks)
    @given(strategy)
    def test(example: Any) -> None:
        nonlocal tried
        tried += 1
        with suppress(UserError, MediaError):
            attempt(example)

    test()
    return tried


def test_json(tmp_path: Path, amount: Amount, record: Record) -> None:
    path = tmp_path / "file.json"
    texts = st.one_of(
        st.binary(max_size=200), values.map(lambda value: json.dumps(value).encode()), damaged(b'{"a": [1]}')
    )

    def attempt(data: bytes) -> None:
        path.write_bytes(data)
        assert isinstance(read_json(path), dict)

    record("fuzz: JSON", {"cases": run(amount(100, 30_000), texts, attempt)})


def test_files_of_tensors(tiny_run: Any, tmp_path: Path, amount: Amount, record: Record) -> None:
    path, whole = tmp_path / "file.safetensors", (tiny_run.folder / "model.safetensors").read_bytes()
    head = whole[: int.from_bytes(whole[:8], "little") + 200]

    def attempt(data: bytes) -> None:
        path.write_bytes(data)
        assert read_tensor_file(path)

    tried = run(amount(50, 15_000), damaged(head), attempt)
    unsealed = whole[:8] + whole[8:].replace(b'"sha256"', b'"sha25x"', 1)
    tried += run(amount(30, 5_000), damaged(unsealed[: len(head)]), attempt)
    record("fuzz: files of tensors", {"cases": tried})


def test_tokenisers(tiny_run: Any, tmp_path: Path, amount: Amount, record: Record) -> None:
    plain = json.loads((tiny_run.folder / "source.tokenizer.json").read_text(encoding="utf-8"))

    def attempt(example: tuple[Any, Any]) -> None:
        write_sealed(tmp_path / "side.tokenizer.json", put(plain, *example))
        loaded = tokenizers.load(tmp_path, "side")
        assert loaded.decode(loaded.encode("abc")) is not None

    tried = run(amount(80, 15_000), st.tuples(st.sampled_from(paths_of(plain)), values), attempt)
    record("fuzz: tokenisers", {"cases": tried})


def test_configs(tiny_run: Any, tmp_path: Path, amount: Amount, record: Record) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))

    def attempt(example: tuple[Any, Any]) -> None:
        write_sealed(folder / "config.json", put(plain, *example))
        dragoman.load(folder)

    tried = run(amount(60, 10_000), st.tuples(st.sampled_from(paths_of(plain)), values), attempt)
    record("fuzz: configs", {"cases": tried})


def test_tables(tmp_path: Path, amount: Amount, record: Record) -> None:
    good = {
        "none.json": b"[{}]",
        "rows.tsv": b"a b\tc d\nx\ty\n\nq\tr\ts\n\tx\ty\n\nq\tr\ts\n",
        "tsv": b"a b\tc d\nx\ty\n\nq\tr\ts\n", "csv": b'source,target\n"a, b",c\nd,"e\nf"\n',
        "jsonl": b'{"source": "a", "target": "b"}\n{"source": 1, "target": null}\n',
        "json": b'[{"source": "a", "target": "b"}]',
    }  # fmt: skip
    tried = 0
    for suffix, data in good.items():
        path = tmp_path / f"table.{suffix}"

        def attempt(example: bytes, path: Path = path) -> None:
            path.write_bytes(example)
            read([path], DataConfig())

        with suppress(UserError):  # as it is: no columns, or rows of more cells than the first
            attempt(data)
        tried += run(amount(40, 5_000), st.one_of(damaged(data), st.binary(max_size=100)), attempt)
    record("fuzz: tables", {"cases": tried})


def test_media(tmp_path: Path, amount: Amount, record: Record) -> None:
    from PIL import Image

    picture, sound, array = io.BytesIO(), io.BytesIO(), io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(picture, "PNG")
    with wave.open(sound, "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
        file.writeframes(bytes(400))
    np.save(array, np.zeros((5, 3), np.float32))
    readers: tuple[tuple[str, bytes, Callable[[str], object]], ...] = (
        ("a.png", picture.getvalue(), _image_reader.read),
        ("a.wav", sound.getvalue(), _audio_reader.read),
        ("a.npy", array.getvalue(), _array_reader.read),
    )
    tried = 0
    for name, data, reader in readers:

        def attempt(example: bytes, path: Path = tmp_path / name, reader: Callable[[str], object] = reader) -> None:
            path.write_bytes(example)
            reader(str(path))

        tried += run(amount(40, 5_000), damaged(data), attempt)
    record("fuzz: media", {"cases": tried})
