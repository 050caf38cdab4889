"""Alignments of texts, times in recordings and boxes in pictures: the parts, and what a session gives."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from praatio import textgrid

import dragoman
from dragoman.data.tokenizers import TokenizerConfig, fit
from dragoman.data.vocabulary import BLANK, EOS
from dragoman.errors import UserError
from dragoman.inference.alignment.boxes import find_boxes, grow_region
from dragoman.inference.alignment.links import choose_map, link_units, move
from dragoman.inference.alignment.timings import (
    LEAST,
    Timing,
    Timings,
    attention_stretches,
    ctc_stretches,
    divide_positions,
    monotone_peaks,
    time_units,
)
from dragoman.inference.alignment.units import choose_target_unit, choose_units, find_units, split_units
from dragoman.runs.alignment import ALIGNMENT, AlignmentChoice

a_word = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
quick = settings(max_examples=50, deadline=None)
SENTENCES = ["der Hund bellt laut", "die Katze, die schläft", "ein  Hund und eine Katze"]


# ---- units


@pytest.mark.parametrize("kind", ["words", "subwords", "characters", "bytes"])
def test_tokens_are_joined_to_the_words_of_the_text(kind: str) -> None:
    tokenizer = fit(TokenizerConfig(kind=kind), SENTENCES)
    for text in SENTENCES:
        ids = [*tokenizer.encode(text), EOS]
        units = find_units(tokenizer.decode(ids), tokenizer.spans(ids), "word", text)
        assert list(units.texts) == text.split()
        assert units.shares.shape == (len(ids), len(text.split()))
        rows = units.shares.sum(1)
        assert set(np.round(rows, 9)) <= {0.0, 1.0} and rows[-1] == 0  # the end symbol is in no word
        assert (units.shares.sum(0) > 0).all()


def test_units_follow_the_tokenisers() -> None:
    made = {kind: fit(TokenizerConfig(kind=kind), SENTENCES) for kind in ("words", "subwords", "characters", "symbols")}
    assert choose_units([made["subwords"]], made["subwords"]) == ("word", "word")
    assert choose_units([made["characters"]], made["words"]) == ("word", "word")
    assert choose_units([made["characters"]], made["symbols"]) == ("character", "symbol")  # letters to phones
    assert choose_units([made["characters"]], made["characters"]) == ("character", "character")
    assert choose_units([made["characters"]], made["characters"], "words") == ("word", "word")
    assert choose_units([made["subwords"]], made["symbols"]) == ("word", "symbol")
    assert choose_target_unit(made["characters"]) == "word"  # it has seen spaces, so it writes words
    assert choose_target_unit(fit(TokenizerConfig(kind="characters"), ["0123456789"])) == "character"
    assert split_units("a b", "character") == [(0, 1), (1, 2), (2, 3)]


def test_an_unknown_word_keeps_its_place_and_its_name() -> None:
    tokenizer = fit(TokenizerConfig(kind="words"), SENTENCES)
    ids = tokenizer.encode("der Wolf bellt")
    units = find_units(tokenizer.decode(ids), tokenizer.spans(ids), "word", "der Wolf bellt")
    assert units.texts == ("der", "Wolf", "bellt") and units.shares.argmax(1).tolist() == [0, 1, 2]


# ---- links


def words_of(text: str) -> Any:
    tokenizer = fit(TokenizerConfig(kind="characters"), [text])
    ids = [*tokenizer.encode(text), EOS]
    return find_units(tokenizer.decode(ids), tokenizer.spans(ids), "word", text), len(ids)


def test_attention_of_letters_becomes_links_of_words() -> None:
    source, positions = words_of("ab c")
    target, tokens = words_of("x yz")
    weights = np.zeros((tokens, positions))
    weights[0, 3] = 0.9  # x looks at c
    weights[0, 4] = 0.1  # … and at the end of the source
    weights[2, 0], weights[3, 1], weights[3, 3] = 1.0, 0.6, 0.4  # y looks at a, z at b and c
    alignment = link_units(weights, [source], target)
    assert alignment.to_pharaoh() == "0-1 1-0"
    assert np.allclose(alignment.weights, [[0.0, 0.9], [0.8, 0.2]])
    plain = alignment.to_json()
    assert plain["links"] == [
        {"source": 1, "target": 0, "weight": 0.9}, {"source": 0, "target": 1, "weight": 0.8},
    ]  # fmt: skip
    assert plain["units"] == {"source": "word", "target": "word"} and plain["target"] == ["x", "yz"]


def test_maps_are_chosen_and_moved() -> None:
    maps = np.random.default_rng(0).dirichlet(np.ones(5), (4, 3))  # (T, A, S)
    assert np.allclose(choose_map(maps, AlignmentChoice()), maps.mean(1))
    assert np.allclose(choose_map(maps, AlignmentChoice(maps=(2,))), maps[:, 2])
    shifted = choose_map(maps, AlignmentChoice(maps=(0, 1), shift=1))
    assert np.allclose(shifted[:3], maps[1:, :2].mean(1)) and np.allclose(shifted[3], maps[3, :2].mean(0))
    right, left = move(maps[:, 0], 0, 1), move(maps[:, 0], 0, -1)
    assert np.allclose(right[:, 1:], maps[:, 0, :-1]) and not right[:, 0].any()
    assert np.allclose(left[:, :-1], maps[:, 0, 1:]) and not left[:, -1].any()


# ---- times


@quick
@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 10_000))
def test_the_path_of_ctc_is_the_most_probable_of_all(count: int, states: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    log_probs = np.log(generator.dirichlet(np.ones(4), states))  # (S, 4): the blank and three labels
    tokens = generator.integers(1, 4, count).tolist()

    def collapse(path: tuple[int, ...]) -> list[int]:
        return [label for label, _ in itertools.groupby(path) if label != BLANK]

    paths = [path for path in itertools.product(range(4), repeat=states) if collapse(path) == tokens]
    found = ctc_stretches(log_probs, tokens)
    if not paths:
        assert found is None
        return
    assert found is not None
    best = max(paths, key=lambda path: sum(log_probs[state, label] for state, label in enumerate(path)))
    spelled = [BLANK] * states
    for token, (begin, end) in zip(tokens, found, strict=True):
        spelled[begin:end] = [token] * (end - begin)
    assert np.isclose(
        sum(log_probs[state, label] for state, label in enumerate(spelled)),
        sum(log_probs[state, label] for state, label in enumerate(best)),
    )


@quick
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10_000))
def test_the_monotone_path_is_the_best_of_all(rows: int, positions: int, seed: int) -> None:
    weights = np.random.default_rng(seed).random((rows, positions))
    peaks = monotone_peaks(weights)
    step = 1 if positions >= rows else 0
    all_paths = [
        path for path in itertools.product(range(positions), repeat=rows)
        if all(second - first >= step for first, second in itertools.pairwise(path))
    ]  # fmt: skip
    best = max(sum(weights[row, place] for row, place in enumerate(path)) for path in all_paths)
    assert tuple(peaks) in all_paths
    assert np.isclose(sum(weights[row, place] for row, place in enumerate(peaks)), best)


@quick
@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 10_000))
def test_positions_are_divided_in_the_best_way(rows: int, more: int, seed: int) -> None:
    positions = rows + more
    weights = np.random.default_rng(seed).random((rows, positions))
    owners = divide_positions(weights)
    divisions = [
        np.repeat(np.arange(rows), np.diff([0, *cuts, positions]))
        for cuts in itertools.combinations(range(1, positions), rows - 1)
    ]
    best = max(np.log(weights[each, np.arange(positions)] + LEAST).sum() for each in divisions)
    assert any((owners == each).all() for each in divisions)
    assert np.isclose(np.log(weights[owners, np.arange(positions)] + LEAST).sum(), best)
    stretches = attention_stretches(weights)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(stretches))
    assert all((owners[begin:end] == row).all() and begin < end for row, (begin, end) in enumerate(stretches))


def test_a_token_that_is_looked_at_early_lasts_until_the_next() -> None:
    weights = np.full((3, 12), 0.001)
    for row in range(3):
        weights[row, 4 * row : 4 * row + 3] = 0.6, 0.25, 0.1  # and nothing in the pause after it
    assert attention_stretches(weights) == [(0, 3), (4, 7), (8, 11)]
    assert attention_stretches(np.ones((3, 2))) and attention_stretches(np.ones((0, 4))) == []


def test_a_word_lasts_from_its_first_to_its_last_letter() -> None:
    target, _ = words_of("ab c")
    timings = time_units(target, [(1, 2), (4, 6), None, (6, 9), None], 0.5, 4.0)
    assert timings == [Timing("ab", 0.5, 3.0), Timing("c", 3.0, 4.0)]  # not beyond the end of the recording


def spoken(*units: Timing, duration: float = 2.0, path: str = "folder/a b.wav") -> Timings:
    return Timings("word", units, duration, path, "ctc")


WORDS = (Timing('say "hi"', 0.25, 0.5), Timing("you", 0.5, 0.75), Timing("later", 1.5, 1.75))


def test_ctm_has_the_columns_of_its_definition() -> None:
    lines = spoken(*WORDS).to_ctm().splitlines()
    assert len(lines) == 3
    for line, word in zip(lines, WORDS, strict=True):
        # recording, channel (A, B or a number), begin and duration in seconds, word
        assert re.fullmatch(r"\S+ [AB\d] \d+\.\d+ \d+\.\d+ \S+", line)
        name, channel, begin, duration, _ = line.split(" ")
        assert (name, channel) == ("a_b", "1")
        assert float(begin) == word.begin and np.isclose(float(begin) + float(duration), word.end)


def test_subtitles_break_at_pauses_and_long_lines() -> None:
    assert spoken(*WORDS).to_srt() == (
        '1\n00:00:00,250 --> 00:00:00,750\nsay "hi" you\n\n2\n00:00:01,500 --> 00:00:01,750\nlater\n'
    )
    many = [Timing("twelve chars", index * 0.5, index * 0.5 + 0.5) for index in range(9)]
    cues = spoken(*many, duration=5.0).to_srt().split("\n\n")
    assert len(cues) == 3 and all(len(cue.splitlines()[2]) <= 42 for cue in cues)
    hour = Timings("character", (Timing("x", 3661.5, 3662.0),), 4000.0, "x.wav", "ctc")
    assert "01:01:01,500 --> 01:01:02,000" in hour.to_srt()


@quick
@given(st.lists(st.tuples(a_word, st.floats(0, 0.5), st.floats(0.001, 0.5)), max_size=6))
def test_praatio_reads_the_textgrid(words: list[tuple[str, float, float]]) -> None:
    units, last = [], 0.0
    for text, pause, length in words:
        begin = round(last + pause, 4)
        last = round(begin + length, 4)
        units.append(Timing(text, begin, last))
    written = spoken(*units, duration=last + 0.25).to_textgrid()
    read = parse_textgrid(written)
    assert read.tierNames == ("words",)
    tier = read.getTier("words")
    assert [(entry.label, entry.start, entry.end) for entry in tier.entries] == [
        (unit.text, unit.begin, unit.end) for unit in units
    ]
    assert np.isclose(read.maxTimestamp, last + 0.25)


def parse_textgrid(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.TextGrid"
        path.write_text(text, encoding="utf-8")
        return textgrid.openTextgrid(str(path), includeEmptyIntervals=False)


def test_times_in_frames_are_no_seconds() -> None:
    frames = Timings("word", (Timing("a", 0, 3),), 9, "x.npy", "attention", "frames")
    assert frames.to_json()["time_unit"] == "frames"
    with pytest.raises(UserError, match="does not say how long a frame lasts"):
        frames.to_ctm()


# ---- boxes


def test_a_box_is_in_pixels_of_the_picture() -> None:
    target, tokens = words_of("cat")
    weights = np.full((tokens, 12), 0.01)
    weights[:3, [5, 6]] = 0.4  # second row, second and third column of 3 × 4 regions
    weights[:3, 11] = 0.35  # strong, but it touches them nowhere
    # the model saw 30 × 40 pixels in regions of 10, of a picture of 300 × 400
    (box,) = find_boxes(weights, target, (3, 4), 10, (30, 40), (300, 400))
    assert (box.left, box.top, box.right, box.bottom) == (100, 100, 300, 200)
    assert np.isclose(box.weight, 0.8) and box.text == "cat"
    # the last region is cut off where the picture ends
    weights = np.zeros((tokens, 12))
    weights[:3, 11] = 1.0
    (box,) = find_boxes(weights, target, (3, 4), 10, (25, 33), (25, 33))
    assert (box.left, box.top, box.right, box.bottom) == (30, 20, 33, 25)


def test_regions_grow_side_by_side() -> None:
    inside = grow_region(np.array([[0.2, 0.2, 0.0], [0.0, 0.3, 0.0], [0.2, 0.0, 0.2]]))
    assert inside.tolist() == [[True, True, False], [False, True, False], [False, False, False]]


# ---- what a session gives


def test_one_input_is_aligned_unasked_and_many_on_request(tiny_run: Any) -> None:
    system = dragoman.load(tiny_run.folder, engine="torch")
    one = system.predict("abcd")
    assert one.alignment.source == ("a", "b", "c", "d") and one.alignment.target == tuple(one.text)
    assert one.alignment.source_unit == one.alignment.target_unit == "character"
    several = system.predict(["abcd", "ba", ""], alignments=True, n_best=2)
    assert several[0].alignment.to_pharaoh() == one.alignment.to_pharaoh()
    assert all(output.alignment is not None for output in several[1].outputs)
    with pytest.raises(UserError, match="has no alignment; runs on texts"):
        several[2].alignment  # noqa: B018
    with pytest.raises(UserError, match=r"predict\(…, alignments=True\)"):
        system.predict(["abcd"])[0].alignment  # noqa: B018
    with pytest.raises(UserError, match="no timings; runs on recordings"):
        one.timings  # noqa: B018
    with pytest.raises(UserError, match="no boxes; runs on pictures"):
        one.boxes  # noqa: B018
    words = system.predict("ab cd", align_unit="words").alignment
    assert words.source == ("ab", "cd") and words.source_unit == "word"
    with pytest.raises(UserError, match="no such unit"):
        system.predict("ab", align_unit="letters")


def test_the_weights_are_those_of_the_attention_that_is_returned(tiny_run: Any) -> None:
    system = dragoman.load(tiny_run.folder, engine="torch")
    found = system.predict("abcdef", beam=4)
    assert found.attention is not None
    rows = choose_map(found.attention, system.alignment_choice)[: len(found.text), :6]  # a letter is a token
    assert np.allclose(found.alignment.weights, rows)


def test_the_native_engine_aligns_as_torch_does(native_run: Any) -> None:
    systems = [dragoman.load(native_run.folder, engine=engine) for engine in ("torch", "native")]
    inputs = ["abcd", "hgfed", "ab"]
    torch, native = (system.predict(inputs, alignments=True) for system in systems)
    for first, second in zip(torch, native, strict=True):
        assert first.text == second.text and np.allclose(first.alignment.weights, second.alignment.weights, atol=1e-4)


def test_an_ensemble_is_aligned_by_its_first_run(tiny_run: Any) -> None:
    from dragoman.inference.load import load_combined

    system = load_combined(tiny_run.folder, "cpu", [tiny_run.folder], None, None, "torch")
    alone = dragoman.load(tiny_run.folder, engine="torch").predict("abcd")
    assert system.predict("abcd").alignment.to_pharaoh() == alone.alignment.to_pharaoh()


# ---- the choice in the folder of a run


@pytest.fixture
def run(tiny_run: Any, tmp_path: Path) -> Path:
    """A copy of the tiny run, for which a choice was made by its own pairs."""
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    dragoman.align(folder, tiny_run.pairs)
    return folder


def test_the_choice_is_written_with_its_checksum(run: Path) -> None:
    record = json.loads((run / ALIGNMENT).read_text(encoding="utf-8"))
    assert len(record["sha256"]) == 64 and record["method"] == "ibm1" and record["links"] >= 20
    choice = dragoman.load(run).alignment_choice
    assert list(choice.maps) == record["maps"] and choice.agreement == record["agreement"]


def test_a_choice_for_other_weights_is_not_used(run: Path) -> None:
    system = dragoman.load(run, engine="torch")
    AlignmentChoice(shift=1).write(run, system.run or "")
    assert dragoman.load(run, engine="torch").alignment_choice.shift == 1
    system.model.decoder.embedding.weight.data.add_(0.1)
    system.save(run)
    assert dragoman.load(run, engine="torch").alignment_choice == AlignmentChoice()


@pytest.mark.parametrize(
    "change",
    [
        {"maps": [99]}, {"maps": [-1]}, {"maps": "all"}, {"maps": [0] * 5000}, {"shift": 7}, {"offset": 1.5},
        {"agreement": "high"}, {"links": -1}, {"shift": True},
    ],
    ids=lambda change: str(change)[:20],
)  # fmt: skip
def test_a_strange_choice_is_refused_with_a_sentence(run: Path, change: dict[str, Any]) -> None:
    from dragoman.files import read_json, write_json

    record = read_json(run / ALIGNMENT)
    write_json(run / ALIGNMENT, record | change)
    with pytest.raises(UserError, match=r"alignment\.json: damaged .* dragoman align RUN FILE"):
        dragoman.load(run, engine="torch").predict("abc")


def test_a_choice_of_another_run_and_a_changed_one_are_refused(run: Path) -> None:
    path = run / ALIGNMENT
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace('"shift": 0', '"shift": 1'), encoding="utf-8")
    with pytest.raises(UserError, match="SHA-256"):
        dragoman.load(run, engine="torch").predict("abc")
    AlignmentChoice().write(run, "another")
    with pytest.raises(UserError, match="belongs to another run"):
        dragoman.load(run, engine="torch").predict("abc")
