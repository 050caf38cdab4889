"""The audit's books, its report and its statistics; overlap between files; references."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.data.audit.audit import CATEGORIES, Audit, fate
from dragoman.data.audit.file_statistics import FileStatistics, Spread
from dragoman.data.audit.text_statistics import LengthStatistics, TextStatistics
from dragoman.data.examples import Example, overlap, references, tidy
from dragoman.data.reading.read import read


def rows(*pairs: tuple[str, str], file: str = "f") -> list[Example]:
    return [Example({"source": source}, target, line, file) for line, (source, target) in enumerate(pairs, 1)]


def test_later_stages_drop_too_and_a_row_only_once(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_bytes(b"a\tb\nbroken\nc\td\n")
    corpus = read(path)
    corpus.audit.drop(corpus.examples[1], "too_many_tokens", "812 tokens, over max_tokens=512")
    corpus.audit.drop(corpus.examples[1], "too_many_tokens", "again")
    corpus.audit.drop(2, "too_many_tokens", "already dropped")
    assert (corpus.audit.rows, corpus.audit.used, corpus.audit.dropped) == (3, 1, 2)
    assert corpus.audit.count("too_many_tokens") == corpus.audit.count("wrong_columns") == 1
    assert corpus.audit.summary() == "1 of 3 rows used (33.3%)"
    assert "too many tokens" in corpus.audit.report()
    assert str(corpus.audit.findings["too_many_tokens"].places[0]) == f"{path}:3: 812 tokens, over max_tokens=512"
    with pytest.raises(ValueError, match="no reason to drop"):
        corpus.audit.drop(1, "duplicate", "kept")


def full_audit() -> Audit:
    audit = Audit(("a" * 300 + ".tsv",), "tsv", ["a note " * 40, "another"], rows=10**7)
    for category in CATEGORIES:
        for line in range(1, 8):
            if fate(category) == "dropped":
                audit.drop(10**6 + line + 10 * list(CATEGORIES).index(category), category, "because " * 40)
            else:
                audit.record(category, 10**6 + line, "because " * 40)
    kept = audit.findings.copy()
    audit.describe(rows(("a b", "b"), ("a b", "c")))
    assert audit.findings.keys() == kept.keys()
    return audit


def test_report_fits_a_terminal_and_names_everything() -> None:
    audit = full_audit()
    report = audit.report()
    assert report.split("\n")[0].endswith(f"a.tsv: {audit.summary()}")
    assert len(report.split("\n")) <= 50
    assert max(map(len, report.split("\n"))) <= 118
    for _, name in CATEGORIES.values():
        assert name in report
    assert report.isprintable() or set(report) - {"\n"} == {c for c in report if c.isprintable()}


@pytest.mark.parametrize("width", [60, 80, 100])
def test_report_is_folded_to_a_narrow_terminal(width: int) -> None:
    audit = full_audit()
    examples = [Example({"premise": "a b", "hypothesis": "b"}, "c", line, "x.tsv") for line in (1, 2)]
    audit.statistics = {}
    audit.describe(examples)
    audit.media["source"] = FileStatistics("image", 3, {"width in pixels": Spread.of([15, 90, 100])}, {})
    report = audit.report(width)
    assert max(map(len, report.split("\n"))) <= width
    for name in ("premise", "hypothesis", "target", "characters per word", *(name for _, name in CATEGORIES.values())):
        assert name in report
    assert "…" not in report.replace(", …", "").replace("…a", "")  # folded, not cut


def test_counts_are_complete_though_few_places_are_named() -> None:
    audit = full_audit()
    assert audit.count("crlf") == 7 and len(audit.findings["crlf"].places) == 5
    assert audit.dropped == sum(audit.count(category) for category in CATEGORIES if fate(category) == "dropped")


def test_json_is_plain_and_agrees(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_bytes("a\tb\na\tc\na\tb\n\tx\né\tz \n".encode())
    audit = read(path).audit
    plain = json.loads(json.dumps(audit.to_json()))
    assert (plain["rows"], plain["used"], plain["dropped"]) == (5, 4, 1)
    assert plain["findings"]["empty_side"]["places"] == [
        {"file": str(path), "line": 4, "reason": "the source is empty", "unit": "line"}
    ]
    assert plain["distinct_sources"] == 2 and plain["sources_with_several_targets"] == 1
    assert plain["statistics"]["target"]["rows"] == 4
    assert "4 of 5 rows used (80.0%)" in audit.report() and "Attention: 20%" in audit.report()


@given(st.lists(st.text(alphabet="ab é\u3000\t", max_size=12), min_size=1, max_size=30))
def test_statistics_are_what_they_say(texts: list[str]) -> None:
    found = TextStatistics.of(texts)
    words = [word for text in texts for word in text.split()]
    assert found.rows == len(texts)
    assert found.characters.median == statistics.median(map(len, texts))
    assert found.characters.mean == pytest.approx(statistics.fmean(map(len, texts)))
    assert (found.characters.minimum, found.characters.maximum) == (min(map(len, texts)), max(map(len, texts)))
    assert found.distinct_characters == len(set("".join(texts)))
    assert found.distinct_words == found.distinct_symbols == len(set(words))
    assert found.words_once == sum(words.count(word) == 1 for word in set(words))
    assert found.total_words == len(words) and found.words.maximum == max(len(text.split()) for text in texts)
    assert found.one_word_share == pytest.approx(sum(len(text.split()) == 1 for text in texts) / len(texts))
    assert found.mean_symbol_length == pytest.approx(statistics.fmean(map(len, words)) if words else 0)
    spaced = [text for text in texts if len(text.split()) > 1 and all(len(word) <= 4 for word in text.split())]
    assert found.spaced_share == pytest.approx(len(spaced) / len(texts))
    assert sum(found.characters.histogram.values()) == len(texts)
    p95 = found.characters.p95
    assert sum(len(text) <= p95 for text in texts) >= 0.95 * len(texts) > sum(len(text) < p95 for text in texts)


def test_histogram_is_by_powers_of_two() -> None:
    found = TextStatistics.of(["x" * length for length in range(1, 18)]).characters
    assert found.histogram == {1: 1, 2: 1, 4: 2, 8: 4, 16: 8, 32: 1}
    assert TextStatistics.of([]).characters == LengthStatistics(0, 0.0, 0.0, 0, 0, {})


def test_statistics_by_name_and_for_a_language_model() -> None:
    audit = Audit(("f",))
    audit.describe([Example({"picture": "p", "question": "q r"}, "yes", 1, "f")])
    assert list(audit.statistics) == ["picture", "question", "target"]
    audit = Audit(("f",))
    audit.describe([Example({}, "one", 1, "f"), Example({}, "two", 2, "f"), Example({}, "one", 3, "f")])
    assert list(audit.statistics) == ["target"]
    assert audit.count("duplicate") == 1 and audit.several == 0


def test_overlap_is_named_on_both_sides() -> None:
    train = rows(("a", "1"), ("b", "2"), ("a", "3"), file="train.tsv")
    other = rows(("x", "1"), ("a", "3"), ("a", "9"), ("b", "9"), file="dev.tsv")
    found = overlap(train, other)
    assert (found.rows, found.total, found.sources, found.pairs) == (3, 4, 2, 1)
    assert [str(one) for one in found.shown] == [
        "dev.tsv:2: same source and target as train.tsv:3",
        "dev.tsv:3: same source, other target as train.tsv:1",
        "dev.tsv:4: same source, other target as train.tsv:2",
    ]
    assert found.report().startswith("3 of 4 held-out rows (75.0%)")
    assert json.loads(json.dumps(found.to_json()))["shown"][0]["train_line"] == 3
    assert overlap(train, other, show=1).report().endswith("…")
    assert "None of the 4" in overlap([], other).report()


def test_references_group_in_first_seen_order() -> None:
    examples = rows(("b", "1"), ("a", "2"), ("b", "3"), ("b", "1"))
    assert references(examples) == [({"source": "b"}, ["1", "3"]), ({"source": "a"}, ["2"])]
    assert references([Example({}, "x", 1, "f"), Example({}, "y", 2, "f")]) == [({}, ["x"]), ({}, ["y"])]


@given(st.text())
def test_tidy_once_is_tidy(text: str) -> None:
    tidied = tidy(text)
    assert tidy(tidied) == tidied == tidied.strip()
    assert "\n" not in tidied and "\r" not in tidied
