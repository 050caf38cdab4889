"""Hallucinated rows (Anastasopoulos & Neubig 2019, "Pushing the Limits of Low-Resource Morphological Inflection").

What source and target of a row share is taken for the stem. Its letters are replaced by random ones,
the same on both sides: what a model can then learn from the row is what happens around the stem, and
that the stem is copied. The paper aligns letters with a model of its own; here the aligned stems are
the longest common substrings, in order, as ``difflib`` finds them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher

from dragoman.data.augment.spelling import Spelling, is_tag

SHORTEST_STEM = 3  # units; shorter ones are often endings that happen to be alike (section 3.1 of the paper)
TRIES = 20  # rows tried for each one made, before giving up


def find_stems(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return where source and target are the same: (place in the source, in the target, length), in order."""
    letters = [f"{unit}\0" if is_tag(unit) else unit for unit in source]  # a tag is like nothing in the target
    blocks = SequenceMatcher(None, letters, target, autojunk=False).get_matching_blocks()
    return [(block.a, block.b, block.size) for block in blocks if block.size >= SHORTEST_STEM]


def hallucinate(
    pairs: Sequence[tuple[str, str]],
    spellings: tuple[Spelling, Spelling],
    count: int,
    seed: int,
    taken: Collection[str] = (),
) -> Iterator[tuple[int, str, str]]:
    """Yield up to ``count`` made-up rows: the number of the row each is made of, its source and its target.

    No source is made twice, and none that is ``taken``. The same arguments give the same rows.
    """
    generator = random.Random(f"dragoman hallucinate {seed}")
    divided = [(spellings[0].units(source), spellings[1].units(target)) for source, target in pairs]
    usable = [(number, find_stems(*units)) for number, units in enumerate(divided)]
    usable = [(number, stems) for number, stems in usable if stems]
    shared = {unit for source, _ in divided for unit in source} & {unit for _, target in divided for unit in target}
    letters = sorted(unit for unit in shared if unit.isalpha())
    alphabets = {upper: [unit for unit in letters if unit.isupper() == upper] for upper in (False, True)}
    if not usable or len(letters) < 2:
        return
    known = set(taken)
    made = 0
    for _ in range(TRIES * count):
        if made == count:
            return
        number, stems = generator.choice(usable)
        source, target = list(divided[number][0]), list(divided[number][1])
        for begin, place, size in stems:
            for offset in range(size):
                letter = source[begin + offset]
                if letter.isalpha():  # a capital stays one
                    source[begin + offset] = target[place + offset] = generator.choice(alphabets[letter.isupper()])
        text = spellings[0].join(source)
        if text not in known:
            known.add(text)
            made += 1
            yield number, text, spellings[1].join(target)
