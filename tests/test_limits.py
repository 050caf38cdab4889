"""Long rows: ``check`` says what ``train`` does, every row is used if memory suffices, and few are lost unasked."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.process import memory as process_memory
from dragoman.recipe import limits
from dragoman.recipe.memory import Sizes, estimate_memory
from dragoman.training.plan import plan

TINY: dict[str, Any] = {"source": {"embedding": 8}, "encoder": {"width": 8}, "decoder": {"width": 8, "embedding": 8}}


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the rows has 500 to 700 characters."""
    generator = random.Random(1)
    lengths = [generator.randint(500, 700) if row % 3 == 0 else generator.randint(5, 20) for row in range(90)]
    rows = ["".join(generator.choices("abcdefgh", k=length)) for length in lengths]
    path = tmp_path_factory.mktemp("long") / "long.tsv"
    path.write_text("".join(f"{row}\t{row[:5]}\n" for row in rows), encoding="utf-8")
    return path


def small_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    (tmp_path / "limit").write_text(f"{size}\n", encoding="ascii")
    monkeypatch.setattr(process_memory, "LIMITS", (str(tmp_path / "limit"),))


def test_every_row_is_used_and_check_says_so(long_rows: Path) -> None:
    planned = plan(long_rows, settings=TINY)
    checked = dragoman.check(long_rows)
    assert planned.data.audits["train"].used == checked.audit.used == 90
    longest = max(len(row.sources["source"]) for row in planned.data.train)
    assert planned.system.recipe.max_tokens == longest > limits.USUAL_LIMIT
    assert checked.tokens is not None and checked.tokens.longest["source"] == longest
    assert "no row is too long" in checked.to_text() and f"{longest} (characters)" in checked.to_text()
    (told,) = (reason for reason in planned.reasons if reason.startswith("memory: about"))
    assert f"the longest training row has {longest + 1:,} tokens" in told  # with the end symbol


def test_rows_left_out_on_request_are_the_same_for_check_and_train(long_rows: Path) -> None:
    planned = plan(long_rows, settings={**TINY, "max_tokens": 100})
    checked = dragoman.check(long_rows, settings={"max_tokens": 100})
    audit = planned.data.audits["train"]
    assert audit.used == checked.audit.used < 75
    assert audit.findings["too_many_tokens"] == checked.audit.findings["too_many_tokens"]
    assert "max_tokens = 100)" in checked.to_text()
    assert max(len(row.sources["source"]) for row in planned.data.train) <= 100
    assert max(len(row.sources["source"]) for row in planned.data.dev + planned.data.test) > 100  # never cut


def test_auto_looks_at_the_rows_that_are_left(long_rows: Path) -> None:
    batch, chosen = (
        (planned.system.recipe.training.batch_tokens, " ".join(planned.reasons))
        for planned in (plan(long_rows), plan(long_rows, settings={"max_tokens": 100}))
    )
    assert batch[0] > 500 and chosen[0] < 500
    assert batch[1].split("chosen for")[1] != chosen[1].split("chosen for")[1]


def test_a_limit_that_nobody_asked_for_may_not_lose_many_rows(
    long_rows: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small_memory(monkeypatch, tmp_path, 500 * 2**20)
    with pytest.raises(UserError) as caught:
        plan(long_rows)
    sentence = str(caught.value)
    assert "training rows (3" in sentence and "the memory is too small (524 MB)" in sentence
    checked = dragoman.check(long_rows)
    assert f"train would stop: {sentence}" in " ".join(checked.to_text().split())
    for word in sentence.split():  # what it says to type works
        if word.startswith("max_tokens="):
            assert plan(long_rows, settings=word).system.recipe.max_tokens == int(word.partition("=")[2])


def test_the_usual_limit_stays_where_rows_are_short(tiny_run: Any) -> None:
    assert plan(tiny_run.pairs, settings=tiny_run.settings).system.recipe.max_tokens == 400
    assert dragoman.check(tiny_run.pairs).tokens is None


def test_the_limit_is_the_most_that_memory_has_room_for() -> None:
    lengths = {"source": [10, 900], "target": [1000, 5]}
    assert limits.fit_limit(lengths, lambda limit: limit, None) == 1000
    assert limits.fit_limit(lengths, lambda limit: limit, 1000) == 1000
    assert limits.fit_limit(lengths, lambda limit: limit, 712.5) == 712
    assert limits.fit_limit(lengths, lambda limit: limit, 3) == limits.USUAL_LIMIT
    assert limits.find_too_long(lengths, 899) == {
        0: "target has 1000 tokens; max_tokens = 899",
        1: "source has 900 tokens; max_tokens = 899",
    }


def test_memory_grows_with_the_rows_and_the_attention() -> None:
    def needed(length: int, **decoder: Any) -> int:
        parts = {"width": 64, "layers": 2, **decoder}
        settings = {"sources": {"source": {"encoder": parts}}, "decoder": parts, "training": {"batch_tokens": 64}}
        return estimate_memory(settings, Sizes({"source": length}, length, {"source": 50, "target": 50}))

    assert needed(2000) > needed(1000)
    squares = [needed(length, heads=4) - needed(length) for length in (1000, 2000)]
    assert squares[1] == pytest.approx(4 * squares[0])  # attention maps
    assert needed(1000, attention={"kind": "additive"}) > needed(1000, attention={"kind": "dot"})


def test_foreseeing_long_rows_needs_no_torch(environment: dict[str, str], long_rows: Path) -> None:
    program = (
        f"import sys, dragoman; assert dragoman.check({str(long_rows)!r}).tokens.memory > 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)


def test_a_reason_is_never_cut(long_rows: Path) -> None:
    audit = dragoman.check(long_rows).audit
    reason = "a reason that is long " * 6 + "and ends with what to type"
    for row in range(100_000, 100_006):
        audit.drop(row, "too_many_tokens", reason)
    assert f"    ({reason})" in audit.report().splitlines()
