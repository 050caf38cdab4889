"""Draws the scenes of this folder: one or two shapes on a plain ground, and what is to be seen in words.

    python examples/scenes/make.py

The same every time. A caption follows from its picture alone: of two shapes of one size the left or upper one is named
first, otherwise the one that is not small. No caption of dev or test with two shapes stands in train.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).parent / "data"
SIDE = 48
FINER = 4  # drawn so many times larger, for smooth edges
COLOURS = {
    "red": (214, 40, 40),
    "green": (40, 150, 70),
    "blue": (40, 90, 210),
    "yellow": (240, 200, 40),
    "purple": (140, 60, 170),
}
SHAPES = ("circle", "square", "triangle")
SIDES = {"train": 480, "dev": 60, "test": 60}
GROUNDS = ((236, 236, 232), (214, 220, 226), (250, 246, 236), (70, 74, 80))


@dataclass(frozen=True)
class Thing:
    colour: str
    shape: str
    small: bool
    x: float = 0.0
    y: float = 0.0

    @property
    def reach(self) -> float:
        return 5.0 if self.small else 9.0

    @property
    def words(self) -> str:
        return f"a {'small ' if self.small else ''}{self.colour} {self.shape}"

    def draw(self, draw: ImageDraw.ImageDraw) -> None:
        x, y, reach = (FINER * value for value in (self.x, self.y, self.reach))
        box = (x - reach, y - reach, x + reach, y + reach)
        if self.shape == "circle":
            draw.ellipse(box, fill=COLOURS[self.colour])
        elif self.shape == "square":
            draw.rectangle(box, fill=COLOURS[self.colour])
        else:
            draw.polygon([(x, y - reach), (x + reach, y + reach), (x - reach, y + reach)], fill=COLOURS[self.colour])


def any_thing(chance: random.Random) -> Thing:
    return Thing(chance.choice(list(COLOURS)), chance.choice(SHAPES), chance.random() < 0.4)


def placed(chance: random.Random) -> list[Thing]:
    """One thing anywhere, or two clearly beside or above each other."""
    first = any_thing(chance)
    if chance.random() < 0.2:
        x, y = (chance.uniform(first.reach + 1, SIDE - first.reach - 1) for _ in range(2))
        return [Thing(first.colour, first.shape, first.small, x, y)]
    second = any_thing(chance)
    while (second.colour, second.shape) == (first.colour, first.shape):
        second = any_thing(chance)
    apart = chance.uniform(first.reach + second.reach + 3, SIDE - first.reach - second.reach - 2)
    start = chance.uniform(first.reach + 1, SIDE - second.reach - 1 - apart)
    beside = max(first.reach, second.reach)
    level = chance.uniform(beside + 4, SIDE - beside - 4)
    along = [(start, level + chance.uniform(-3, 3)), (start + apart, level + chance.uniform(-3, 3))]
    places = along if chance.random() < 0.5 else [(y, x) for x, y in along]
    return [Thing(t.colour, t.shape, t.small, *p) for t, p in zip((first, second), places, strict=True)]


def caption(things: list[Thing]) -> str:
    if len(things) == 1:
        return things[0].words
    beside = abs(things[0].x - things[1].x) > abs(things[0].y - things[1].y)
    first, second = sorted(things, key=lambda thing: (thing.small, thing.x if beside else thing.y))
    before = first.x < second.x if beside else first.y < second.y
    where = ("left of" if before else "right of") if beside else ("above" if before else "below")
    return f"{first.words} {where} {second.words}"


def drawn(things: list[Thing], chance: random.Random) -> Image.Image:
    picture = Image.new("RGB", (SIDE * FINER, SIDE * FINER), chance.choice(GROUNDS))
    draw = ImageDraw.Draw(picture)
    for thing in things:
        thing.draw(draw)
    return picture.resize((SIDE, SIDE), Image.Resampling.BOX).quantize(32, dither=Image.Dither.NONE)


def main() -> None:
    chance = random.Random(7)
    (FOLDER / "pictures").mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    number = 0
    for side in ("test", "dev", "train"):  # train last: it keeps clear of the others' captions
        rows = []
        own: set[str] = set()
        while len(rows) < SIDES[side]:
            things = placed(chance)
            words = caption(things)
            if len(things) == 2 and words in taken:
                continue
            own.add(words)
            name = f"pictures/{number:03d}.png"
            drawn(things, chance).save(FOLDER / name, optimize=True)
            rows.append(f"{name}\t{words}\n")
            number += 1
        taken |= own
        (FOLDER / f"{side}.tsv").write_text("picture\tcaption\n" + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
