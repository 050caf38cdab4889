"""Constrained outputs of untrained models of every decoder family: none may break its constraint, whatever is asked.

What an output has to be is decided here by Python's own means (a set, ``re``), not by the rules of the search.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit, kinds
from dragoman.inference.build import build_model
from dragoman.inference.constraints import Constraints
from dragoman.inference.ensembles import ensemble, fuse
from dragoman.inference.predictions import Prediction
from dragoman.inference.requests import PreparedInput
from dragoman.inference.system import System
from dragoman.modalities.text import Text
from dragoman.parts import kinds as parts
from dragoman.recipe.schema import make_recipe
from dragoman.runs.lengths import LengthLimits
from dragoman.search.trace import Result

WORDS = ["ab", "abc", "b", "cab", "dad", "é", "12", "7", "a-b", "中文"]
TEXTS = [" ".join(WORDS[first:] + WORDS[:first]) for first in range(len(WORDS))] + ["ab, cab. (7)", "dadab  b", "12é"]
TRANSFORMER = {"width": 12, "layers": 1, "heads": 2, "feed_forward": 16}
DECODERS: dict[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn", "width": 12, "embedding": 12},
    "monotone": {"kind": "monotone", "width": 12, "embedding": 12},
    "conv": {"kind": "conv", "width": 12, "layers": 2, "embedding": 12},
    "transformer": {"kind": "transformer", **TRANSFORMER},
    "concat": {"kind": "concat", "network": {"kind": "transformer", **TRANSFORMER, "embedding": 12}},
}
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 4, "n_best": 4},
    {"beam": 3, "n_best": 2, "stop": "certain", "normalize": "none"},
    {"sample": True, "samples": 4, "temperature": 1.5},
    {"sample": True, "samples": 2, "top_k": 5},
]
SOURCES = ["ab 12", "cab dad 7 12", "a-b", "12 12 é", "b 中文 ab", "dad (ab) 7"]


def test_every_family_is_here() -> None:
    assert set(DECODERS) == set(parts("decoder"))


@cache
def tokenizer(kind: str) -> Tokenizer:
    return fit(TokenizerConfig(kind=kind, size=300 if kind == "subwords" else None), TEXTS)


@cache
def make_system(decoder: str, kind: str, seed: int = 1) -> System:
    """An untrained model with opinions, and with a liking for the end of the output, so that outputs vary in length."""
    source = tokenizer("characters")
    given = {
        "source": {"embedding": 12, "tokenizer": {"kind": "characters"}},
        "encoder": {"kind": "rnn", "width": 8} if decoder != "concat" else {"kind": "identity"},
        "decoder": DECODERS[decoder],
        "training": {"seed": seed, "ctc": 0.3 if decoder == "rnn" else 0.0},
    }
    recipe = make_recipe(given)
    text = Text(recipe.sources["source"].modality, source)
    target = tokenizer(kind)
    model = build_model(recipe, {"source": text}, target)
    for parameter in model.parameters():
        parameter.data *= 2.5
    limits = LengthLimits(ratio=1.0, extra=40 if kind in ("bytes", "subwords") else 25, most=60)
    return System(recipe, {"source": text}, target, model, limits)


@cache
def combined(how: str, decoder: str, kind: str) -> System:
    system = make_system(decoder, kind)
    if how == "ensemble":
        return ensemble([system, make_system(decoder, kind, 2)])
    if how == "fusion":
        recipe = make_recipe({"sources": {}, "decoder": DECODERS["rnn"], "training": {"seed": 3}})
        language_model = build_model(recipe, {}, system.target)
        return fuse(system, System(recipe, {}, system.target, language_model, LengthLimits()), 0.5)
    return system


class Constraint(NamedTuple):
    """Options, and what an output for a source has to be by them."""

    options: dict[str, Any]
    allows: Callable[[str, str], bool]


def lexicons(kind: str) -> st.SearchStrategy[Constraint]:
    words = st.sampled_from(WORDS)
    entry = st.lists(words, min_size=1, max_size=3).map(" ".join)
    texts = st.lists(entry, min_size=1, max_size=12)
    by_word = st.lists(words, min_size=1, max_size=5)
    return texts.map(lambda entries: Constraint({"lexicon": entries}, lambda _, text: text in entries)) | by_word.map(
        lambda entries: Constraint(
            {"lexicon": entries, "lexicon_words": True},
            lambda _, text: all(word in entries for word in text.split(" ")),
        )
    )


def formats(kind: str) -> st.SearchStrategy[Constraint]:
    piece = st.sampled_from(["ab", "[a-d]+", "(12|7)", "é?", "[^ ]", "[0-9]*", "(cab|dad)", ".", "中文|b"])
    gap = st.sampled_from([" ", " ?", "( |-)", ""]) if kind != "symbols" else st.just(" ")
    pattern = st.lists(st.tuples(piece, gap), min_size=1, max_size=4).map(
        lambda parts: "".join(f"({piece}){gap}" for piece, gap in parts[:-1]) + f"({parts[-1][0]})"
    )
    pattern |= st.sampled_from(["(ab|cab)( (12|7|b))*", r"(?s:.*)", ".*b.*", "[a-d]+( [a-d]+){0,3}"])
    return pattern.map(
        lambda text: Constraint({"match": text}, lambda _, output: re.fullmatch(text, output) is not None)
    )


def is_word_in(word: str, text: str, times: int = 1) -> bool:
    edges = (r"(?<!\w)" if word[0] not in "中(" else "", r"(?!\w)" if word[-1] not in "文)" else "")
    return len(re.findall(edges[0] + re.escape(word) + edges[1], text)) >= times


def glossaries(kind: str) -> st.SearchStrategy[Constraint]:
    words = st.sampled_from(WORDS)
    terms = st.dictionaries(words, st.lists(words, min_size=1, max_size=2), min_size=1, max_size=4)

    def make(pairs: dict[str, list[str]]) -> Constraint:
        def allows(source: str, text: str) -> bool:
            # of terms that overlap the longest counts, so only whole words of the source are decided here
            present = [term for term in pairs if term in source.split()]
            return all(any(is_word_in(target, text) for target in pairs[term]) for term in present)

        return Constraint({"glossary": pairs}, allows)

    kept = st.sampled_from([(r"\d+", r"\d+"), (r"(?:dad|é)", r"dad|é"), (r"[a-z]-[a-z]", r"[a-z]-[a-z]")])

    def keep(patterns: tuple[str, str]) -> Constraint:
        def allows(source: str, text: str) -> bool:
            counts = Counter(re.findall(patterns[1], source))
            return all(is_word_in(word, text, times) for word, times in counts.items())

        return Constraint({"keep": patterns[0]}, allows)

    return terms.map(make) | kept.map(keep)


COUNTS: Counter[str] = Counter()


def test_no_output_breaks_its_constraint(
    amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rules of the search suffice: what is checked at the end finds no finished hypothesis to take out."""
    COUNTS.clear()
    obeyed = Constraints.obeyed

    def count(self: Constraints, prepared: PreparedInput, result: Result) -> Result:
        kept = obeyed(self, prepared, result)
        COUNTS["caught at the end"] += sum(each.finished for each in result.hypotheses) - sum(
            each.finished for each in kept.hypotheses
        )
        return kept

    monkeypatch.setattr(Constraints, "obeyed", count)
    wanted = amount(120, 10_000)

    @settings(max_examples=amount(25, 4_000), deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def campaign(data: st.DataObject) -> None:
        pick = random.Random(data.draw(st.integers(0, 2**32)))  # evenly, which hypothesis would not do
        decoder, kind = pick.choice(sorted(DECODERS)), pick.choice(kinds())
        how = pick.choice(["alone", "alone", "ensemble", "fusion", "ctc"])
        constraint = data.draw(pick.choice([lexicons, formats, glossaries])(kind))
        search = dict(pick.choice(SEARCHES))
        if "sample" in search:
            search["seed"] = pick.randrange(100)
        if how == "ctc" and decoder == "rnn":
            search["ctc"] = 0.4
        system = combined(how, decoder, kind)
        sources = pick.choices(SOURCES, k=pick.randint(2, 6))
        batch = pick.choice([1, 3, 64])
        if COUNTS["hypotheses"] >= wanted:
            return
        for answer in system.predict(sources, **search, **constraint.options, batch=batch):
            check(answer, constraint, f"{decoder}, {kind}, {how}, {search}, {constraint.options}")
        COUNTS["calls"] += 1
        COUNTS[f"family {decoder}"] += len(sources)
        COUNTS[f"tokens {kind}"] += len(sources)
        COUNTS[f"asked {how}"] += len(sources)

    def check(answer: Prediction, constraint: Constraint, where: str) -> None:
        assert isinstance(answer.source, str)
        if answer.error is not None:
            COUNTS["refused"] += 1
            assert "no output of at most" in answer.error or "cannot spell" in answer.error, f"{where}: {answer.error}"
            return
        for output in answer.outputs:
            COUNTS["hypotheses"] += 1
            COUNTS[f"by {next(iter(constraint.options))}"] += 1
            assert constraint.allows(answer.source, output.text), f"{where}: {answer.source!r} → {output.text!r}"

    campaign()
    assert COUNTS["hypotheses"] >= amount(60, 10_000)
    assert COUNTS["refused"] < COUNTS["hypotheses"]
    assert COUNTS["caught at the end"] == 0
    record("constraints", {"violations": 0, **dict(sorted(COUNTS.items()))})


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_what_allows_everything_changes_nothing(kind: str, search: dict[str, Any], amount: Any) -> None:
    """A format of any text, a glossary of absent words, and a lexicon that has the free outputs beside others."""
    for decoder in sorted(DECODERS) if amount(0, 1) else ["transformer" if "sample" in search else "rnn"]:
        system = make_system(decoder, kind)
        system = replace(system, lengths=LengthLimits(ratio=0, extra=12, most=12))
        free = system.predict(SOURCES, **search)
        for options in ({"match": "(?s:.*)"}, {"glossary": {"zzz": "ab"}}, {"keep": "QQ+"}):
            held = system.predict(SOURCES, **search, **options)
            for one, other in zip(free, held, strict=True):
                # bytes that are no text match no format
                clean = [each for each in one.outputs if "\ufffd" not in each.text or "match" not in options]
                if len(clean) == len(one.outputs):
                    assert other.error is None
                    assert [(each.tokens, each.log_probs) for each in one.outputs] == [
                        (each.tokens, each.log_probs) for each in other.outputs
                    ], (decoder, options)
