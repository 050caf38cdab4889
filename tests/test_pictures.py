"""The alignment picture: well-formed for any text, one cell a weight."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.drawing.alignment import alignment_svg, colour, visible, visible_text

SVG = "{http://www.w3.org/2000/svg}"
TOKENS = st.lists(st.text(max_size=4), max_size=5)


def named(picture: str, name: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(picture).iter() if element.get("class") == name]


@settings(deadline=None, max_examples=150)
@given(TOKENS, TOKENS, st.text(max_size=8))
def test_any_text_gives_a_well_formed_picture_with_every_cell(source: list[str], target: list[str], title: str) -> None:
    generator = np.random.default_rng(len(source))
    picture = alignment_svg(source, target, generator.random((len(target), len(source))), title)
    assert len(named(picture, "cell")) == len(source) * len(target)
    for side, tokens in (("source", source), ("target", target)):
        for label, token in zip(named(picture, side), tokens, strict=True):
            text = label.text or ""
            wanted = visible(token)
            if " " in token.strip():  # a sentence keeps its spaces
                wanted = visible_text(token)
            assert text == wanted or (text[-1] == "…" and wanted.startswith(text[:-1]))
    picture.encode("utf-8")


def test_every_code_point_can_be_drawn() -> None:
    for start in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, range(start, start + 0x1000)))
        ElementTree.fromstring(f"<x>{visible(text).translate({38: None, 60: None})}</x>")


def test_cells_stand_where_their_tokens_stand_and_tell_their_weight() -> None:
    weights = np.array([[0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])
    picture = alignment_svg(["a", "b", "c"], ["x", "<y>"], weights, "a & b")
    cells = named(picture, "cell")
    assert [cell.find(f"{SVG}title").text for cell in cells][:3] == ["x ← a: 0.000", "x ← b: 1.000", "x ← c: 0.000"]  # type: ignore[union-attr]
    assert cells[1].get("fill") == colour(1.0)
    assert cells[0].get("x") == cells[3].get("x")
    assert cells[0].get("y") == cells[1].get("y") != cells[3].get("y")
    half = float(cells[0].get("width", 0)) / 2
    for cell, label in zip(cells[:3], named(picture, "source"), strict=True):
        assert float(cell.get("x", 0)) + half == pytest.approx(float(label.get("x", 0)), abs=0.2)


def test_everything_lies_inside_the_picture() -> None:
    source, target = ["Donnerstag", "漢字漢字漢字", "x" * 80], ["a", "y" * 80]
    picture = alignment_svg(
        source, target, np.full((2, 3), 0.5), "a title that is rather longer than the table is wide"
    )
    root = ElementTree.fromstring(picture)
    for element in root.iter(f"{SVG}rect"):
        assert 0 <= float(element.get("x", 0)) <= float(root.get("width", 0)) - float(element.get("width", 0)) + 0.5
        assert 0 <= float(element.get("y", 0)) <= float(root.get("height", 0)) - float(element.get("height", 0)) + 0.5


def test_lightness_falls_as_the_weight_grows() -> None:
    def lightness(weight: float) -> float:
        red, green, blue = (int(colour(weight)[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    scale = [lightness(step / 50) for step in range(51)]
    assert all(before > after for before, after in pairwise(scale))
    assert colour(-1) == colour(0) == "#ffffff"
    assert colour(2) == colour(1)


def test_what_leaves_no_mark_is_made_visible() -> None:
    assert visible(" ") == "␣"
    assert visible("\t\n\x00") == "␉␊␀"
    assert visible("\u200b") == "⟨200B⟩"
    assert visible("\u0301") == "\u25cc\u0301"
    assert visible("") == "∅"
    assert visible("é漢🙂") == "é漢🙂"


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="2 target and 2 source"):
        alignment_svg(["a", "b"], ["x", "y"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="finite"):
        alignment_svg(["a"], ["x"], [[float("nan")]])


def test_a_label_of_several_words_keeps_its_spaces_and_more_of_its_length() -> None:
    sentence = "John journeyed to the kitchen ."
    drawn = alignment_svg([sentence, " ", "x" * 40], ["kitchen"], [[0.5, 0.25, 0.25]])
    assert f">{sentence}</text>" in drawn
    assert f"kitchen ← {sentence}: 0.500" in drawn
    assert ">␣</text>" in drawn
    assert ">" + "x" * 23 + "…</text>" in drawn
