"""Which attention map is chosen: IBM Model 1, the agreement with it, and the verb that writes the choice."""

from __future__ import annotations

import itertools
import random
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragoman
from dragoman.data.examples import SOURCE, Example
from dragoman.errors import UserError
from dragoman.evaluation.alignment import choose, ibm1
from dragoman.evaluation.alignment.choose import choose_alignment
from dragoman.evaluation.alignment.ibm1 import WordPairs
from dragoman.runs.alignment import ALIGNMENT, AlignmentChoice

SMALL: dict[str, Any] = {
    "decoder": {"width": 16, "embedding": 8}, "training": {"max_updates": 2, "threads": 1, "native": False},
}  # fmt: skip
HOUSE = [
    (["das", "Haus"], ["the", "house"]), (["das", "Buch"], ["the", "book"]), (["ein", "Buch"], ["a", "book"]),
]  # fmt: skip


def em_in_loops(pairs: list[tuple[list[str], list[str]]], iterations: int) -> dict[tuple[str, str], float]:
    """IBM Model 1 as in the textbook: p(target | source), with an empty source word."""
    table: dict[tuple[str, str], float] = {
        (one, other): 1.0 for source, target in pairs for one in [*source, ""] for other in target
    }
    for _ in range(iterations):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for source, target in pairs:
            for other in target:
                norm = sum(table[one, other] for one in [*source, ""])
                for one in [*source, ""]:
                    counts[one, other] += table[one, other] / norm
                    totals[one] += table[one, other] / norm
        table = {(one, other): count / totals[one] for (one, other), count in counts.items()}
    return table


def test_expectation_maximisation_is_that_of_the_textbook() -> None:
    words = WordPairs.learn(HOUSE)
    expected = em_in_loops(HOUSE, ibm1.ITERATIONS)
    for (one, other), value in expected.items():
        given = np.array([words.sources[one] if one else ibm1.NULL])
        assert np.isclose(words.forward.look_up(given, np.array([words.targets[other]]))[0, 0], value)
    assert words.confident_pairs(["ein", "Haus", "Esel"], ["a", "house"]) == [([0], [0]), ([1], [1])]


def test_equal_units_are_one_pair_with_several_places() -> None:
    letters = ["".join(each) for each in itertools.permutations("abcd", 3)]
    words = WordPairs.learn([(list(each), list(each.upper())) for each in letters])
    assert words.confident_pairs(list("aba"), list("ABA")) == [([0, 2], [0, 2]), ([1], [1])]
    assert choose._count_right([0, 1, 2], [0, 2], [0, 2]) == 2
    assert choose._count_right([0, 1, 0], [0, 2], [0, 2]) == 1  # both looked at the first of them
    assert choose._count_right([1, 1, 1], [0, 2], [0, 2]) == 0


def test_learning_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibm1, "MOST_CELLS", 20)
    words = WordPairs.learn(HOUSE * 100)
    assert len(words.sources) == 3  # as many pairs as there is room for
    assert WordPairs.learn([]).confident_pairs(["a"], ["b"]) == []


class Planted:
    """A system's engine whose maps are planted: one of them is right, with its rows one token late."""

    def __init__(self, engine: Any, right: int, late: bool) -> None:
        self._engine, self._right, self._late = engine, right, late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def search(self, rows: Any, config: Any, **options: Any) -> Any:
        generator = np.random.default_rng(3)
        results = []
        for result in self._engine.search(rows, config, **options):
            first = result.hypotheses[0]
            # the tiny model is not asked what it knows: the output is the source, reversed
            tokens = (*reversed(rows[len(results)]["source"][:-1].tolist()), int(rows[len(results)]["source"][-1]))
            count = len(tokens)
            maps = generator.dirichlet(np.ones(count), (count, 4))  # (T, A, S)
            for token in range(count - 1):
                row = min(count - 1, token + self._late)
                maps[row, self._right] = 0.0
                maps[row, self._right, count - 2 - token] = 1.0
            hypothesis = replace(first, tokens=tokens, log_probs=(0.0,) * count, attention=maps, finished=True)
            results.append(replace(result, hypotheses=(hypothesis,)))
        return results


