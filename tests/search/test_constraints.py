"""Constraints against searches too slow to be wrong: what a rule allows, byte by byte, and where it leads."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_tables import SEEDS, TableDecoder

from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit, kinds
from dragoman.data.vocabulary import BOS, EOS
from dragoman.errors import UserError
from dragoman.search.constraints import formats, trial
from dragoman.search.constraints.formats import Format, FormatRule
from dragoman.search.constraints.lexicon import LexiconOfTokens, LexiconRule, make_lexicon
from dragoman.search.constraints.phrases import PhraseWriter, Required
from dragoman.search.constraints.required import RequirePhrases
from dragoman.search.constraints.trie import FAR, Trie
from dragoman.search.options import SearchConfig
from dragoman.search.rules import Rule, RuleSet, permitted
from dragoman.search.run import search

TEXTS = ["ab cd ef", "abc d, e.f g", "ca ▁ ab  x", "hello world", "  two spaces", "é b", "中文 b"]
SEARCHES = [
    SearchConfig(beam=1),
    SearchConfig(beam=4, n_best=3),
    SearchConfig(beam=3, stop="certain", normalize="none"),
    SearchConfig(sample=True, samples=3),
]


@cache
def tokenizer(kind: str) -> Tokenizer:
    return fit(TokenizerConfig(kind=kind, size=300 if kind == "subwords" else None), TEXTS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=5), max_size=20), st.binary(max_size=5))
def test_a_trie_holds_its_sequences_and_no_others(strings: list[bytes], other: bytes) -> None:
    trie, ends = Trie.build(sorted(strings))
    prefixes = {string[:length] for string in strings for length in range(len(string) + 1)} | {b""}
    assert len(trie) == len(prefixes)
    assert trie.contains(other) == (other in strings)
    assert all(trie.contains(string) for string in strings)
    assert sorted(set(ends.tolist())) == np.flatnonzero(trie.is_end).tolist() or not strings


def allowed(rule: Rule, prefix: Sequence[int], size: int) -> list[int]:
    return np.flatnonzero(permitted([rule], prefix, size)).tolist()


@pytest.mark.parametrize("word_by_word", [False, True])
@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_a_lexicon_allows_every_division_of_its_entries(kind: str, word_by_word: bool, seed: int) -> None:
    """A token is allowed exactly if some entry begins with the bytes so far and those of the token."""
    draw, own = random.Random(seed), tokenizer(kind)
    words = ["ab", "abc", "a", "ca", "hello", "cd", "é", "中文", "b"]
    entries = [word for word in draw.sample(words, 5) if not own.unknown(word)]
    if not word_by_word:
        entries += [own.canonical(text) for text in draw.sample(TEXTS, 3)]
    spelling = own.spelling()
    lexicon = make_lexicon(entries, spelling, own.encode, word_by_word)
    assert isinstance(lexicon, LexiconOfTokens) == (kind in ("bytes", "characters", "symbols") and not word_by_word)
    texts = entries
    if word_by_word:
        texts = [f"{one} {two} {three}" for one in entries for two in entries for three in entries]
        texts += entries + [f"{one} {two}" for one in entries for two in entries]
    whole = {text.encode() for text in texts}
    begun = {text[:length] for text in whole for length in range(len(text) + 1)}
    paths: set[tuple[int, ...]] = set()  # where a text has one division only, a byte is not enough
    if isinstance(lexicon, LexiconOfTokens):
        encoded = [tuple(own.encode(text)) for text in texts]
        paths = {tokens[:length] for tokens in encoded for length in range(len(tokens) + 1)}
    prefix: list[int] = []
    for _ in range(4):
        next_tokens = [
            token
            for token in range(own.size)
            if (spelling.spell(prefix) in whole if token == EOS else spelling.spelled[0][token] is not None)
            and (token == EOS or (*prefix, token) in paths or (not paths and spelling.spell([*prefix, token]) in begun))
        ]
        found = allowed(LexiconRule(lexicon, EOS), prefix, own.size)
        if word_by_word and spelling.spell(prefix).count(b" ") > 1:
            break  # longer outputs than those written out above
        assert found == next_tokens, prefix
        assert lexicon.accepts(own.decode(prefix)) == (own.decode(prefix) in texts)
        going = [token for token in found if token != EOS]
        if not going:
            break
        prefix.append(draw.choice(going))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=6), max_size=20))
def test_a_trie_knows_how_far_the_nearest_end_is(strings: list[bytes]) -> None:
    trie, _ = Trie.build(sorted(strings))
    found = trie.distances()
    for begun in {string[:length] for string in strings for length in range(len(string) + 1)}:
        node = 0
        for byte in begun:
            node = int(trie.step(np.array([node]), np.array([byte]))[1][0])
        assert found[node] == min(len(each) - len(begun) for each in strings if each.startswith(begun))
    assert strings or found.tolist() == [FAR]


@pytest.mark.parametrize("word_by_word", [False, True])
@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_near_the_limit_a_lexicon_allows_what_can_be_ended(kind: str, word_by_word: bool, seed: int) -> None:
    """A token is allowed exactly if one of the next tokens, as many as are left, is the end of an entry."""
    draw, own = random.Random(seed), tokenizer(kind)
    words = ["ab", "abc", "a", "ca", "hello", "cd", "é", "中文", "b", "x"]
    entries = [word for word in draw.sample(words, 4) if not own.unknown(word)]
    if not word_by_word:
        entries += [own.canonical(text) for text in draw.sample(TEXTS, 3)]
    lexicon = make_lexicon(entries, own.spelling(), own.encode, word_by_word)

    @cache
    def ends(prefix: tuple[int, ...], most: int) -> bool:
        free = allowed(LexiconRule(lexicon, EOS), prefix, own.size)
        return EOS in free or (most > 0 and any(ends((*prefix, token), most - 1) for token in free))

    limit = draw.randint(2, 5)
    prefix: list[int] = []
    while True:
        free = allowed(LexiconRule(lexicon, EOS), prefix, own.size)
        found = allowed(LexiconRule(lexicon, EOS, np.array([limit])), prefix, own.size)
        left = limit - len(prefix) - 2
        assert found == [token for token in free if token == EOS or (left >= 0 and ends((*prefix, token), left))], (
            prefix
        )
        going = [token for token in found if token != EOS]
        if not going:
            break
        prefix.append(draw.choice(going))


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("config", SEARCHES, ids=str)
def test_the_limit_does_not_cut_an_entry_off(kind: str, config: SearchConfig) -> None:
    """The shortest entry is found, however much the model would like to begin a longer one."""
    own = tokenizer(kind)
    entries = [own.canonical(text) for text in ("hello world", "ab cd ef", "ab", "  two spaces")]
    lexicon = make_lexicon(entries, own.spelling(), own.encode)
    tables = random_tables(3, 6, own)
    limit = len(own.encode("ab")) + 1
    for result in decode(tables, config, limit, lambda limits: [LexiconRule(lexicon, EOS, limits)]):
        assert result.hypotheses
        assert all(each.finished and own.decode(each.tokens) in entries for each in result.hypotheses)


@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_a_format_allows_what_can_become_a_match(kind: str, seed: int) -> None:
    """Random walks through what is allowed end in texts that match, and every known text that matches is a walk."""
    draw, own = random.Random(seed), tokenizer(kind)
    pattern = draw.choice(
        [
            "[a-c]+( [a-c]+)*",
            ".*",
            " *hello.*",
            "(ab|abc)?( d)?",
            "hello world",
            "ab( cd ef)?",
            r"\w+ é.*",
            "^é b$",
            "a/b|ab",
            r"[$^]*\$?ab",
        ]
    )
    required = Format("match", pattern, own.spelling())
    for _ in range(6):
        rule, ids = FormatRule(required, EOS), []
        rule.start([0], np.zeros((1, 0), np.int64))
        for _ in range(8):
            tokens = rule.bans().allowed_tokens
            if EOS in tokens:
                assert re.fullmatch(pattern, own.decode(ids)) and required.accepts(own.decode(ids))
            going = tokens[tokens != EOS].tolist()
            if not going:
                break
            ids.append(draw.choice(going))
            rule.advance(np.array([0]), np.array(ids[-1:]))
    for text in map(own.canonical, TEXTS):
        tokens = own.encode(text)
        reached = all(
            token in allowed(FormatRule(required, EOS), tokens[:at], own.size) for at, token in enumerate(tokens)
        )
        ends = reached and EOS in allowed(FormatRule(required, EOS), tokens, own.size)
        assert ends == (re.fullmatch(pattern, text) is not None) == required.accepts(text)


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("name", ["lexicon", "format", "phrases"])
def test_a_constraint_knows_a_row_by_its_tokens_alone(name: str, kind: str) -> None:
    """Rows are multiplied, dropped and permuted; what is allowed is what it is after the tokens as a prefix."""
    own = tokenizer(kind)
    spelling, entries = own.spelling(), [own.canonical(text) for text in TEXTS]
    lexicon, required = make_lexicon(entries, spelling, own.encode), Format("match", "[a-e ].*", spelling)
    writer = PhraseWriter(spelling)
    phrases = {source: [writer.phrase(Required(("ab", "b")))] for source in range(2)}
    make = {
        "lexicon": lambda: LexiconRule(lexicon, EOS),
        "format": lambda: FormatRule(required, EOS),
        "phrases": lambda: RequirePhrases(writer, phrases, np.array([9, 9]), EOS),
    }[name]
    draw, rule = np.random.default_rng(1), make()
    produced = np.array([own.encode(entries[0])[:1], own.encode(entries[1])[:1]])
    rule.start([0, 1], produced)
    for width in (2, 5, 3, 4):
        parents = draw.integers(0, len(produced), width)
        pairs = [allowed(make(), prefix, own.size) for prefix in produced[parents].tolist()]
        picked = [[token for token in tokens if token != EOS] or [4] for tokens in pairs]
        tokens = np.array([draw.choice(choices) if draw.random() < 0.8 else 4 for choices in picked])
        rule.advance(parents, tokens)
        produced = np.concatenate([produced[parents], tokens[:, None]], 1)
        scores = torch.zeros(width, own.size)
        rules = RuleSet([rule], EOS)
        rules._ask()
        rules.forbid(scores, 0)
        for row, prefix in enumerate(produced.tolist()):
            assert np.flatnonzero(scores[row].numpy() == 0).tolist() == allowed(make(), prefix, own.size)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("match", "(?=a)b", "look-around"),
        ("match", r"(a)\1", "backreferences"),
        ("match", "[a", "unclosed character class"),
        ("match", "a^b", "at the begin and the end"),
        ("match", "(a$|b)", "at the begin and the end"),
        ("grammar", "start: nothing", "unknown name"),
        ("json_schema", '{"type": "nope"}', "Invalid type"),
        ("json_schema", "{", "line 1"),
        ("json_schema", '{"multipleOf": 999999937}', "multipleOf takes memory"),
        ("json_schema", '{"multiple\\u004ff": 999999937}', "multipleOf takes memory"),
        ("json_schema", '{"type": "number", "multipleOf": 1e300}', "multipleOf takes memory"),
        ("json_schema", '{"multipleOf": 1e-300}', "multipleOf takes memory"),
        ("json_schema", '{"allOf": [{"multipleOf": 9973}, {"multipleOf": 99.89}]}', "multipleOf takes memory"),
        ("grammar", 'start: %json {"multipleOf": 999999937}', "inside of %json"),
    ],
)
def test_what_cannot_be_expressed_is_refused(kind: str, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        Format(kind, text, tokenizer("characters").spelling())
    assert "\n" not in str(refused.value)


def test_small_multiples_are_taken() -> None:
    spelling = tokenizer("bytes").spelling()
    required = Format("json_schema", '{"type": "number", "multipleOf": 0.25}', spelling)
    assert required.accepts("1.75") and not required.accepts("1.8")


def test_a_format_that_takes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built elsewhere first: here nothing but a sentence comes of it."""
    monkeypatch.setattr(formats, "MOST_MULTIPLE", 10**12)
    schema, spelling = '{"multipleOf": 999999937}', tokenizer("bytes").spelling()
    for limit, value in (("SECONDS", 1), ("BYTES", 250_000_000)):
        with monkeypatch.context() as less:
            less.setattr(trial, limit, value)
            with pytest.raises(UserError, match=r"takes more than 1\.5 GB of memory or 3 s"):
                Format("json_schema", schema, spelling)
    started: list[str] = []
    monkeypatch.setattr(formats, "can_be_built", lambda kind, text: not started.append(text))
    Format("match", "[a-c]{1,12}", spelling)
    assert not started
    for kind, text in (("match", "a{1,1000}"), ("match", "b|" * 600), ("grammar", 'start: "a"'), ("json_schema", "{}")):
        Format(kind, text, spelling)
    assert len(started) == 4


