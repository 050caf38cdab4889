"""Files from strangers: no side effect outside the folder, a sentence, little time and little memory.

Each case is a folder or a file that somebody else made, and a command that reads it. The short form
tries one of each kind in this process's children; ``make faults`` tries all variants.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.files import read_tensor_header, write_json, write_tensors

MOST_SECONDS, MOST_MEMORY = 5.0, 500_000_000
FILES = ("config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json")
TRAINED = ("run.json", "checkpoint.safetensors", "metrics.jsonl")


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[Path], object]  # changes a copy of a run, or makes the file "input" in it
    arguments: tuple[str, ...]  # {} is the folder
    is_answered: bool = False  # the command may succeed: what is hostile is passed over


class Bomb:
    """Runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return (os.system, ("touch /tmp/dragoman-was-here",))


PREDICT, TRAIN = ("predict", "{}"), ("train", "{}/pairs.tsv", "--out", "{}", "--set", "training.max_updates=3")


def change(path: tuple[str, ...], value: Any) -> Callable[[Path], None]:
    """Return a function that sets a value in config.json, and gives it a right checksum."""

    def apply(folder: Path) -> None:
        plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        place = plain
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        write_json(folder / "config.json", plain)

    return apply


def replaced(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def linked(name: str, target: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return apply


def pipe(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return apply


def listening(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        here = os.getcwd()
        os.chdir(folder)  # names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(name)
        finally:
            os.chdir(here)

    return apply


def sparse(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, size)


def header(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def misshapen(name: str, shape: tuple[int, ...]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        weights = {key: torch.zeros(each) for key, each in read_tensor_header(path).shapes.items()}
        first = min(weights) if name == "first" else max(weights)
        weights[first] = torch.zeros(shape)
        write_tensors(path, weights, read_tensor_header(path).metadata)

    return apply


def zipped(size: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../evil.txt", b"0" * size)
    return data.getvalue()


def gzipped(size: int) -> bytes:
    return gzip.compress(b"a" * (1 << 20), 1) * (size >> 20)


def cases() -> Iterator[Case]:
    deep, wide = b"[" * 200_000, b'{"a":' * 100_000
    contents = {
        "pickle": pickle.dumps(Bomb()), "zip bomb": zipped(1 << 26), "gzip": gzipped(1 << 28), "empty": b"",
        "brackets": deep, "objects": wide, "null": b"null", "list": b"[]", "number": b"1e999",
        "many lists": b"[" + b"[]," * 1_000_000 + b"[]]", "many strings": b'["a"' + b',"a"' * 4_500_000 + b"]",
        "a long number": b'{"format": ' + b"9" * 100_000 + b"}", "not UTF-8": b'{"a": "\xff"}', "NUL": b"\0" * 10_000,
        "header of 2**63": header(b"{}", 1 << 63), "header of 100 MB": header(b"{}", 100 << 20),
        "deep header": header(b'{"a":' * 50_000), "no header": header(b""),
        "offsets": header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999999]}}'),
        "negative": header(b'{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,0]}}'),
        "huge shape": header(b'{"a":{"dtype":"F32","shape":[99999999999,99999999999],"data_offsets":[0,0]}}'),
        "no dtype": header(b'{"a":{"dtype":"X9","shape":[0],"data_offsets":[0,0]}}'),
    }  # fmt: skip
    for name in FILES:
        for kind, data in contents.items():
            yield Case(f"{name}: {kind}", replaced(name, data), PREDICT)
        yield Case(f"{name}: a pipe", pipe(name), PREDICT)
        yield Case(f"{name}: a socket", listening(name), PREDICT)
        for device in ("/dev/zero", "/dev/random", "/dev/tty", "/dev/full"):
            yield Case(f"{name}: {device}", linked(name, device), PREDICT)
        yield Case(f"{name}: a link to itself", linked(name, name), PREDICT)
        yield Case(f"{name}: 100 GB of holes", sparse(name, 100 << 30), PREDICT)
    for name in TRAINED:
        for kind in ("pickle", "brackets", "NUL", "header of 2**63", "gzip"):
            can_go_on = name == "metrics.jsonl"
            yield Case(f"{name}: {kind}", replaced(name, contents[kind]), TRAIN, is_answered=can_go_on)
        yield Case(f"{name}: a pipe", pipe(name), TRAIN)
        yield Case(f"{name}: /dev/zero", linked(name, "/dev/zero"), TRAIN)
    for path in (("decoder", "width"), ("decoder", "layers"), ("decoder", "embedding")):
        for value in (10**9, 10**6, 2**63, 10**30, 0, -1, 1.5, "wide", None, [1] * 1000):
            yield Case(f"config: {path} = {str(value)[:20]}", change(("recipe", *path), value), PREDICT)
    source = ("recipe", "sources", "source")
    for path in (("encoder", "width"), ("encoder", "layers"), ("modality", "embedding")):
        for value in (10**9, 10**6, 2**63, -1):
            yield Case(f"config: {path} = {value}", change((*source, *path), value), PREDICT)
    for key in ("most", "extra", "ratio"):
        for value in (10**18, float("nan"), float("inf"), -1, "x", 10**400 if key != "ratio" else 1e308):
            yield Case(f"config: lengths.{key} = {str(value)[:10]}", change(("lengths", key), value), PREDICT)
    for key in ("beam", "n_best", "samples", "max_length"):
        for value in (10**9, 10**18, -1, float("nan")):
            yield Case(f"config: search.{key} = {value}", change(("recipe", "search", key), value), PREDICT)
    for kind in ("os.system", "../../evil", "__init__", "rnn.RNN", "torch.nn.Linear", "\0", "a" * 10_000, "", 7):
        yield Case(f"config: decoder {str(kind)[:20]!r}", change(("recipe", "decoder", "kind"), kind), PREDICT)
        yield Case(f"config: encoder {str(kind)[:20]!r}", change((*source, "encoder", "kind"), kind), PREDICT)
        yield Case(f"config: modality {str(kind)[:20]!r}", change((*source, "modality", "kind"), kind), PREDICT)
    for name in ("../outside.json", "/etc/passwd", "..", "a/../../b", "/dev/zero"):
        yield Case(f"config: names {name}", change(("files",), {name: "0" * 64}), PREDICT)
        yield Case(f"config: a source {name}", change(("recipe", "sources"), {name: {}}), PREDICT)
    for shape in ((0,), (1,), (1 << 20,), (3, 3), (1,) * 10):
        for which in ("first", "last"):
            yield Case(f"weights: {which} is {shape[:3]}", misshapen(which, shape), PREDICT)
    inputs = {
        "a pipe": pipe("input"), "/dev/zero": linked("input", "/dev/zero"), "a socket": listening("input"),
        "a line of 300 MB": sparse("input", 300 << 20), "a line in a gzip": replaced("input", gzipped(1 << 29)),
        "zip bomb": replaced("input", zipped(1 << 26)), "pickle": replaced("input", pickle.dumps(Bomb())),
        "/dev/random": linked("input", "/dev/random"),
    }  # fmt: skip
    for kind, make in inputs.items():
        # a line that is too long has an empty answer, and the exit code 1
        yield Case(
            f"predict of {kind}",
            lambda folder, make=make: (  # type: ignore[misc]
                (folder / "input").touch(),
                make(folder),
            ),
            ("predict", "{}", "{}/input"),
            kind == "pickle",
        )
        for verb in (("check", "{}/input"), ("train", "{}/input", "--out", "{}/new"), ("score", "{}", "{}/input")):
            yield Case(f"{verb[0]} of {kind}", lambda folder, make=make: (  # type: ignore[misc]
                (folder / "input").touch(), make(folder)), verb)  # fmt: skip
    for name in (".config.json.partial", ".checkpoint.safetensors.partial", "README.md", ".run.json.partial",
                 ".model.safetensors.partial", "model.safetensors", ".metrics.jsonl.partial"):  # fmt: skip
        yield Case(f"train writes to the link {name}", linked(name, "../outside/precious"), TRAIN, is_answered=True)
    for name in ("metrics.jsonl",):
        yield Case(f"train appends to the link {name}", linked(name, "../outside/precious"), TRAIN)
    yield Case("train with snapshots elsewhere", lambda folder: (
        shutil.rmtree(folder / "snapshots"), (folder / "snapshots").symlink_to("../outside")), TRAIN)  # fmt: skip


@pytest.fixture(scope="module")
def hostile_run(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any]) -> Path:
    """A run that was stopped, with the file it is trained on."""
    from dragoman.training.run import train

    folder = tmp_path_factory.mktemp("hostile") / "run"
    asked = iter(range(100))
    pairs = folder.parent / "pairs.tsv"
    shutil.copyfile(tiny_run.pairs, pairs)
    settings = {"decoder": {"width": 16}, "training": {"max_updates": 3, "validate_every": 1, "threads": 1}}
    train(pairs, out=folder, settings=settings, should_stop=lambda: next(asked) >= 1)
    shutil.copyfile(pairs, folder / "pairs.tsv")
    return folder


def test_files_from_strangers_do_no_harm(
    hostile_run: Path, tmp_path: Path, start: Callable[..., Any], amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    every = list(cases())
    chosen = every[:: max(1, len(every) // amount(14, len(every)))]
    longest, largest, problems = 0.0, 0, []
    settings = ("--set", "decoder.width=16", "--set", "training.validate_every=1", "--set", "training.threads=1")
    for case in chosen:
        place = tmp_path / "place"
        outside = place / "outside"
        outside.mkdir(parents=True)
        (outside / "precious").write_text("precious")
        (outside / "00000001.safetensors").write_text("precious too")
        folder = place / "run"
        shutil.copytree(hostile_run, folder)
        case.make(folder)
        (tmp_path / "stdin").write_text("abc\n")
        arguments = [argument.replace("{}", str(folder)) for argument in case.arguments]
        is_run = case.arguments is TRAIN
        child = start(tmp_path / "output", *arguments, *(settings if is_run else ()), stdin=tmp_path / "stdin")
        child.finish(30)
        longest, largest = max(longest, child.seconds), max(largest, child.memory)
        outcome = [
            "took too long" if child.seconds > 4 * MOST_SECONDS else "",  # a busy machine is slower
            "took too much memory" if child.memory > MOST_MEMORY else "",
            "a traceback" if "Traceback" in child.text else "",
            "no sentence" if child.code not in ((0, 1, 2) if case.is_answered else (1, 2)) else "",
            "a silent failure" if child.code and "dragoman: " not in child.text and ":" not in child.text else "",
            "a change outside" if {path.name: path.read_text() for path in outside.iterdir()}
            != {"precious": "precious", "00000001.safetensors": "precious too"} else "",
            "a new file outside" if {path.name for path in place.iterdir()} != {"run", "outside"} else "",
        ]  # fmt: skip
        if any(outcome):
            seen = f"{child.seconds:.1f} s, {child.memory / 1e6:.0f} MB, code {child.code}"
            problems.append(f"{case.name}: {', '.join(filter(None, outcome))} ({seen})\n{child.text[-1500:]}")
        shutil.rmtree(place)
    assert not os.path.exists("/tmp/dragoman-was-here")
    assert not problems, f"{len(problems)} of {len(chosen)}\n" + "\n".join(problems)
    figures = {"cases": len(chosen), "longest (s)": round(longest, 1), "most memory (MB)": round(largest / 1e6)}
    record("hostile artefacts", figures)
