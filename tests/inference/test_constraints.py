"""Constraints as people ask for them: files, options, sentences about what is wrong, and answers that are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.inference import constraint_files, glossary
from dragoman.inference.constraints import Constraints
from dragoman.inference.system import System
from dragoman.search.constraints import formats

INPUTS = ["abcd", "hg", "", "aabb", "abcdefgh"]


@pytest.fixture(scope="module")
def system(tiny_run: Any) -> System:
    return dragoman.load(tiny_run.folder)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_lexicon_is_a_file_or_a_list(system: System, tmp_path: Path) -> None:
    entries = ["abc", "dcba", "gh", "bbaa"]
    path = written(tmp_path / "words.txt", *entries, "", "  ")
    for search in ({"beam": 4}, {"sample": True, "samples": 3}):
        one = system.predict(INPUTS, lexicon=path, **search)
        other = system.predict(INPUTS, lexicon=entries, **search)
        assert [answer.text for answer in one] == [answer.text for answer in other]
        assert all(output.text in entries for answer in one if answer.source for output in answer.outputs)
        assert one[2].text == "", "an empty input has an empty output"
    best = system.predict("abcd", lexicon=entries)
    assert best.outputs[0].log_prob == pytest.approx(system.score("abcd", best.text).log_prob, abs=1e-4)


def test_every_word_may_be_an_entry(tmp_path: Path, system: System) -> None:
    with pytest.raises(UserError, match="has a space"):
        system.session(lexicon=["a b"], lexicon_words=True)
    with pytest.raises(UserError, match="give a lexicon as well"):
        system.session(lexicon_words=True)
    answers = system.predict(["abcd"], lexicon=["ab", "cd"], lexicon_words=True, beam=3)
    assert set(answers[0].text.split(" ")) <= {"ab", "cd"}


def test_what_cannot_be_spelled_is_counted_or_refused(system: System) -> None:
    session = system.session(lexicon=["abc", "xyz", "Ж"])
    assert session.constraints is not None
    assert session.constraints.notes == (
        "lexicon: 2 of 3 entries have characters that this run has never seen and cannot write, for example 'xyz'",
    )
    with pytest.raises(UserError, match="none of the 2 entries can be spelled"):
        system.session(lexicon=["xyz", "Ж"])
    answer = system.predict("abcd", glossary={"abcd": "xyz"})
    assert answer.error is not None and "'xyz', which the tokens of this run cannot spell" in answer.error


def test_constraints_hold_together(system: System) -> None:
    answer = system.predict("abcd", lexicon=["abc", "dcba", "gh"], match="[a-d]+", glossary={"abcd": "abc|gh"}, beam=4)
    assert answer.error is None and answer.text == "abc"
    answer = system.predict("abcd", lexicon=["abc", "dcba"], glossary={"abcd": "gh"}, beam=4)
    assert answer.error is not None and answer.text == ""
    assert "is in the lexicon and contains 'gh'" in answer.error
    assert all(word in answer.error for word in ("no output of at most", "try a wider beam"))


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 5}, {"sample": True}], ids=str)
def test_the_limit_leaves_room_for_an_entry(system: System, search: dict[str, Any]) -> None:
    entries = ["a", "b", *(letter * 20 for letter in "abcdefgh")]
    for answer in system.predict([text for text in INPUTS if text], lexicon=entries, max_length=9, **search):
        assert answer.error is None and answer.text in ("a", "b")


def test_a_sentence_says_that_the_limit_is_too_low(system: System) -> None:
    answer = system.predict("abcd", match="[ab]{12}", max_length=9, beam=2)
    assert answer.error is not None and "what was begun needs more of them; raise max_length" in answer.error
    assert system.predict("abcd", match="[ab]{12}", max_length=13, beam=2).error is None
    answer = system.predict("abcd", match="[ab]{90}", max_length=500, beam=2)  # the limit is that of the run
    assert answer.error is not None and "than this run writes for this input; constrain less" in answer.error
    answer = system.predict("abcd", lexicon=["a" * 12], max_length=9)
    assert answer.error is not None and answer.error.endswith("try a wider beam or a larger max_length")


def test_a_schema_that_needs_all_memory_is_refused_at_every_door(
    system: System, tiny_run: Any, call: Any, tmp_path: Path
) -> None:
    schema = written(tmp_path / "schema.json", '{"multipleOf": 999999937}')
    answer = call("predict", tiny_run.folder, "--json-schema", schema, stdin=b"abcd\n")
    assert answer.code == 2 and "multipleOf takes memory" in answer.err
    with pytest.raises(UserError, match="multipleOf takes memory"):
        system.session(json_schema={"multipleOf": 999_999_937})
    with pytest.raises(UserError, match="multipleOf takes memory"):
        system.predict("abcd", json_schema='{"not": {"multipleOf": 1234567}}')


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 5, "n_best": 3}, {"sample": True, "samples": 4}], ids=str)
def test_a_glossary_and_what_is_kept(system: System, tmp_path: Path, search: dict[str, Any]) -> None:
    terms = written(tmp_path / "terms.tsv", "abcd\thh|gg", "ab\tee")
    for source, wanted in (("abcd", ("hh", "gg")), ("ab", ("ee",))):
        for output in system.predict(source, glossary=terms, **search).outputs:
            assert any(word in output.text for word in wanted), "without spaces in the run, anywhere"
    for output in system.predict("abcdefgh", keep=["^...", "h$"], **search).outputs:
        assert "abc" in output.text and "h" in output.text
    free = system.predict("hg", **search)
    assert [each.text for each in system.predict("hg", glossary=terms, **search).outputs] == [
        each.text for each in free.outputs
    ], "nothing of the glossary is in the source"


def test_terms_are_found_where_words_are() -> None:
    found = glossary.Glossary({"cat": ["Katze"], "cat food": ["Futter"], "猫": ["Katze"], "a": ["ein"]}).find
    assert found("a cat, a category, cat food") == ["a", "cat", "cat food"]
    assert found("cat food") == ["cat food"], "the longest that begins first"
    assert found("我的猫在") == ["猫"]
    assert found("tomcat catfood") == []
    kept = glossary.find_kept(glossary.compile_kept([r"\d+", "[a-z]+@[a-z]+"]), "12 and 12, me@home")
    assert kept == {"12": 2, "me@home": 1}


def test_known_answers_come_first(system: System, tmp_path: Path, call: Any, tiny_run: Any) -> None:
    path = written(tmp_path / "known.tsv", "hg\twhatever it is", "zz\tnothing")
    inputs = written(tmp_path / "inputs.txt", *INPUTS)
    free, answers = system.predict(INPUTS), system.predict(INPUTS, known=path)
    assert [answer.known for answer in answers] == [False, True, False, False, False]
    assert answers[1].text == "whatever it is" and answers[1].to_json()["known"] is True
    assert [one.text for one in free if one.source != "hg"] == [one.text for one in answers if one.source != "hg"]
    told = call("predict", tiny_run.folder, inputs, "--known", path, "--json")
    assert [json.loads(line).get("known", False) for line in told.out.splitlines()] == [one.known for one in answers]
    assert "known" not in free[0].to_json()


def test_the_command_line_says_which_inputs_have_no_output(tiny_run: Any, tmp_path: Path, call: Any) -> None:
    inputs = written(tmp_path / "inputs.txt", "abcd", "hg")
    answer = call("predict", tiny_run.folder, inputs, "--keep", "ab.*", "--match", "[e-h]*")
    assert answer.code == 1
    assert answer.out.splitlines()[0] == b"" and answer.out.splitlines()[1]
    assert "inputs.txt:1" in answer.err and "no output of at most" in answer.err
    schema = written(tmp_path / "schema.json", '{"enum": ["a"]}')
    lark = written(tmp_path / "format.lark", 'start: "a" start | "b"')
    assert call("predict", tiny_run.folder, inputs, "--grammar", lark).out.splitlines()[0].endswith(b"b")
    assert call("predict", tiny_run.folder, inputs, "--json-schema", schema).code == 1, "it cannot write quotes"
    words = written(tmp_path / "words.txt", "abc", "xyz")
    answer = call("predict", tiny_run.folder, inputs, "--lexicon", words)
    assert answer.out.splitlines() == [b"abc", b"abc"] and "1 of 2 entries" in answer.err


def test_the_native_library_is_driven_step_by_step(native_run: Any) -> None:
    entries = ["abc", "dcba", "gh", "bbaa", "hgfedcba"]
    native, torch = dragoman.load(native_run.folder, engine="native"), dragoman.load(native_run.folder, engine="torch")
    ours, theirs = (system.predict(INPUTS, lexicon=entries, beam=3) for system in (native, torch))
    assert [answer.text for answer in ours] == [answer.text for answer in theirs]
    assert [answer.score for answer in ours] == pytest.approx([answer.score for answer in theirs], abs=1e-3)


def test_answers_are_checked_once_more(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a rule of the search were wrong, an output that breaks its constraint would still not be given."""
    monkeypatch.setattr(Constraints, "make_rules", lambda self, inputs: None)
    answers = system.predict(["abcd", "hg"], lexicon=["aaaaaaaa"])
    assert all(answer.error is not None and answer.text == "" for answer in answers)