@pytest.mark.parametrize("pattern", ["(a|aa)+$" * 3, "((a{100}){100}){100}", "(.*a){40}b", "a{1000000}"])
def test_patterns_that_others_choke_on_are_bounded(pattern: str) -> None:
    """The library counts its steps: such a pattern works, or ends in an error, and never hangs."""
    try:
        required = Format("match", pattern, tokenizer("bytes").spelling())
    except UserError:
        return
    rule = FormatRule(required, EOS)
    rule.start([0], np.array([tokenizer("bytes").encode("a" * 30)]))
    rule.bans()


@pytest.mark.parametrize("kind", kinds())
def test_the_fewest_tokens_are_those_of_the_shortest_division(kind: str) -> None:
    own = tokenizer(kind)
    writer, spelling = PhraseWriter(own.spelling()), own.spelling()
    for word in ("hello", "ab", "b", "é b"):
        if own.unknown(word):
            continue
        fewest = writer.fewest_tokens(b" " + word.encode())[0][0]
        level, count = {(b"", 0)}, 0
        while not any(text == b" " + word.encode() for text, _ in level):
            level = {
                (text + added, int(spelling.after[view, token]))
                for text, view in level
                for token, added in enumerate(spelling.spelled[view])
                if added is not None and (b" " + word.encode()).startswith(text + added)
            }
            count += 1
        assert fewest == count, word


