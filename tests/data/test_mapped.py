"""Rows on disk: the same audit, sides, batches and weights as from the same rows in memory."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.audit.text_statistics import TextCounts, TextStatistics
from dragoman.data.corpus import blocks
from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.mapped import collecting, rows, tokens
from dragoman.data.corpus.mapped.digests import seen_before
from dragoman.data.corpus.mapped.folder import MANIFEST, Workspace
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.options import DataConfig
from dragoman.data.reading import read as reading
from dragoman.data.reading.read import read
from dragoman.data.splits import find_overlap, read_data
from dragoman.errors import UserError
from dragoman.files import read_json
from dragoman.inference.system import System
from dragoman.training.corpus import training_corpus
from dragoman.training.plan import plan
from dragoman.training.run import train

TINY: dict[str, Any] = {
    "sources.source.encoder.width": 8, "sources.source.modality.embedding": 6, "decoder.width": 8,
    "decoder.embedding": 6, "training.max_updates": 8, "training.validate_every": 8, "training.batch_tokens": 96,
    "search.beam": 1, "data.held_out_limit": 10,
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, collecting, tokens):
        monkeypatch.setattr(module, "SHARD", 64)


def write_pairs(path: Path, count: int = 300, seed: int = 0) -> Path:
    """Write rows with duplicates, several targets for a source, odd characters, and unusable lines."""
    generator = np.random.default_rng(seed)
    letters = list("abcdeé漢\u200b")
    lines = []
    for number in range(count):
        source = "".join(generator.choice(letters[:6], generator.integers(1, 5))) + letters[number % 8] + "x"
        target = " ".join(source[::-1]) if number % 3 else "y"
        lines.append(f"{source}\t{target}")
    lines[7:7] = ["", "one column", "a\tb\tc", " spaces \t around ", "\t"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def on_disk(path: Any, **settings: Any) -> Any:
    return read(path, DataConfig(store="disk", **settings), workspace=Workspace())


def test_rows_on_disk_are_audited_and_split_as_in_memory(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv")
    memory, disk = read(path), on_disk(path)
    assert isinstance(disk.examples, MappedRows) and disk.examples.shards > 3
    assert list(disk.examples) == memory.examples
    assert disk.examples[-1] == memory.examples[-1] and disk.examples[3:70] == memory.examples[3:70]
    assert disk.audit.to_json() == memory.audit.to_json()
    assert disk.audit.count("duplicate") and disk.audit.count("several_targets")

    sides = [
        read_data(path, None, None, DataConfig(store=store, held_out_limit=20), workspace=Workspace())
        for store in ("memory", "disk")
    ]
    assert isinstance(sides[1].train, MappedRows)
    assert [list(sides[0].train), sides[0].dev, sides[0].test] == [list(sides[1].train), sides[1].dev, sides[1].test]
    assert sides[0].fingerprint() == sides[1].fingerprint() == sides[1].fingerprint()
    other = [*sides[0].dev, *list(sides[0].train)[::9]]
    assert find_overlap(sides[1].train, other) == find_overlap(sides[0].train, other)


def test_many_rows_move_to_disk_and_others_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pairs(tmp_path / "pairs.tsv")
    monkeypatch.setattr(reading, "MEMORY_ROWS", 100)
    assert isinstance(read(path).examples, list)  # nobody gave it a place
    auto = read(path, workspace=Workspace())
    assert isinstance(auto.examples, MappedRows)
    assert list(auto.examples) == read(path).examples
    assert isinstance(read(path, DataConfig(store="memory"), workspace=Workspace()).examples, list)


@pytest.mark.parametrize("kind", ["pairs", "running"])
def test_training_on_disk_gives_the_weights_of_training_in_memory(tmp_path: Path, kind: str) -> None:
    settings: dict[str, Any] = {**TINY, "training.loaders": 0}
    preset = None
    if kind == "pairs":
        path = write_pairs(tmp_path / "pairs.tsv")
    else:
        path = tmp_path / "text.txt"
        path.write_text("\n".join(f"line {n * 37 % 101} of {n}" if n % 7 else "" for n in range(300)))
        preset = "lm-rnn"
        settings = {key: value for key, value in settings.items() if not key.startswith("sources")}
        settings |= {"data.running": True, "training.chunk": 7}

    def weights(store: str, **options: Any) -> dict[str, np.ndarray]:
        system = train(path, out=tmp_path / store, preset=preset, settings={**settings, "data.store": store}, **options)
        return {name: tensor.numpy() for name, tensor in system.model.state_dict().items()}

    memory = weights("memory")
    assert (tmp_path / "disk.corpus").exists() is False
    weights("disk", pause_at=5)  # in the middle of an epoch
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "disk.corpus" / "tokens").iterdir()}
    disk = weights("disk")
    assert before == {file: file.stat().st_mtime_ns for file in before}  # nothing was prepared again
    for name, tensor in memory.items():
        np.testing.assert_array_equal(disk[name], tensor, err_msg=name)
    assert not any(path.suffix in (".ids", ".bin") for path in (tmp_path / "disk").rglob("*"))
    assert System.load(tmp_path / "disk", "cpu").recipe.data.store == "disk"


def test_a_row_on_disk_takes_few_bytes_of_memory(tmp_path: Path) -> None:
    """Of each row: its number, where its tokens end and how many they are. Nothing is held twice."""
    planned = plan(write_pairs(tmp_path / "pairs.tsv"), settings={**TINY, "data.store": "disk"}, workspace=Workspace())
    source, target = planned.rows.sources["source"], planned.rows.targets
    assert isinstance(planned.rows.examples, MappedRows)
    assert isinstance(source, tokens.TokenRows) and isinstance(target, tokens.TokenRows)
    corpus = training_corpus(planned.system, planned.rows)
    assert isinstance(corpus, Encoded)
    assert corpus.source_lengths is source.lengths and corpus.target_lengths is target.lengths
    assert planned.rows.examples.chosen is source.chosen is target.chosen
    arrays = [source.chosen, source.ends, source.lengths, target.ends, target.lengths, planned.rows.target_lengths]
    assert [array.itemsize for array in arrays if array is not None] == [4] * 6


def test_values_are_gathered_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values, chosen = np.arange(50, dtype=np.int32) * 3, np.array([7, 7, 0, 49, 3], dtype=np.uint32)
    monkeypatch.setattr(blocks.blocks, "__defaults__", (2,))
    np.testing.assert_array_equal(blocks.gather(values, chosen), values[chosen])
    assert blocks.gather(values, chosen[:0]).dtype == np.int32


def test_a_prepared_corpus_is_used_again_until_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, workspace = write_pairs(tmp_path / "pairs.tsv"), Workspace(tmp_path / "run.corpus")
    config = DataConfig(store="disk")
    first = read(path, config, workspace=workspace)
    expected, audit = list(first.examples), first.audit
    with pytest.raises(UserError, match="another training is at work"):
        read(path, config, workspace=workspace)
    del first

    def refuse(*_: object) -> None:
        raise AssertionError("the file was read again")

    with monkeypatch.context() as patched:
        patched.setattr(reading, "file_rows", refuse)
        again = read(path, config, workspace=workspace)
        assert list(again.examples) == expected
        assert (again.audit.to_json(), again.audit.report()) == (audit.to_json(), audit.report())
        del again
    write_pairs(path, seed=1)
    os.utime(path, ns=(1, 1))
    assert list(read(path, config, workspace=workspace).examples) != expected
    (tmp_path / "run.corpus" / MANIFEST).unlink()
    (tmp_path / "run.corpus" / "texts-00000.bin").unlink()
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "run.corpus" / "texts-00000.bin").symlink_to(tmp_path / "mine")
    read(path, config, workspace=workspace)
    assert (tmp_path / "mine").read_text() == "precious"  # a link is replaced, not followed
    (tmp_path / "run.corpus" / MANIFEST).unlink()
    (tmp_path / "run.corpus" / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"holds files that belong to no prepared corpus \(thesis.tex\)"):
        read(path, config, workspace=workspace)


def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collecting, "write_shard", fail)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        on_disk(write_pairs(tmp_path / "pairs.tsv"))


def test_tokenising_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv")
    out = tmp_path / "run"
    options: dict[str, Any] = {"out": out, "settings": {**TINY, "data.store": "disk"}, "pause_at": 1}
    train(path, **options)
    folder = tmp_path / "run.corpus" / "tokens"
    shards = sorted(folder.glob("column-1-*.npz"))
    before = {shard: (shard.read_bytes(), shard.stat().st_mtime_ns) for shard in shards}
    shards[2].unlink()
    train(path, **options)
    assert {shard: shard.read_bytes() for shard in shards} == {shard: data for shard, (data, _) in before.items()}
    assert [shard for shard in shards if shard.stat().st_mtime_ns != before[shard][1]] == [shards[2]]


def test_random_segmentations_need_the_rows_in_memory(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv")
    settings = {**TINY, "data.store": "disk", "target.tokenizer.kind": "subwords", "target.tokenizer.drop": 0.1}
    with pytest.raises(UserError, match=r"tokenizer.drop: .* data.store=memory"):
        train(path, out=tmp_path / "run", settings=settings)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=60), st.integers(1, 9))
def test_repeated_digests_are_found_in_any_number_of_parts(values: list[int], part: int) -> None:
    digests = np.array([value * 0x0CCC_CCCC_CCCC_CCCC for value in values], dtype=np.uint64)
    assert seen_before(digests, part).tolist() == [value in values[:row] for row, value in enumerate(values)]


def test_counts_of_texts_can_be_merged_and_thinned() -> None:
    texts = [f"w{number * number % 7919} {number % 50} und" for number in range(6000)]
    exact = TextStatistics.of(texts)
    merged = TextCounts()
    for begin in range(0, len(texts), 700):
        part = TextCounts()
        part.add(texts[begin : begin + 700])
        merged.merge(part)
    assert merged.statistics() == exact

    thinned = TextCounts(most=1000)
    for begin in range(0, len(texts), 700):
        part = TextCounts(most=500)
        part.add(texts[begin : begin + 700])
        thinned.merge(part)
    estimate = thinned.statistics()
    assert estimate.estimated and not exact.estimated
    assert len(thinned.words) <= 1000
    assert estimate.distinct_words == pytest.approx(exact.distinct_words, rel=0.15)
    assert estimate.words_once == pytest.approx(exact.words_once, rel=0.3)
    counted = ("rows", "characters", "words", "total_words", "distinct_characters", "mean_word_length", "spaced_share")
    assert [getattr(estimate, name) for name in counted] == [getattr(exact, name) for name in counted]


# ---- several files


def test_files_of_a_pattern_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "part-1.tsv").write_text("source\ttarget\na\tb\nbroken\nc\td\n")
    (tmp_path / "part-2.tsv.gz").write_bytes(gzip.compress(b"source\ttarget\na\tb\n\xff\tx\nc\te\n"))
    for store in ("memory", "disk"):
        corpus = read(f"{tmp_path}/part-*", DataConfig(store=store), workspace=Workspace())
        read_from = [(Path(example.file).name, example.line, example.target) for example in corpus.examples]
        assert read_from == [
            ("part-1.tsv", 2, "b"), ("part-1.tsv", 4, "d"), ("part-2.tsv.gz", 2, "b"), ("part-2.tsv.gz", 4, "e"),
        ]  # fmt: skip
        audit = corpus.audit
        assert (audit.rows, audit.used, audit.dropped) == (6, 4, 2)
        assert "2 files, read one after the other" in audit.notes
        assert str(audit.findings["duplicate"].places[0]).endswith(
            f"part-2.tsv.gz:2: repeats line 2 of {tmp_path}/part-1.tsv"
        )
        assert str(audit.findings["invalid_utf8"].places[0]).startswith(f"{tmp_path}/part-2.tsv.gz:3")
        assert corpus.audit.sources == 2
    listed = read([tmp_path / "part-1.tsv", tmp_path / "part-2.tsv.gz"])
    assert listed.audit.to_json()["findings"] == audit.to_json()["findings"]


def test_patterns_of_parallel_files_are_paired(tmp_path: Path) -> None:
    for name, text in {"1.en": "a\nb\n", "1.de": "A\nB\n", "2.en": "c\n", "2.de": "C\n"}.items():
        (tmp_path / name).write_text(text)
    corpus = read([tmp_path / "*.en", tmp_path / "*.de"])
    assert [(example.sources["source"], example.target, example.line) for example in corpus.examples] == [
        ("a", "A", 1), ("b", "B", 2), ("c", "C", 1),
    ]  # fmt: skip
    (tmp_path / "2.de").unlink()
    with pytest.raises(UserError, match=r"\*\.en: 2 files, but .*\*\.de: 1; each source needs its target"):
        read([tmp_path / "*.en", tmp_path / "*.de"])


def test_files_with_other_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "1.tsv").write_text("a\tb\n")
    (tmp_path / "2.tsv").write_text("a\tb\tc\td\n")
    with pytest.raises(UserError, match=r"2\.tsv:1: 4 columns"):
        read([tmp_path / "1.tsv", tmp_path / "2.tsv"])


def test_a_language_model_reads_several_texts(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text(f"of {name}\n")
    corpus = read([tmp_path / "1.txt", tmp_path / "2.txt"], DataConfig(source=[]))
    assert [example.target for example in corpus.examples] == ["of 1.txt", "of 2.txt"]


def test_the_folder_of_a_corpus_is_locked_and_says_what_is_in_it(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv")
    read(path, DataConfig(store="disk"), workspace=Workspace(tmp_path / "run.corpus"))
    manifest = read_json(tmp_path / "run.corpus" / MANIFEST)
    assert manifest["rows"] == len(read(path).examples)
    assert manifest["inputs"]["files"][0][0] == str(path)