def test_a_missing_extra_is_named(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    formats.import_llguidance.cache_clear()
    with pytest.raises(UserError, match=r"dragoman\[constraints\]"):
        system.session(match="a")
    formats.import_llguidance.cache_clear()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lexicon": []}, "there is no entry"),
        ({"lexicon": 3}, "the path of a file or a list"),
        ({"lexicon": ["a", 3]}, "expected a text, got int"),
        ({"lexicon": "no/such/file.txt"}, "there is no such file"),
        ({"lexicon": ["a" * 1_001]}, "entry 1: has 1,001 characters"),
        ({"glossary": {"a": ""}}, "a phrase is empty"),
        ({"glossary": ["a"]}, "a mapping from source to target"),
        ({"glossary": {"a": "b" * 501}}, "has 501 characters"),
        ({"known": {("a", "b"): "c"}}, "this run reads source"),
        ({"known": 3}, "a mapping from sources"),
        ({"keep": "[a"}, "is not a regular expression"),
        ({"keep": "a" * 1_001}, "at most 1,000"),
        ({"keep": [3]}, "give a regular expression"),
        ({"match": "a" * 100_001}, "at most 100,000"),
        ({"match": Path("a")}, "expected a text"),
        ({"grammar": Path("no.lark")}, "there is no such file"),
        ({"json_schema": {"enum": [{1, 2}]}}, "is not JSON"),
    ],
    ids=str,
)
def test_mistakes_are_answered_with_a_sentence(system: System, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        system.session(**options)


def test_hostile_files_are_refused(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"abc\n\xff\xfe\n")
    for option in ("lexicon", "glossary", "known"):
        with pytest.raises(UserError, match=r"UTF-8|columns"):
            system.session(**{option: binary})
        with pytest.raises(UserError, match="not a regular file"):
            system.session(**{option: Path("/dev/zero")})
        with pytest.raises(UserError, match="a folder"):
            system.session(**{option: tmp_path})
    with pytest.raises(UserError, match=r"other\.tsv:2: has 3 columns"):
        system.session(glossary=written(tmp_path / "other.tsv", "a\tb", "a\tb\tc"))
    with pytest.raises(UserError, match="another answer before"):
        system.session(known=written(tmp_path / "twice.tsv", "a\tb", "a\tc"))
    with pytest.raises(UserError, match="has other targets before"):
        system.session(glossary=written(tmp_path / "twice.tsv", "a\tb", "a\tc"))
    monkeypatch.setitem(constraint_files.MOST_BYTES, "lexicon", 0)
    with pytest.raises(UserError, match="which is the most that is read"):
        system.session(lexicon=written(tmp_path / "long.txt", "abc"))


def test_a_slow_pattern_costs_its_input_only(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary, "SECONDS", 0.05)
    slow, fast = system.predict(["a" * 40 + "b", "hg"], keep="(a|aa)+$")
    assert slow.error is not None and "takes more than" in slow.error
    assert fast.error is None
    many = system.predict("ab" * 60, keep="[ab]")
    assert many.error is not None and "120 phrases would have to occur" in many.error


def test_a_language_model_has_no_source_to_ask_for_phrases(system: System) -> None:
    from dragoman.inference.constraints import read_constraints

    with pytest.raises(UserError, match="a language model has no source"):
        read_constraints(system.target, {}, True, {"keep": "a"})
    with pytest.raises(UserError, match="are no texts"):
        read_constraints(system.target, {"picture": True}, False, {"glossary": {"a": "b"}})