@pytest.mark.parametrize(("right", "late"), [(2, False), (1, True)])
def test_the_right_map_and_row_are_found(
    right: int, late: bool, tiny_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = dragoman.load(tiny_run.folder, engine="torch")
    assert system.target.vocabulary.symbols == system.modalities[SOURCE].tokenizer.vocabulary.symbols  # type: ignore[union-attr]
    planted = replace(system, combined=Planted(system.engine, right, late))  # type: ignore[arg-type]
    monkeypatch.setattr(choose, "_layers", lambda _: 4)
    rows = [line.split("\t") for line in tiny_run.pairs.read_text(encoding="utf-8").splitlines()]
    examples = [Example({SOURCE: source}, target, number, "pairs") for number, (source, target) in enumerate(rows, 1)]
    found = choose_alignment(planted, examples, examples[:60])
    assert found is not None
    assert (found.maps, found.shift, found.offset) == ((right,), int(late), 0)
    assert found.agreement is not None and found.agreement > 0.99 > (found.default_agreement or 0)


def test_candidates_are_all_maps_layers_and_single_ones() -> None:
    assert choose._groups(1, 1) == [()]
    assert choose._groups(3, 3) == [(), (0,), (1,), (2,)]
    assert choose._groups(4, 2) == [(), (0, 1), (2, 3), (0,), (1,), (2,), (3,)]


def test_a_map_that_is_no_alignment_is_not_chosen() -> None:
    default, better = choose.Candidate((), choose.PLACES[0]), choose.Candidate((3,), choose.PLACES[0])
    assert choose._best({default: 0.1, better: 0.4}, "ibm1", 500, 100).maps == ()
    assert choose._best({default: 0.1, better: 0.6}, "ibm1", 500, 100).maps == (3,)
    assert choose._best({default: 0.599, better: 0.6}, "ibm1", 500, 100).maps == ()  # as good, and simpler
    moved = choose.Candidate((), choose.PLACES[1])
    assert choose._best({default: 0.9, moved: 0.92}, "ibm1", 5000, 100).shift == 0
    assert choose._best({default: 0.9, moved: 0.95}, "ibm1", 5000, 100).shift == 1


def test_the_verb_writes_the_choice(tiny_run: Any, tmp_path: Path, call: Any) -> None:
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    (run / ALIGNMENT).unlink(missing_ok=True)
    answer = call("align", run, tiny_run.pairs)
    assert answer.code == 0 and "confident links of IBM Model 1" in answer.lines[0]
    assert dragoman.load(run).alignment_choice.method == "ibm1"
    few = tmp_path / "few.tsv"
    few.write_text("ab\tba\n", encoding="utf-8")
    answer = call("align", run, few)
    assert answer.code == 0 and "nothing was chosen, because there are too few pairs" in answer.lines[0]
    assert dragoman.load(run).alignment_choice.method == "ibm1"  # the choice of before is still there


def test_nothing_is_chosen_for_a_language_model(tmp_path: Path) -> None:
    assert AlignmentChoice().to_text().endswith("alignments are read from the mean of all maps")
    lines = tmp_path / "text.txt"
    words = ["ab", "cd", "ef"]
    lines.write_text(
        "".join(" ".join(random.Random(n).choices(words, k=4)) + "\n" for n in range(60)), encoding="utf-8"
    )
    system = dragoman.train(lines, out=tmp_path / "lm", preset="lm-rnn", settings=SMALL)
    assert not (tmp_path / "lm" / ALIGNMENT).exists()
    with pytest.raises(UserError, match="a language model has no source"):
        system.predict(["ab"], alignments=True)
    assert system.predict("ab").outputs[0].alignment is None
