"""The "auto" rule on made-up columns of each sort."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from dragoman.data.tokenizers import choose, choose_together, kinds

Maker = Callable[[random.Random], str]
ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "kr", "st"]
VOWELS, CODAS = ["a", "e", "i", "o", "u", "ai"], ["", "n", "s", "r", "l"]
PHONES = [*"aeiouɔbdfɡklmnpʁstvzʃ", "ɑ̃", "ɛ̃", "aː", "iː", "t͡s", "ŋ͡m", "ɰᵝ"]


def word(rng: random.Random, longest: int = 4) -> str:
    syllables = rng.choices(range(1, longest + 1), [2.0**-i for i in range(longest)])[0]
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(syllables))


LEXICON = sorted({word(random.Random(seed)) for seed in range(8_000)})


def sentence(rng: random.Random, least: int = 4, most: int = 14) -> str:
    # Zipf: a few words everywhere, many words seldom.
    words = [LEXICON[min(len(LEXICON) - 1, int(rng.paretovariate(0.6)))] for _ in range(rng.randint(least, most))]
    return " ".join(words).capitalize() + rng.choice(".!?")


def command(rng: random.Random) -> str:
    def act() -> str:
        return (
            f"{rng.choice(['jump', 'walk', 'run', 'look', 'turn'])} {rng.choice(['left', 'right', 'twice', 'thrice'])}"
        )

    return rng.choice([act(), f"{act()} {rng.choice(['and', 'after'])} {act()}"])


def actions(rng: random.Random) -> str:
    return " ".join(
        rng.choice(["I_JUMP", "I_WALK", "I_RUN", "I_TURN_LEFT", "I_TURN_RIGHT"]) for _ in range(rng.randint(1, 20))
    )


def date(rng: random.Random) -> str:
    day, year = rng.randint(1, 31), rng.randint(1900, 2050)
    month = rng.choice(
        ["January", "February", "March", "April", "May", "June", "July", "enero", "febrero", "août", "Dezember"]
    )
    return rng.choice([f"{day} {month} {year}", f"{month} {day}, {year}", f"the {day}th of {month}, {year}"])


def story(rng: random.Random) -> str:
    people, places = ["Mary", "John", "Sandra", "Daniel"], ["kitchen", "garden", "office", "hallway"]
    facts = [f"{rng.choice(people)} went to the {rng.choice(places)}." for _ in range(rng.randint(2, 6))]
    return " ".join([*facts, f"Where is {rng.choice(people)}?"])


def meaning(rng: random.Random) -> str:
    return (
        f"name[The {rng.choice(['Eagle', 'Mill', 'Vaults'])}], food[{rng.choice(['French', 'fast food'])}], area[city]"
    )


def han(rng: random.Random, length: int) -> str:
    return "".join(chr(0x4E00 + int(rng.paretovariate(0.5)) % 3000) for _ in range(length))


def phones(rng: random.Random) -> str:
    return " ".join(rng.choices(PHONES, k=rng.randint(2, 12)))


def arpabet(rng: random.Random) -> str:
    return " ".join(
        rng.choice(["K", "T", "S", "AE1", "AH0", "IY2", "EH1", "NG", "JH"]) for _ in range(rng.randint(3, 9))
    )


def tags(rng: random.Random) -> str:
    return f"{rng.choice('NV')} {rng.choice(['NOM', 'DAT', 'IND;PST'])} {rng.choice(['SG', 'PL'])} {rng.choice('123')}"


def syllabic(rng: random.Random) -> str:
    """Words of one to three syllables with spaces between them, as Vietnamese writes them."""
    return " ".join(word(rng, 1) for _ in range(rng.choice([1, 1, 2, 2, 2, 3])))


CASES: list[tuple[str, Maker, int, set[str]]] = [
    ("single words", word, 800, {"characters"}),
    ("words in running text, repeated", lambda rng: sentence(rng, 1, 1)[:-1].lower(), 5_000, {"characters"}),
    ("names", lambda rng: " ".join(word(rng).title() for _ in range(rng.randint(1, 3))), 800, {"characters"}),
    ("words with spaces inside", syllabic, 3_000, {"characters"}),
    ("dates", date, 5_000, {"characters"}),
    ("ISO dates", lambda rng: f"{rng.randint(1900, 2050)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}", 5_000,
     {"characters"}),
    ("phones", phones, 3_000, {"symbols"}),
    ("phones, few rows", phones, 100, {"symbols"}),
    ("phones with stress marks", arpabet, 2_000, {"symbols"}),
    ("spaced letters", lambda rng: " ".join(word(rng)), 3_000, {"symbols"}),
    ("spaced Chinese characters", lambda rng: " ".join(han(rng, rng.randint(4, 15))), 5_000, {"symbols"}),
    ("actions", actions, 2_000, {"symbols"}),
    ("tags", tags, 1_000, {"symbols"}),
    ("labels", lambda rng: rng.choice(["entailment", "neutral", "contradiction"]), 500, {"symbols"}),
    ("commands", command, 2_000, {"symbols", "words"}),
    ("stories of a small world", story, 2_000, {"words"}),
    ("meaning representations", meaning, 2_000, {"words"}),
    ("sentences", sentence, 5_000, {"subwords"}),
    ("sentences, few rows", sentence, 300, {"subwords"}),
    ("short sentences", lambda rng: sentence(rng, 4, 7), 5_000, {"subwords"}),
    ("Chinese sentences", lambda rng: han(rng, rng.randint(8, 40)) + "。", 2_000, {"characters", "subwords"}),
    ("Thai-like phrases", lambda rng: " ".join(han(rng, rng.randint(10, 30)) for _ in range(3)), 2_000,
     {"characters", "subwords"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "rows", "expected"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("seed", [1, 2])
def test_choice(name: str, make: Maker, rows: int, expected: set[str], seed: int) -> None:
    rng = random.Random(seed)
    kind, reason = choose([make(rng) for _ in range(rows)], "source")
    assert kind in expected, reason
    assert reason.startswith("source: ") and re.search(rf"\b{kind}\)?, because ", reason)
    assert reason.endswith(".")


@pytest.mark.parametrize("texts", [[], [""], ["  "], ["a"], ["a b"], ["", "x", " "], ["a b c d e f g h"]])
def test_choice_for_next_to_nothing(texts: list[str]) -> None:
    kind, reason = choose(texts, "target")
    assert kind in kinds()
    assert reason.startswith("target: ")


def test_choice_does_not_depend_on_empty_rows() -> None:
    rng = random.Random(3)
    texts = [phones(rng) for _ in range(500)]
    spread = [text for row in texts for text in (row, "")]
    assert choose(texts, "target") == choose(spread, "target")


def test_columns_of_words_have_one_kind_of_tokeniser() -> None:
    """Before, stories got words and their questions, which are short, characters."""
    rng = random.Random(4)
    stories = [story(rng) for _ in range(1000)]
    questions = [f"Where {word(rng)}?" for _ in range(1000)]
    sounds = [phones(rng) for _ in range(1000)]
    alone = {choose(stories, "story")[0], choose(questions, "question")[0]}
    assert len(alone) == 2, "the columns must differ when looked at alone"
    chosen = choose_together({"story": stories, "question": questions, "sound": sounds})
    assert chosen["story"] == chosen["question"] and chosen["sound"] == choose(sounds, "sound")
    assert chosen["story"][1].startswith(f"story and question: {chosen['story'][0]}, because ")
    assert chosen["story"][1].endswith("one kind was chosen for all their texts.")
    assert choose_together({"source": stories}) == {"source": choose(stories, "source")}
    assert choose_together({}) == {}
