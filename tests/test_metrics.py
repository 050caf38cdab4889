"""Metrics against jiwer and sacrebleu themselves, and the laws they must keep."""

from __future__ import annotations

import json
import math
import random
import time
from itertools import pairwise
from typing import Any

import jiwer
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman.data import tokenizers
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.errors import UserError
from dragoman.evaluation import metrics
from dragoman.evaluation.metrics.bleu import bleu

TEXT_METRICS = ("exact", "ser", "cer", "wer", "bleu", "chrf")
ALPHABET = st.text(alphabet="ab éя漢🙂.", max_size=12)
CORPUS = st.lists(st.tuples(ALPHABET, st.lists(ALPHABET, min_size=1, max_size=3)), min_size=1, max_size=6)
quick = settings(deadline=None, max_examples=60)


def sentences(number: int, seed: int, most_references: int = 1) -> tuple[list[str], list[list[str]]]:
    """Random sentences and references that share a good part of their words."""
    generator = random.Random(seed)
    vocabulary = ["the", "cat", "sat,", "on", "a", "mat.", "große", "déjà", "кот", "42", "it's", "x-y", "¿qué?"]
    hypotheses, references = [], []
    for _ in range(number):
        base = [generator.choice(vocabulary) for _ in range(generator.randint(1, 25))]
        options = []
        for _ in range(generator.randint(1, most_references)):
            noisy = [word if generator.random() < 0.8 else generator.choice(vocabulary) for word in base]
            options.append(" ".join(noisy[: max(1, len(noisy) - generator.randint(0, 2))]))
        hypotheses.append(" ".join(base))
        references.append(options)
    return hypotheses, references


def streams(references: list[list[str]]) -> Any:
    """References as sacrebleu wants them: one list a reference, holes where a row has fewer."""
    most = max(map(len, references))
    return [[options[i] if i < len(options) else None for options in references] for i in range(most)]


@pytest.mark.parametrize("seed", range(3))
def test_error_rates_are_those_of_jiwer(seed: int) -> None:
    hypotheses, references = sentences(60, seed)
    first = [options[0] for options in references]
    assert metrics.score("wer", hypotheses, references) == pytest.approx(100 * jiwer.wer(first, hypotheses))
    assert metrics.score("cer", hypotheses, references) == pytest.approx(100 * jiwer.cer(first, hypotheses))


