"""Inputs that arrive while others are computed have the answers that they have alone, in the order they are done."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman.errors import UserError
from dragoman.inference.arrivals import Arrival, Changes
from dragoman.inference.engine.native import NativeRunningSearch
from dragoman.inference.load import load
from dragoman.inference.predictions import Prediction

TEXTS = ["abc", "h", "hgfedcba", "", "ab", "cagebad", "abcdefghabcdefgh", "gg", "bead", "face"]


@pytest.fixture(scope="module")
def system(native_run: Any) -> Any:
    return load(native_run.folder, "cpu", engine="native")


def answer(session: Any, plan: Sequence[Changes], **options: Any) -> dict[int, Any]:
    """Give a session the changes of a plan, one before each token, and return its answers in their order."""
    left = iter(plan)
    return dict(session.answer_arrivals(lambda: next(left, Changes()), **options))


def spread(texts: Sequence[str], seed: int) -> list[Changes]:
    """Let inputs arrive some at a time; now and then none, while others are computed."""
    generator, plan = random.Random(seed), [Changes([Arrival(0, texts[0])])]
    rest = [Arrival(index, text, index) for index, text in enumerate(texts)][1:]
    while rest:
        some = generator.randint(1, 3)
        plan.append(Changes(rest[:some]))
        rest = rest[some:]
    return plan


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize(
    "settings",
    [{}, {"beam": 4, "n_best": 3}, {"beam": 1}, {"sample": True, "samples": 2, "seed": 5}],
    ids=["own", "n-best", "greedy", "samples"],
)
def test_answers_are_those_of_each_input_alone(system: Any, settings: dict[str, Any], batch: int) -> None:
    session = system.session(**settings)
    found = answer(session, spread(TEXTS, batch), batch=batch)
    assert {*found} == {*range(len(TEXTS))}
    for index, text in enumerate(TEXTS):
        (alone,) = session.predict([text], keys=[index], attention=False, trace=False)
        assert found[index].to_json() == alone.to_json()


@pytest.mark.parametrize("options", [{"attention": True}, {"alignments": True}, {"prefix": "a"}])
def test_options_mean_the_same(system: Any, options: dict[str, Any]) -> None:
    session = system.session(beam=3)
    found = answer(session, spread(TEXTS, 3), **options)
    expected = session.predict(TEXTS, trace=False, **{"attention": False} | options)
    assert [found[index].to_json() for index in range(len(TEXTS))] == [each.to_json() for each in expected]


def test_a_short_input_that_arrives_later_is_answered_before_a_long_one(system: Any) -> None:
    session = system.session(beam=2, min_length=40)
    assert session.length_limit(session.prepare("a")) < 35
    plan = [Changes([Arrival(0, "abcdefgh" * 8)]), Changes(), Changes([Arrival(1, "a")])]
    assert [*answer(session, plan)] == [1, 0]


def test_an_input_that_nobody_wants_has_no_answer(system: Any) -> None:
    session = system.session(beam=2, min_length=6)
    many = [Arrival(index, text) for index, text in enumerate(TEXTS)]
    plan = [Changes(many), Changes((), [0, 5, 99]), Changes((), [9])]
    found = answer(session, plan, batch=2)
    assert {*found} == {*range(10)} - {0, 5, 9}
    everyone = [Changes(many[:2]), Changes((), [0, 1]), Changes(many[4:6])]
    assert {*answer(session, everyone, batch=1)} <= {4, 5}


def test_an_input_with_a_mistake_disturbs_no_other(system: Any) -> None:
    wrong: Any = {"no such source": "a"}
    plan = [Changes([Arrival(0, "abc"), Arrival(1, wrong), Arrival(2, "ab")]), Changes([Arrival(3, "x" * 10**6)])]
    found = answer(system.session(), plan)
    assert isinstance(found[1], UserError) and found[3].error is not None
    assert [found[0].text, found[2].text] == [each.text for each in system.predict(["abc", "ab"])]


@pytest.mark.parametrize("method", ["advance", "add"])
def test_after_a_failure_of_the_search_each_input_is_answered_alone(
    system: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    calls = []
    genuine = getattr(NativeRunningSearch, method)

    def fail_sometimes(self: NativeRunningSearch, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) in (1, 4):
            raise UserError("a forced prefix is impossible")
        return genuine(self, *arguments)

    monkeypatch.setattr(NativeRunningSearch, method, fail_sometimes)
    found = answer(system.session(beam=2), spread(TEXTS, 1))
    assert len(calls) > 4
    assert [found[index].text for index in range(len(TEXTS))] == [
        each.text for each in system.session(beam=2).predict(TEXTS)
    ]
    assert all(isinstance(each, Prediction) for each in found.values())


def test_settings_that_need_whole_batches_are_refused(system: Any, tiny_run: Any) -> None:
    constrained = system.session(lexicon=["ab", "ba"])
    torch = load(tiny_run.folder, "cpu", engine="torch").session()
    for session in (constrained, torch):
        assert not session.takes_arrivals()
        with pytest.raises(UserError, match="batches"):
            answer(session, [])