def decode(tables: torch.Tensor, config: SearchConfig, limit: int, make: Any = None) -> Any:
    limits = [limit] * len(tables)
    return search(TableDecoder(), tables, len(tables), config, bos=BOS, eos=EOS, limits=limits, further=make)


def random_tables(seed: int, sources: int, own: Tokenizer) -> torch.Tensor:
    tables = 1.5 * torch.randn(sources, 150, own.size, generator=torch.Generator().manual_seed(seed))
    tables[:, :, EOS] += 3
    tables[:, :, :EOS] = -30  # padding, the unknown and the start symbol
    return tables


@pytest.mark.parametrize("config", SEARCHES, ids=str)
@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_required_phrases_occur_and_other_sources_are_left_alone(kind: str, config: SearchConfig, seed: int) -> None:
    """Random distributions, a limit that is barely long enough for the phrases, and a source without any."""
    draw, own = random.Random(seed), tokenizer(kind)
    writer = PhraseWriter(own.spelling())
    words = [word for word in ("ab", "hello", "cd", "é", "b", "ca", "中文") if not own.unknown(word)]
    phrases = {
        source: [
            writer.phrase(Required(tuple(draw.sample(words, draw.randint(1, 2))), draw.randint(1, 2)))
            for _ in range(draw.randint(1, 3))
        ]
        for source in range(2)
    }
    need = max(sum(phrase.full * phrase.times for phrase in own_phrases) for own_phrases in phrases.values())
    limit = need + draw.choice([2, 6, 20])
    tables = random_tables(seed % 1000, 3, own)
    results = decode(tables, config, limit, lambda limits: [RequirePhrases(writer, phrases, limits, EOS)])
    for source in range(2):
        assert results[source].hypotheses
        for hypothesis in results[source].hypotheses:
            text = own.decode(hypothesis.tokens)
            assert all(phrase.is_in(text) for phrase in phrases[source]), text
            total = sum(hypothesis.log_probs)
            assert total / config.penalty(len(hypothesis.tokens)) == pytest.approx(hypothesis.score, abs=1e-4)
    (free,) = decode(tables[2:], config, limit) if not config.sample else [None]
    if free is not None:
        assert [each.tokens for each in results[2].hypotheses] == [each.tokens for each in free.hypotheses]