@pytest.mark.parametrize("most_references", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_bleu_and_chrf_are_those_of_sacrebleu(seed: int, most_references: int) -> None:
    hypotheses, references = sentences(60, seed, most_references)
    theirs, chrf = BLEU(), CHRF()
    ours = metrics.compute_statistics("bleu", hypotheses, references)
    assert ours.corpus_score() == pytest.approx(theirs.corpus_score(hypotheses, streams(references)).score)
    assert ours.signature == str(theirs.get_signature())
    ours = metrics.compute_statistics("chrf", hypotheses, references)
    assert ours.corpus_score() == pytest.approx(chrf.corpus_score(hypotheses, streams(references)).score)
    assert ours.signature == str(chrf.get_signature())


@quick
@given(CORPUS)
def test_bleu_and_chrf_are_those_of_sacrebleu_on_odd_text(corpus: list[tuple[str, list[str]]]) -> None:
    hypotheses, references = [pair[0] for pair in corpus], [pair[1] for pair in corpus]
    expected = BLEU(force=True).corpus_score(hypotheses, streams(references)).score
    chrf = CHRF().corpus_score(hypotheses, streams(references)).score
    assert bleu(hypotheses, references, tokenizer="13a").corpus_score() == pytest.approx(expected)
    for hypothesis, options in corpus:  # of references that are equally near, rounding decides which is compared with
        near = sorted((CHRF().sentence_score(hypothesis, [text]).score for text in set(options)), reverse=True)
        assume(len(near) < 2 or near[0] == 0 or near[0] - near[1] > 1e-9)
    assert metrics.score("chrf", hypotheses, references) == pytest.approx(chrf)


@quick
@given(CORPUS)
def test_more_references_never_make_it_worse(corpus: list[tuple[str, list[str]]]) -> None:
    hypotheses, references = [pair[0] for pair in corpus], [pair[1] for pair in corpus]
    for pick in (0, -1):
        single = [[options[pick]] for options in references]
        for name in ("cer", "wer", "ser"):
            assert metrics.score(name, hypotheses, references) <= metrics.score(name, hypotheses, single) + 1e-9
        assert metrics.score("exact", hypotheses, references) >= metrics.score("exact", hypotheses, single)


def test_a_short_second_reference_does_not_raise_the_rate() -> None:
    """Fewest edits row by row would choose "xyz" (3 edits of 3) over the longer one (8 edits of 10)."""
    assert metrics.score("cer", ["ab"], [["abcdefghij", "xyz"]]) == pytest.approx(80)


@quick
@given(CORPUS)
def test_intervals_hold_the_score_and_nothing_crashes(corpus: list[tuple[str, list[str]]]) -> None:
    hypotheses, references = [pair[0] for pair in corpus], [pair[1] for pair in corpus]
    report = metrics.measure_outputs(hypotheses, references, resamples=50)
    for score in report.scores.values():
        assert score.low <= score.value <= score.high
        assert math.isfinite(score.value)
    assert report.scores["ser"].value == pytest.approx(100 - report.scores["exact"].value)
    plain = json.dumps(report.to_json(), allow_nan=False)
    assert metrics.Report.from_json(json.loads(plain)) == report
    assert report.to_text()


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_perfect_output_is_perfect(name: str) -> None:
    _, references = sentences(30, 0)
    best = 100.0 if metrics.METRICS[name].better == "higher" else 0.0
    report = metrics.measure_outputs([options[0] for options in references], references, headline=name, resamples=100)
    assert report.value == pytest.approx(best)
    assert (report.scores[name].low, report.scores[name].high) == pytest.approx((best, best))


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_a_ruined_row_makes_it_worse(name: str) -> None:
    _, references = sentences(30, 0)
    hypotheses = [options[0] for options in references]
    good = metrics.score(name, hypotheses, references)
    bad = metrics.score(name, ["zzz", *hypotheses[1:]], references)
    assert bad < good if metrics.METRICS[name].better == "higher" else bad > good


def test_empty_texts() -> None:
    assert metrics.score("cer", ["", "ab"], [[""], [""]]) == 200.0  # a total length of zero counts as one
    assert metrics.score("cer", [""], [["abc"]]) == 100.0
    assert metrics.score("wer", ["", ""], [[""], [""]]) == 0.0
    assert metrics.score("exact", [""], [["a", ""]]) == 100.0


def test_only_the_space_parts_words() -> None:
    assert metrics.split_words("a\u00a0b  c ") == ["a\u00a0b", "c"]


def test_perplexity() -> None:
    uniform = [math.log(1 / 8) * n for n in (3, 5)]
    report = metrics.measure_outputs(["a", "b"], [["a"], ["b"]], log_probs=uniform, tokens=[3, 5], resamples=20)
    assert report.scores["perplexity"].value == pytest.approx(8)
    hopeless = metrics.measure_outputs(["a"], [["a"]], log_probs=[-1e9], tokens=[1], resamples=20)
    json.dumps(hopeless.to_json(), allow_nan=False)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """200 samples of 200 rows, each right with probability 0.8: the interval should hold 80 % in about 95 %."""
    generator = random.Random(1)
    covered = 0
    for seed in range(200):
        hypotheses = ["a" if generator.random() < 0.8 else "b" for _ in range(200)]
        report = metrics.measure_outputs(hypotheses, [["a"]] * 200, metrics=["exact"], resamples=200, seed=seed)
        covered += report.scores["exact"].low <= 80 <= report.scores["exact"].high
    assert 0.88 <= covered / 200 <= 0.99


def test_seeded() -> None:
    hypotheses, references = sentences(40, 3)
    one, two, other = (metrics.measure_outputs(hypotheses, references, resamples=100, seed=seed) for seed in (7, 7, 8))
    assert one == two
    assert one.scores["bleu"].low != other.scores["bleu"].low


def test_resamples_of_a_large_corpus_come_in_blocks() -> None:
    blocks = list(metrics.resample(50_000, 90, seed=1))
    assert len(blocks) > 1
    whole = np.concatenate(blocks)
    assert whole.shape == (90, 50_000)
    assert (whole.sum(axis=1) == 50_000).all()


def test_by_length_parts_all_rows_and_orders_them() -> None:
    lengths = [1, 1, 1, 1, 2, 3, 3, 9, 30, 31]
    table = metrics.compute_statistics("exact", ["a"] * 8 + ["b"] * 2, [["a"]] * 10)
    rows = metrics.score_by_length(table, lengths, buckets=4, resamples=50)
    assert sum(row.rows for row in rows) == 10
    for before, after in pairwise(rows):
        assert before.longest < after.shortest
    assert rows[0].value == 100
    assert rows[-1].value < 100
    assert sum(row.value * row.rows for row in rows) / 10 == pytest.approx(table.corpus_score())


def test_paired_comparison() -> None:
    hypotheses, references = sentences(200, 5)
    perfect = [options[0] for options in references]
    first, second = (
        metrics.compute_statistics("bleu", hypotheses, references),
        metrics.compute_statistics("bleu", perfect, references),
    )
    better = metrics.paired_bootstrap(first, second)
    assert better.value == pytest.approx(second.corpus_score() - first.corpus_score())
    assert 0 < better.low <= better.value <= better.high
    assert better.p_value < 0.01
    same = metrics.paired_bootstrap(first, first)
    assert same == metrics.Difference(0.0, 0.0, 0.0, 1.0)


def test_two_thousand_sentences_take_a_moment() -> None:
    hypotheses, references = sentences(2000, 0)
    started = time.process_time()
    report = metrics.measure_outputs(hypotheses, references, source_lengths=[len(text.split()) for text in hypotheses])
    assert time.process_time() - started < 10  # about 2 s; the limit leaves room for a busy machine
    assert len(report.by_length) == 5


def test_bleu_cuts_scripts_without_spaces_into_characters() -> None:
    assert metrics.bleu_tokenizer([["今天天气很好。"], ["ok"]]) == "zh"
    assert metrics.bleu_tokenizer([["今日はいい天気です"]]) == "char"
    assert metrics.bleu_tokenizer([["Guten Tag"], ["今"]]) == "13a"
    assert metrics.bleu_tokenizer([[""]]) == "13a"
    report = metrics.measure_outputs(["今天天气很好。"], [["今天天气不好。"]], headline="bleu", resamples=10)
    assert "tok:zh" in report.scores["bleu"].signature
    assert report.value > 0


@pytest.mark.parametrize(
    ("hypotheses", "references", "says"),
    [
        (["a"], [["a"], ["b"]], "1 outputs but 2 rows"),
        ([], [], "nothing to measure"),
        (["a"], [[]], "row 1"),
        (["a"], ["a"], "row 1"),
    ],
)
def test_mistakes_are_named(hypotheses: list[str], references: list[list[str]], says: str) -> None:
    with pytest.raises(UserError, match=says):
        metrics.measure_outputs(hypotheses, references)


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(UserError, match="'rouge'; choose from"):
        metrics.score("rouge", ["a"], [["a"]])
    with pytest.raises(UserError, match="log_probs and tokens"):
        metrics.measure_outputs(["a"], [["a"]], headline="perplexity")


def test_the_report_reads_well() -> None:
    report = metrics.measure_outputs(
        ["a b", "c"], [["a b"], ["d", "e"]], source_lengths=[3, 4], length_unit="characters", symbols=True, resamples=20
    )
    text = report.to_text()
    assert text.splitlines()[0] == "2 rows, 3 references; 95 % intervals in brackets"
    assert "symbol error rate" in text
    assert "by source length (characters)" in text
    assert "nrefs:var" in text
    assert next(iter(report.scores)) == report.headline


def test_the_report_says_that_rows_of_one_source_are_measured_together() -> None:
    report = metrics.measure_outputs(["a", "b"], [["a"], ["d", "e"]], examples=4, resamples=20)
    assert report.to_text().splitlines()[:3] == [
        "4 rows, 2 distinct sources, 3 references",
        "rows with the same source are measured together",
        "95 % intervals in brackets",
    ]
    assert metrics.Report.from_json(report.to_json()) == report
    assert "distinct" not in metrics.measure_outputs(["a"], [["a"]], examples=1, resamples=20).to_text()


def test_the_headline_fits_the_targets() -> None:
    formal = [" ".join(random.Random(i).choices(["JUMP", "WALK", "LEFT"], k=12)) for i in range(200)]
    assert metrics.choose_metrics("symbols", ["k æ t"] * 9).headline == "exact"
    assert metrics.choose_metrics("characters", ["1990-10-03"] * 9).headline == "exact"
    assert metrics.choose_metrics("words", formal).headline == "exact"
    assert metrics.choose_metrics("subwords", sentences(50, 0)[0]).headline == "bleu"
    assert metrics.choose_metrics("characters", ["今天天气很好我们去公园吧"] * 9).headline == "bleu"
    assert metrics.choose_metrics("words", []).headline == "exact"
    for choice in (metrics.choose_metrics("symbols", ["a"]), metrics.choose_metrics("words", sentences(50, 0)[0])):
        assert choice.headline == choice.metrics[0]
        assert set(choice.metrics) <= set(metrics.METRICS)


def test_no_score_is_reported_twice() -> None:
    """The sequence error rate, and the word error rate of single words, are what exact match leaves."""
    assert metrics.choose_metrics("characters", ["2001-05-03", "2002-01-01"]).metrics == ("exact", "cer")
    assert metrics.choose_metrics("symbols", ["k a t", "d"]).metrics == ("exact", "wer", "cer")
    assert metrics.choose_metrics("characters", ["New York", "Rome"]).metrics == ("exact", "cer", "wer")


def test_sources_of_one_length_are_not_scored_by_length() -> None:
    report = metrics.measure_outputs(["a", "b"], [["a"], ["c"]], source_lengths=[36, 36], resamples=10)
    assert report.by_length == [] and "by source length" not in report.to_text()


def test_symbols_that_are_words_are_called_words() -> None:
    """Captions of a small set of words have a token for each word, and no symbols."""
    captions = ["a red circle"] * 21 + ["a green square and a blue triangle"] * 21
    phones = ["k a t", "d o g z"] * 20
    fitted = [tokenizers.fit(TokenizerConfig(kind="symbols"), texts, "target") for texts in (captions, phones)]
    assert [tokenizer.units for tokenizer in fitted] == ["words", "symbols"]
    reasons = [metrics.choose_metrics("symbols", texts).reason for texts in (captions, phones)]
    assert "sequences of words" in reasons[0] and "sequences of symbols" in reasons[1]
    kind, reason = tokenizers.choose(captions, "target")
    assert kind == "symbols" and "a token for each word" in reason
