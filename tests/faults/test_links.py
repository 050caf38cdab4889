"""Links planted in folders of runs, groups and corpora: nothing outside is written, renamed or deleted.

Systems without calls relative to a folder check paths instead; both ways are held to the same.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman import files
from dragoman.data.corpus.mapped import folder as corpus
from dragoman.data.corpus.mapped.folder import Workspace
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.corpus.mapped.tokens import TokenizeShard
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import read
from dragoman.data.tokenizers import TokenizerConfig, fit
from dragoman.errors import UserError
from dragoman.files import folders, read_json, write_json
from dragoman.modalities.text import Text
from dragoman.runs.history import keep_other_evaluation
from dragoman.training.pool import JobEnded, run_jobs
from dragoman.training.run import train
from dragoman.training.seeds import Workers
from dragoman.training.sweep.grid import expand_grid, read_grid
from dragoman.training.sweep.run import open_sweep, preview_candidate
from dragoman.training.worker import Job


@pytest.fixture(params=["relative", "checked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Relative calls, or checked paths as on Windows, which has neither these calls nor O_NOFOLLOW."""
    if request.param == "checked":
        monkeypatch.setattr(os, "supports_dir_fd", set())
        assert not folders.has_relative_calls()
        monkeypatch.setattr(folders, "_RELATIVE", folders.has_relative_calls())
        monkeypatch.delattr(os, "O_NOFOLLOW")
    return str(request.param)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of somebody else with a file, neither of which may change."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "victim").write_text("precious")
    return tmp_path / "outside"


def unchanged(outside: Path) -> bool:
    return [path.name for path in outside.iterdir()] == ["victim"] and (outside / "victim").read_text() == "precious"


# ---- the functions of files


def test_a_link_is_replaced_by_the_file_that_is_written(tmp_path: Path, outside: Path, way: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a.json", ".a.json.partial", "log"):
        (run / name).symlink_to(outside / "victim")
    write_json(run / "a.json", {"value": 1})
    assert read_json(run / "a.json") == {"value": 1}
    with files.create_file(run / "log") as log:
        log.write(b"text")
    assert (run / "log").read_bytes() == b"text"
    assert unchanged(outside) and sorted(os.listdir(run)) == ["a.json", "log"]


def test_nothing_grows_or_is_cut_through_a_link(tmp_path: Path, outside: Path, way: str) -> None:
    (tmp_path / "link").symlink_to(outside / "victim")
    for change in (
        lambda path: files.append_line(path, "line"),
        lambda path: files.append_bytes(path, b"bytes"),
        lambda path: files.truncate_file(path, 1),
        files.force_file,
    ):
        with pytest.raises(UserError, match="link: this is a symbolic link"):
            change(tmp_path / "link")
    assert unchanged(outside)


def test_folders_of_a_run_must_be_no_links(tmp_path: Path, outside: Path, way: str) -> None:
    (tmp_path / "own").symlink_to(outside)
    for change in (
        lambda: files.write_run_file(tmp_path / "own" / "file", "text", own=1),
        lambda: files.create_file(tmp_path / "own" / "victim", own=1),
        lambda: files.delete_files(tmp_path / "own", ["victim"], own=1),
    ):
        with pytest.raises(UserError, match="own: this is a symbolic link"):
            change()
    files.write_run_file(tmp_path / "new" / "own" / "file", "text", own=2)
    assert (tmp_path / "new" / "own" / "file").read_text() == "text" and unchanged(outside)


def test_a_link_is_deleted_and_renamed_itself(tmp_path: Path, outside: Path, way: str) -> None:
    (tmp_path / "a").write_text("new")
    for name in ("b", "c"):
        (tmp_path / name).symlink_to(outside / "victim")
    files.rename_file(tmp_path / "a", "b")
    files.delete_files(tmp_path, ["c", "missing"])
    assert (tmp_path / "b").read_text() == "new" and not (tmp_path / "b").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["b", "outside"] and unchanged(outside)


def test_a_checkpoint_and_the_one_before_it_are_kept(tmp_path: Path, way: str) -> None:
    for text in ("one", "two", "three"):
        files.write_run_file(tmp_path / "new", text, previous="old")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "three", "old": "two"}
    with pytest.raises(files.FolderGone, match="gone: the folder"):
        files.write_run_file(tmp_path / "gone" / "file", "text")


