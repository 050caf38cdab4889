"""Pictures, sound and several sources in the views: what was looked at, and where its positions lie on it."""

from __future__ import annotations

import asyncio
import math
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL")

from dragoman.errors import UserError
from dragoman.studio import views
from dragoman.studio.answers import Studio
from dragoman.studio.library import Library, Unknown
from dragoman.studio.looking import look
from dragoman.studio.matrices import weights
from dragoman.studio.media import inlined
from dragoman.studio.page import inspected
from dragoman.studio.records import AttentionRequest, PredictRequest
from dragoman.studio.uploads import Uploads
from dragoman.system import System
from dragoman.workflow import train

SHORT: dict[str, Any] = {"training": {"threads": 1, "max_updates": 2, "average": 1}, "decoder": {"width": 16}}


async def pieces(path: Path) -> Any:
    yield path.read_bytes()


def sound(path: Path, pitch: float, seconds: float = 0.3) -> Path:
    samples = [int(9000 * math.sin(2 * math.pi * pitch * index / 8000)) for index in range(int(8000 * seconds))]
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, len(samples), "NONE", ""))
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run on pictures of one colour, and one of the pictures."""
    from PIL import Image

    place = tmp_path_factory.mktemp("pictures")
    lines = []
    for index in range(24):
        colour = ("red", "blue")[index % 2]
        Image.new("RGB", (40 + index, 24), colour).save(place / f"{index}.png")
        lines.append(f"{index}.png\ta {colour} picture\n")
    (place / "list.tsv").write_text("".join(lines), encoding="utf-8")
    train(place / "list.tsv", out=place / "run", settings=SHORT)
    return place / "run", place / "3.png"


def test_a_picture_that_was_dropped_is_looked_at(pictures: tuple[Path, Path]) -> None:
    folder, picture = pictures
    uploads = Uploads()
    studio = Studio(Library([folder], "cpu"), uploads)
    taken = asyncio.run(uploads.take("mine.png", pieces(picture)))
    request = PredictRequest(input=taken.id, n_best=2)
    made = studio.predict("run", request)
    system = System.load(folder, "cpu")
    assert made.outputs[0].text == system(str(picture)) and made.input == {"source": taken.id}
    (axis,) = made.axes
    assert axis.kind == "image" and axis.media is not None and axis.media.url == taken.url
    assert axis.grid is not None and axis.end == axis.grid[0] * axis.grid[1]
    assert (axis.media.width, axis.media.height) == (43, 24)
    stride = system._stride("source")
    assert axis.media.reach == (axis.grid[0] * stride / 24, axis.grid[1] * stride / 43)
    tokens = [token.id for token in made.outputs[0].tokens]
    shown = studio.attention("run", AttentionRequest(input=taken.id, tokens=tokens))
    assert shown.average.columns == axis.end
    np.testing.assert_allclose(weights(shown.average)[0].sum(1), 1, atol=1e-3)
    assert studio.tree("run", request).outputs == [output.text for output in made.outputs]
    for wrong in (str(picture), "upload-nothing"):  # only what was dropped is read, no other file of this machine
        with pytest.raises(Unknown):
            studio.predict("run", PredictRequest(input=wrong))
    broken = asyncio.run(uploads.take("list.png", pieces(picture.parent / "list.tsv")))
    with pytest.raises(UserError):
        studio.predict("run", PredictRequest(input=broken.id))
    uploads.close()


def test_a_picture_in_a_page_is_inside_it(pictures: tuple[Path, Path], tmp_path: Path) -> None:
    assert inlined(str(pictures[1])).startswith("data:image/jpeg;base64,")
    assert inlined(str(sound(tmp_path / "a.wav", 400))).startswith("data:audio/wav;base64,")
    assert inlined(str(sound(tmp_path / "long.wav", 400, 30))) == ""
    assert inlined(str(tmp_path / "none.png")) == ""


def test_sound_has_a_spectrogram(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    lines = [f"{sound(tmp_path / f'{index}.wav', 200 + 50 * index).name}\tlow\n" for index in range(24)]
    (tmp_path / "list.tsv").write_text("".join(lines), encoding="utf-8")
    train(tmp_path / "list.tsv", out=tmp_path / "run", settings=SHORT)
    system = System.load(tmp_path / "run", "cpu")
    made, _ = views.predict(system, str(tmp_path / "5.wav"), PredictRequest(input="x"))
    (axis,) = made.axes
    assert axis.kind == "speech" and axis.seconds is not None and axis.media is not None
    assert axis.media.seconds == pytest.approx(0.3, abs=0.03)
    drawn = axis.media.spectrogram
    assert drawn is not None and drawn.columns == 40 and drawn.rows * 0.01 == pytest.approx(0.3, abs=0.03)
    assert len(axis.labels) * axis.seconds >= axis.media.seconds - 1e-6
    handed_on = inspected(system, str(tmp_path / "5.wav"), PredictRequest(input="x"), "run")
    assert handed_on.prediction.input == {"source": "5.wav"}  # not where it lies on this machine


def test_several_sources_lie_behind_each_other(tmp_path: Path) -> None:
    lines = ["story\tquestion\tanswer\n", *(f"ann {w} bob\twhat{w}\t{w}\n" for w in "abcdefghijklmnopqrstuvwxyz")]
    (tmp_path / "qa.tsv").write_text("".join(lines), encoding="utf-8")
    data = {"data": {"source": ["story", "question"], "target": "answer"}}
    train(tmp_path / "qa.tsv", out=tmp_path / "run", settings=SHORT | data)
    system = System.load(tmp_path / "run", "cpu")
    source = {"story": "ann c bob", "question": "whatc"}
    made, found = views.predict(system, source, PredictRequest(input=source))
    assert made.input == source and [axis.name for axis in made.axes] == ["story", "question"]
    assert made.axes[0].end == made.axes[1].begin and made.axes[1].end == len(found.prediction.labels)
    assert made.outputs[0].attention is not None and made.outputs[0].attention.columns == made.axes[1].end
    assert made.encoder.layers == 0


def test_a_language_model_goes_on_with_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"the cat sees the {w}\n" for w in "abcdefghijklmnopqrst" * 3))
    train(tmp_path / "text.txt", out=tmp_path / "run", preset="lm-rnn", settings={"training": SHORT["training"]})
    system = System.load(tmp_path / "run", "cpu")
    made, found = views.predict(system, "the c", PredictRequest(input="the c"))
    assert made.axes == [] and made.cross.layers == 0 and made.outputs[0].attention is None
    assert made.outputs[0].text == system("the c") and made.outputs[0].tokens[0].forced
    assert views.tree(found, PredictRequest(input="the c")).forced == len(found.prefix) > 0
    look(system, "", PredictRequest(input=""))