@pytest.mark.parametrize(("kind", "seed"), [("bytes", 18), ("bytes", 32), ("bytes", 38), ("subwords", 1005)])
def test_tokens_are_kept_for_phrases_that_the_next_character_may_spoil(kind: str, seed: int) -> None:
    """Here two required phrases ended where a letter came next, or the first byte of one."""
    inner = test_required_phrases_occur_and_other_sources_are_left_alone.hypothesis.inner_test  # type: ignore[attr-defined]
    inner(kind, SearchConfig(beam=1), seed)


def test_a_limit_that_is_too_short_leaves_nothing() -> None:
    own = tokenizer("characters")
    writer = PhraseWriter(own.spelling())
    phrases = {0: [writer.phrase(Required(("hello",)))]}
    make = lambda limits: [RequirePhrases(writer, phrases, limits, EOS)]  # noqa: E731
    tables = random_tables(1, 1, own)
    assert decode(tables, SearchConfig(beam=3), 6, make)[0].hypotheses
    assert not decode(tables, SearchConfig(beam=3), 5, make)[0].hypotheses


def test_banks_put_a_phrase_where_the_model_wants_it() -> None:
    """The model writes "a b c" and ends; after "a" it would nearly as soon write " x". The beam finds that place."""
    own = fit(TokenizerConfig(kind="symbols"), ["a b c x"])
    writer = PhraseWriter(own.spelling())
    a, b, c, x = own.encode("a b c x")
    after = {BOS: a, a: b, b: c, c: EOS, x: b}

    class Model(TableDecoder):
        def __call__(self, tokens: Any, state: Any, need_attention: bool = False) -> Any:
            step = super().__call__(tokens, state, need_attention)
            logits = torch.full((*tokens.shape, own.size), -6.0)
            for row, token in enumerate(tokens[:, -1].tolist()):
                logits[row, -1, after.get(token, EOS)] = 6
                logits[row, -1, x] = 5 if token == a else -6
            return type(step)(logits, torch.clone, step.state, step.attention)

    make = lambda limits: [RequirePhrases(writer, {0: [writer.phrase(Required(("x",)))]}, limits, EOS)]  # noqa: E731
    for beam, expected in ((5, "a x b c"), (1, "a b c x")):  # a single path is led there when it wants to end
        config = SearchConfig(beam=beam, normalize="none")
        (result,) = search(Model(), torch.zeros(1, 3, own.size), 1, config, bos=BOS, eos=EOS, limits=[20], further=make)
        assert own.decode(result.best.tokens).startswith(expected), beam
