"""Alignments and times on the command line: columns, JSON, files for each recording, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from praatio import textgrid

import dragoman

SPOKEN: dict[str, Any] = {
    "target": {"tokenizer": {"kind": "words"}},
    "source": {"kind": "speech", "hop": 0.02, "window": 0.04},
    "encoder": {"kind": "pyramid", "cell": "gru", "width": 8, "layers": 2},
    "decoder": {"kind": "rnn", "cell": "gru", "width": 8, "embedding": 8},
    "training": {"threads": 1, "loaders": 0, "max_updates": 2, "validate_every": 2, "average": 1, "native": False},
    "search": {"beam": 1, "min_length": 2, "max_length": 3},
}  # fmt: skip


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("recordings")
    generator = np.random.default_rng(0)
    paths = [folder / f"{name}.wav" for name in ("one", "two", "my talk", "four")]
    (folder / "other").mkdir()
    paths.append(folder / "other" / "one.wav")
    for path in paths:
        soundfile.write(path, generator.normal(0, 0.1, 8000), 8000)
    return [str(path) for path in paths]


@pytest.fixture(scope="module", params=["ctc", "attention"])
def spoken_run(request: pytest.FixtureRequest, recordings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on recordings that has learnt nothing: what counts here is the form of its times."""
    folder = tmp_path_factory.mktemp("spoken")
    rows = [(path, f"{word} there") for path in recordings for word in ("hello", "say", "go")]
    (folder / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    settings = SPOKEN | {"training": SPOKEN["training"] | {"ctc": 0.3 if request.param == "ctc" else 0.0}}
    dragoman.train(folder / "train.tsv", folder / "train.tsv", out=folder / request.param, settings=settings)
    return folder / request.param


PICTURED: dict[str, Any] = {
    "target": {"tokenizer": {"kind": "words"}},
    "source": {"kind": "image"},
    "encoder": {"kind": "grid", "width": 8, "channels": [4, 8], "stride": 4},
    "decoder": {"kind": "rnn", "cell": "gru", "width": 8, "embedding": 8},
    "training": SPOKEN["training"],
    "search": {"beam": 1, "min_length": 2, "max_length": 3},
}  # fmt: skip


def test_every_command_of_the_page_runs(
    spoken_run: Path, recordings: list[str], tiny_run: Any, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    rows = "".join(f"{number % 4}.png\t{word} picture\n" for number, word in enumerate(["a", "the", "no"] * 4))
    (tmp_path / "pictures.tsv").write_text(rows, encoding="utf-8")
    pictures = tmp_path / "pictures.tsv"
    dragoman.train(pictures, pictures, out=tmp_path / "PICTURE_RUN", settings=PICTURED)
    for name, place in {
        "SPEECH_RUN": spoken_run, "call.wav": recordings[0], "other.wav": recordings[1],
        "photo.png": tmp_path / "0.png", "train.tsv": tiny_run.pairs,
    }.items():  # fmt: skip
        (tmp_path / name).symlink_to(place)
    shutil.copytree(tiny_run.folder, tmp_path / "RUN")
    (tmp_path / "inputs.txt").write_text("abc\nba\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "docs" / "alignments.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 8
    for line in lines:
        program, *words = shlex.split(line)
        answer = call(*words)
        assert program == "dragoman" and answer.code == 0, f"{line}: {answer.err}"
        assert answer.out or "--out" in words
    assert (tmp_path / "call.srt").exists() and (tmp_path / "grids" / "call.TextGrid").exists()
    shown = call("predict", "PICTURE_RUN", "photo.png", "--alignments", "--json")
    boxes = json.loads(shown.lines[0])["outputs"][0]["boxes"]
    assert (boxes["height"], boxes["width"]) == (30, 40) and len(boxes["units"]) >= 2


def test_links_are_a_column_after_each_output(tiny_run: Any, call: Any) -> None:
    answer = call("predict", tiny_run.folder, "--alignments", stdin=b"abc\n\nba\n")
    assert answer.code == 0
    plain = call("predict", tiny_run.folder, stdin=b"abc\n\nba\n")
    outputs, links = zip(*(line.split("\t") for line in answer.lines), strict=True)
    assert list(outputs) == plain.lines
    assert links[1] == ""
    for output, column in zip(outputs, links, strict=True):
        pairs = [tuple(map(int, link.split("-"))) for link in column.split()]
        assert sorted(target for _, target in pairs) == list(range(len(output)))
    several = call("predict", tiny_run.folder, "--alignments", "--n-best", "3", stdin=b"abc\n")
    assert len(several.lines[0].split("\t")) == 6


def test_json_says_what_the_units_are(tiny_run: Any, call: Any) -> None:
    answer = call("predict", tiny_run.folder, "--alignments", "--json", "--align-unit", "words", stdin=b"abc\n")
    found = json.loads(answer.lines[0])["outputs"][0]["alignment"]
    assert found["units"] == {"source": "word", "target": "word"} and found["source"] == ["abc"]
    assert found["pharaoh"] == "0-0" and 0 < found["links"][0]["weight"] <= 1
    assert (
        "alignment" not in json.loads(call("predict", tiny_run.folder, "--json", stdin=b"abc\n").lines[0])["outputs"][0]
    )


def test_times_of_several_recordings(spoken_run: Path, recordings: list[str], call: Any, tmp_path: Path) -> None:
    answer = call("predict", spoken_run, *recordings, "--timings", "json")
    assert answer.code == 0, answer.err
    timed = [json.loads(line) for line in answer.lines]
    assert [each["source"] for each in timed] == recordings
    for each in timed:
        assert each["from"] == spoken_run.name and each["duration"] == 1.0
        assert [unit["text"] for unit in each["units"]] == each["text"].split()
        edges = [edge for unit in each["units"] for edge in (unit["begin"], unit["end"])]
        assert edges == sorted(edges) and edges[0] >= 0 and edges[-1] <= 1.0
    ctm = call("predict", spoken_run, *recordings, "--timings", "ctm", "--out", tmp_path / "all.ctm")
    assert ctm.code == 0
    names = [line.split(" ")[0] for line in (tmp_path / "all.ctm").read_text(encoding="utf-8").splitlines()]
    assert list(dict.fromkeys(names)) == ["one", "two", "my_talk", "four"]
    for name, suffix in (("textgrid", "TextGrid"), ("srt", "srt")):
        out = tmp_path / name
        assert call("predict", spoken_run, *recordings, "--timings", name, "--out", out).code == 0
        files = sorted(path.name for path in out.iterdir())
        assert files == sorted(f"{stem}.{suffix}" for stem in ("one", "two", "my_talk", "four", "one-2"))
    tier = textgrid.openTextgrid(str(tmp_path / "textgrid" / "two.TextGrid"), False).getTier("words")
    assert " ".join(entry.label for entry in tier.entries) == timed[1]["text"]
    again = call("predict", spoken_run, recordings[0], "--timings", "srt", "--out", tmp_path / "srt")
    assert again.code == 2 and "there already" in again.err


def test_one_recording_goes_to_the_file_or_the_terminal(
    spoken_run: Path, recordings: list[str], call: Any, tmp_path: Path
) -> None:
    shown = call("predict", spoken_run, recordings[0], "--timings", "srt")
    assert shown.lines[0] == "1" and " --> " in shown.lines[1]
    call("predict", spoken_run, recordings[0], "--timings", "srt", "--out", tmp_path / "film.srt")
    assert (tmp_path / "film.srt").read_bytes() == shown.out
    answer = call("predict", spoken_run, *recordings[:2], "--timings", "srt")
    assert answer.code == 2 and "name a folder" in answer.err and not answer.out
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF")
    answer = call("predict", spoken_run, broken, recordings[0], "--timings", "textgrid", "--out", tmp_path / "grids")
    assert answer.code == 1 and [path.name for path in (tmp_path / "grids").iterdir()] == ["one.TextGrid"]


def test_python_has_the_same_times(spoken_run: Path, recordings: list[str], call: Any) -> None:
    system = dragoman.load(spoken_run)
    assert (
        system.predict(recordings[0]).timings.to_ctm()
        == call("predict", spoken_run, recordings[0], "--timings", "ctm").out.decode()
    )


def test_of_several_maps_over_a_recording_the_most_monotone_is_chosen(recordings: list[str], tmp_path: Path) -> None:
    texts = [" ".join(words) for words in itertools.product("abcde", "fgh", "ij")]
    table = tmp_path / "train.tsv"
    table.write_text("".join(f"{recordings[n % 5]}\t{text}\n" for n, text in enumerate(texts)), encoding="utf-8")
    decoder = {"kind": "transformer", "width": 8, "embedding": 8, "layers": 1, "heads": 2, "feed_forward": 16}
    search = {"beam": 1, "min_length": 6, "max_length": 8}  # each of the five recordings is answered once
    settings = SPOKEN | {"decoder": decoder, "search": search}
    system = dragoman.train(table, table, out=tmp_path / "run", settings=settings)
    record = json.loads((tmp_path / "run" / "alignment.json").read_text(encoding="utf-8"))
    assert (record["method"], record["shift"], record["offset"]) == ("path", 0, 0)
    assert len(record["maps"]) <= 1 and 0 <= record["default_agreement"] <= record["agreement"] + 0.1
    assert system.predict(recordings[0]).timings.made_from == "attention"


def test_feature_sequences_are_timed_in_frames(call: Any, tmp_path: Path) -> None:
    rows = ""
    for number in range(12):
        np.save(tmp_path / f"{number}.npy", np.random.default_rng(number).normal(0, 1, (20, 3)).astype(np.float32))
        rows += f"{number}.npy\t{('up', 'down')[number % 2]} there\n"
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    source = {"kind": "features", "stack": 2, "stride": 2}
    settings = SPOKEN | {"source": source}
    dragoman.train(tmp_path / "train.tsv", tmp_path / "train.tsv", out=tmp_path / "run", settings=settings)
    answer = call("predict", tmp_path / "run", tmp_path / "3.npy", "--timings", "json")
    found = json.loads(answer.lines[0])
    assert (found["time_unit"], found["duration"]) == ("frames", 20)
    assert all(unit["end"] % 4 == 0 for unit in found["units"])  # a state is two positions of two frames
    refused = call("predict", tmp_path / "run", tmp_path / "3.npy", "--timings", "ctm")
    assert refused.code == 2 and "does not say how long a frame lasts" in refused.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--timings", "ctm"], "reads no recordings"),
        (["--timings", "xml"], "no such format"),
        (["--alignments", "--align-unit", "letters"], "no such unit"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], says: str, tiny_run: Any, call: Any) -> None:
    answer = call("predict", tiny_run.folder, *options, stdin=b"abc\n")
    assert answer.code == 2 and says in answer.err and not answer.out


def test_links_to_a_recording_are_refused(spoken_run: Path, recordings: list[str], call: Any) -> None:
    answer = call("predict", spoken_run, recordings[0], "--alignments")
    assert answer.code == 2 and "reads no text" in answer.err
    answer = call("predict", spoken_run, recordings[0], "--timings", "ctm", "--n-best", "2")
    assert answer.code == 2 and "leave out --n-best" in answer.err