def test_a_junction_counts_as_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the mark that Windows gives to a junction."""
    monkeypatch.setattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", 0xA0000003, raising=False)
    status = SimpleNamespace(st_mode=stat.S_IFDIR, st_reparse_tag=0xA0000003)
    assert not folders.is_link(tmp_path) and not folders.is_link(tmp_path / "missing")
    monkeypatch.setattr(os, "lstat", lambda _: status)
    assert folders.is_link(tmp_path)


def test_a_run_is_trained_and_resumed_in_either_way(tmp_path: Path, tiny_run: Any, way: str) -> None:
    """With a stop in the middle, and links of a stranger in the folder: the weights of the undisturbed run."""
    asked = iter(range(100))
    train(tiny_run.pairs, out=tmp_path / "run", settings=tiny_run.settings, should_stop=lambda: next(asked) >= 3)
    (tmp_path / "victim").write_text("precious")
    for name in (".checkpoint.safetensors.partial", ".model.safetensors.partial", "README.md"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "victim")
    train(tiny_run.pairs, out=tmp_path / "run", settings=tiny_run.settings)
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "run" / "README.md").is_symlink()
    whole, pieces = ((folder / "model.safetensors").read_bytes() for folder in (tiny_run.folder, tmp_path / "run"))
    assert whole == pieces


# ---- evaluations


@pytest.mark.parametrize("side", ["/../../outside/victim", "../x", 7, None])
def test_an_evaluation_of_a_stranger_is_not_renamed_to_a_place_that_it_names(
    tmp_path: Path, outside: Path, side: object
) -> None:
    run = tmp_path / "run"
    (run / "evaluation.").mkdir(parents=True)
    (outside / "victim").rename(outside / "victim.json")
    write_json(run / "evaluation.json", {"side": side})
    keep_other_evaluation(run, "test")
    assert os.listdir(outside) == ["victim.json"] and (outside / "victim.json").read_text() == "precious"


def test_the_other_evaluation_is_kept_in_the_place_of_a_link(tmp_path: Path, outside: Path) -> None:
    write_json(tmp_path / "evaluation.json", {"side": "dev"})
    (tmp_path / "evaluation.dev.json").symlink_to(outside / "victim")
    keep_other_evaluation(tmp_path, "test")
    assert read_json(tmp_path / "evaluation.dev.json") == {"side": "dev"} and unchanged(outside)


# ---- corpora on disk


def test_shards_and_digests_are_not_written_through_links(
    tmp_path: Path, outside: Path, pairs_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links appear after the old files were deleted, as somebody who watches the folder would plant them."""
    pairs, place = pairs_file(tmp_path / "pairs.tsv", 60), tmp_path / "run.corpus"
    clear = corpus.CorpusFolder.clear

    def plant(self: corpus.CorpusFolder) -> None:
        clear(self)
        for name in ("texts-00000.bin", "texts-00000.npz", ".texts-00000.bin.partial", "corpus.json", "memory.json"):
            (place / name).symlink_to(outside / "victim")

    monkeypatch.setattr(corpus.CorpusFolder, "clear", plant)
    assert len(read(pairs, DataConfig(store="disk"), workspace=Workspace(place)).examples) == 60
    assert unchanged(outside) and not any(path.is_symlink() for path in place.iterdir() if path.name != "memory.json")

    def plant_digests(self: corpus.CorpusFolder) -> None:
        clear(self)
        (place / "sources.u64").symlink_to(outside / "victim")

    monkeypatch.setattr(corpus.CorpusFolder, "clear", plant_digests)
    (place / "corpus.json").unlink()
    with pytest.raises(UserError, match=r"sources.u64: this is a symbolic link"):
        read(pairs, DataConfig(store="disk"), workspace=Workspace(place))
    assert unchanged(outside)


def test_tokens_are_not_written_or_deleted_through_links(
    tmp_path: Path, outside: Path, pairs_file: Callable[..., Path]
) -> None:
    pairs, place = pairs_file(tmp_path / "pairs.tsv", 60), tmp_path / "run.corpus"
    rows = read(pairs, DataConfig(store="disk"), workspace=Workspace(place)).examples
    assert isinstance(rows, MappedRows)
    tokens = rows.folder.tokens("some settings")
    for name in ("column-0-00000.npz", "column-0-00000.ids", f".column-0-00000.ids.{os.getpid()}.partial"):
        (tokens / name).symlink_to(outside / "victim")
    tokenizer = fit(TokenizerConfig(kind="characters"), ["abc"])
    work = TokenizeShard(rows.layout, tokens, {"source": Text(Text.Config(), tokenizer)}, tokenizer)
    work(0)
    assert unchanged(outside) and not any(path.is_symlink() for path in tokens.iterdir())
    tokens.rename(tmp_path / "elsewhere")
    tokens.symlink_to(outside)
    for change in (lambda: rows.folder.tokens("other settings"), lambda: work(0)):
        with pytest.raises(UserError, match=r"tokens: .*link"):
            change()
    rows.folder.clear()  # all of it is prepared again: the link itself is deleted
    assert unchanged(outside) and not os.listdir(place)


# ---- groups of runs


def test_the_log_of_a_worker_is_not_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "seed-1.log").symlink_to(outside / "victim")
    program = [sys.executable, "-S", "-c", "import sys; sys.exit('what went wrong')"]
    events = list(run_jobs([Job("seed-1", str(group / "seed-1"), [])], 1, 1, program=program))
    (ended,) = [event for event in events if isinstance(event, JobEnded)]
    assert "what went wrong" in ended.describe() and not (group / "seed-1.log").is_symlink() and unchanged(outside)


def test_seeds_are_not_trained_in_folders_that_are_links(
    tmp_path: Path, outside: Path, call: Any, tiny_run: Any, as_flags: Callable[[dict[str, Any]], list[str]]
) -> None:
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "seed-2").symlink_to(outside)
    answer = call(
        "train", tiny_run.pairs, "--out", tmp_path / "group", "--seeds", 2, "--quiet", *as_flags(tiny_run.settings)
    )
    assert answer.code == 2 and "seed-2: this is a symbolic link" in answer.err
    assert unchanged(outside) and os.listdir(tmp_path / "group") == ["seed-2"]


def test_a_sweep_is_not_trained_in_folders_that_are_links(tmp_path: Path, outside: Path, tiny_run: Any) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(f'train = "{tiny_run.pairs}"\n[budget]\nmax_updates = 1\n[grid]\ndecoder.width = [8, 16]\n')
    spec, workers, out = read_grid(grid), Workers(1, 1), tmp_path / "sweep"
    combinations = expand_grid(spec)
    planned, _ = preview_candidate(spec, combinations[0], 1)
    out.mkdir()
    open_sweep(out, spec, workers, planned)
    for name in (".sweep.json.partial", "race.json"):
        (out / name).symlink_to(outside / "victim")
    open_sweep(out, spec, workers, planned)
    (out / combinations[1].name).symlink_to(outside)
    with pytest.raises(UserError, match="width=16: this is a symbolic link"):
        open_sweep(out, spec, workers, planned)
    assert unchanged(outside) and not (out / "sweep.json").is_symlink()
