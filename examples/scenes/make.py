"""Draw small pictures of one or two shapes on a plain ground, and write a caption for each.

    python examples/scenes/make.py            # writes data/ beside this script

The files are the same every time. A caption follows from its picture alone: of two shapes of one size the left or upper
one is named first, otherwise the one that is not small. No caption with two shapes is in two of train, dev and test.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).parent / "data"
SIDE = 48  # pixels
SUPERSAMPLING = 4  # pictures are drawn larger by this factor, for smooth edges
COLOURS = {
    "red": (214, 40, 40),
    "green": (40, 150, 70),
    "blue": (40, 90, 210),
    "yellow": (240, 200, 40),
    "purple": (140, 60, 170),
}
SHAPES = ("circle", "square", "triangle")
SIZES = {"test": 60, "dev": 60, "train": 480}  # train comes last: it avoids the captions of the others
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
        x, y, reach = (SUPERSAMPLING * value for value in (self.x, self.y, self.reach))
        box = (x - reach, y - reach, x + reach, y + reach)
        if self.shape == "circle":
            draw.ellipse(box, fill=COLOURS[self.colour])
        elif self.shape == "square":
            draw.rectangle(box, fill=COLOURS[self.colour])
        else:
            draw.polygon([(x, y - reach), (x + reach, y + reach), (x - reach, y + reach)], fill=COLOURS[self.colour])


def draw_thing(generator: random.Random) -> Thing:
    """Draw a colour, a shape and a size; the place is left open."""
    return Thing(generator.choice(list(COLOURS)), generator.choice(SHAPES), generator.random() < 0.4)


def draw_scene(generator: random.Random) -> list[Thing]:
    """Draw one shape anywhere, or two shapes clearly beside or above each other."""
    first = draw_thing(generator)
    if generator.random() < 0.2:
        x, y = (generator.uniform(first.reach + 1, SIDE - first.reach - 1) for _ in range(2))
        return [Thing(first.colour, first.shape, first.small, x, y)]
    second = draw_thing(generator)
    while (second.colour, second.shape) == (first.colour, first.shape):
        second = draw_thing(generator)
    apart = generator.uniform(first.reach + second.reach + 3, SIDE - first.reach - second.reach - 2)
    start = generator.uniform(first.reach + 1, SIDE - second.reach - 1 - apart)
    beside = max(first.reach, second.reach)
    level = generator.uniform(beside + 4, SIDE - beside - 4)
    along = [(start, level + generator.uniform(-3, 3)), (start + apart, level + generator.uniform(-3, 3))]
    places = along if generator.random() < 0.5 else [(y, x) for x, y in along]
    return [Thing(t.colour, t.shape, t.small, *p) for t, p in zip((first, second), places, strict=True)]


def caption(things: list[Thing]) -> str:
    """Describe one or two shapes and how they lie to each other."""
    if len(things) == 1:
        return things[0].words
    beside = abs(things[0].x - things[1].x) > abs(things[0].y - things[1].y)
    first, second = sorted(things, key=lambda thing: (thing.small, thing.x if beside else thing.y))
    before = first.x < second.x if beside else first.y < second.y
    where = ("left of" if before else "right of") if beside else ("above" if before else "below")
    return f"{first.words} {where} {second.words}"


def render(things: list[Thing], generator: random.Random) -> Image.Image:
    """Draw the shapes on a ground of random colour."""
    picture = Image.new("RGB", (SIDE * SUPERSAMPLING, SIDE * SUPERSAMPLING), generator.choice(GROUNDS))
    draw = ImageDraw.Draw(picture)
    for thing in things:
        thing.draw(draw)
    return picture.resize((SIDE, SIDE), Image.Resampling.BOX).quantize(32, dither=Image.Dither.NONE)


def write(folder: Path, sizes: Mapping[str, int] = SIZES) -> None:
    """Write the pictures and one table of file names and captions for each split."""
    generator = random.Random(7)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    known: set[str] = set()  # captions of the splits already written
    number = 0
    for split, size in sizes.items():
        rows: list[str] = []
        captions: set[str] = set()
        while len(rows) < size:
            things = draw_scene(generator)
            words = caption(things)
            if len(things) == 2 and words in known:
                continue
            captions.add(words)
            name = f"pictures/{number:03d}.png"
            render(things, generator).save(folder / name, optimize=True)
            rows.append(f"{name}\t{words}\n")
            number += 1
        known |= captions
        (folder / f"{split}.tsv").write_text("picture\tcaption\n" + "".join(rows), encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write train.tsv, dev.tsv, test.tsv and their pictures.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    write(parser.parse_args().out)


if __name__ == "__main__":
    main()
