"""Pictures, sound and several sources in the views, and where their positions lie."""

from __future__ import annotations

import json
import math
import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL")

from dragoman.errors import UserError
from dragoman.inference.system import System
from dragoman.studio import page
from dragoman.studio.endpoints import Studio
from dragoman.studio.inspection import inspect
from dragoman.studio.library import Library, NotFound
from dragoman.studio.page import describe_input, report_page
from dragoman.studio.records import (
    AttentionRequest,
    CompareRequest,
    FileRequest,
    MapRequest,
    NeighboursRequest,
    Page,
    PredictRequest,
    Setting,
    Settings,
)
from dragoman.studio.uploads import Uploads
from dragoman.studio.views.matrices import unpack_weights
from dragoman.studio.views.media import make_data_url
from dragoman.studio.views.prediction import describe_prediction
from dragoman.studio.views.tree import describe_tree
from dragoman.training.run import train

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


def test_a_picture_that_was_dropped_is_looked_at(pictures: tuple[Path, Path], run_async: Callable[..., Any]) -> None:
    folder, picture = pictures
    uploads = Uploads()
    studio = Studio(Library([folder], "cpu"), uploads)
    upload = run_async(uploads.store("mine.png", pieces(picture)))
    request = PredictRequest(input=upload.id, n_best=2)
    prediction = studio.predict("run", request)
    system = System.load(folder, "cpu")
    assert prediction.outputs[0].text == system(str(picture)) and prediction.input == {"source": upload.id}
    (axis,) = prediction.axes
    assert axis.kind == "image" and axis.media is not None and axis.media.url == upload.url
    assert axis.grid is not None and axis.end == axis.grid[0] * axis.grid[1]
    assert (axis.media.width, axis.media.height) == (43, 24)
    stride = system.strides["source"]
    assert axis.media.reach == (axis.grid[0] * stride / 24, axis.grid[1] * stride / 43)
    tokens = [token.id for token in prediction.outputs[0].tokens]
    shown = studio.attention("run", AttentionRequest(input=upload.id, tokens=tokens))
    assert shown.average.columns == axis.end
    np.testing.assert_allclose(unpack_weights(shown.average)[0].sum(1), 1, atol=1e-3)
    assert studio.tree("run", request).outputs == [output.text for output in prediction.outputs]
    for wrong in (str(picture), "upload-nothing"):  # only what was dropped is read, no other file of this machine
        with pytest.raises(NotFound):
            studio.predict("run", PredictRequest(input=wrong))
    broken = run_async(uploads.store("list.png", pieces(picture.parent / "list.tsv")))
    with pytest.raises(UserError):
        studio.predict("run", PredictRequest(input=broken.id))
    uploads.close()


def test_rows_of_pictures_have_pictures_and_no_paths(pictures: tuple[Path, Path]) -> None:
    folder, picture = pictures
    uploads = Uploads()
    studio = Studio(Library([folder, folder], "cpu"), uploads)
    table = str(picture.parent / "list.tsv")
    errors = studio.errors("run", FileRequest(file=table))
    compared = studio.compare(CompareRequest(a="run", b="run-2", file=table))
    drawn = studio.map("run", MapRequest(file=table, n=10))
    near = studio.neighbours("run", NeighboursRequest(input=drawn.points[0].files["source"].id, file=table, n=10))
    offered = studio.examples("run")
    for record in (errors, compared, drawn, near, *offered):
        assert str(picture.parent) not in record.model_dump_json()
    row = next(row for row in errors.rows if row.source["source"] == "3.png")
    file = row.files["source"]
    assert uploads.get(file.id).path == picture and file.kind == "image" and uploads.get(file.id).record.url == file.url
    assert studio.predict("run", PredictRequest(input=file.id)).outputs[0].text == row.output
    assert near.neighbours[0].index == 0 and near.neighbours[0].files["source"].id == drawn.points[0].files["source"].id
    assert drawn.points[0].source_length is None  # the length of a path says nothing about a picture
    assert offered and offered[0].files["source"].url
    for path in (picture.parent / "list.tsv", picture.parent / "gone.png"):  # a table cannot name just any file
        assert uploads.link(str(path), "image").id == uploads.link(str(path), "image").url == ""
    uploads.close()


def test_a_report_on_pictures_shows_them_and_no_path(pictures: tuple[Path, Path]) -> None:
    folder, picture = pictures
    html = report_page(folder, System.load(folder, "cpu"))
    assert str(picture.parent) not in html and str(picture.parent.parent) not in html
    data = Page(**json.loads(html.split("window.__DATA__=")[1].split("</script>")[0]))
    assert data.errors is not None and data.errors.rows[0].source["source"].endswith(".png")
    assert data.errors.rows[0].files["source"].url.startswith("data:image/jpeg;base64,")
    assert data.errors.rows[0].files["source"].id == ""


def test_folders_are_removed_from_every_text_of_a_page(
    pictures: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, picture = pictures
    named = Settings(run="run", settings=[Setting(path="data.root", value=f'"{picture.parent}/pictures"')])
    monkeypatch.setattr(page, "describe_settings", lambda *_: named)  # a setting may name a folder
    html = page.inspect_page(System.load(folder, "cpu"), folder, [str(picture)])
    assert str(picture.parent) not in html and "3.png" in html
    data = Page(**json.loads(html.split("window.__DATA__=")[1].split("</script>")[0]))
    assert data.settings is not None and data.settings.settings[0].value == '"pictures"'


def test_a_picture_in_a_page_is_inside_it(pictures: tuple[Path, Path], tmp_path: Path) -> None:
    assert make_data_url(str(pictures[1])).startswith("data:image/jpeg;base64,")
    assert make_data_url(str(sound(tmp_path / "a.wav", 400))).startswith("data:audio/wav;base64,")
    assert make_data_url(str(sound(tmp_path / "long.wav", 400, 30))) == ""
    assert make_data_url(str(tmp_path / "none.png")) == ""


def test_sound_has_a_spectrogram(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    lines = [f"{sound(tmp_path / f'{index}.wav', 200 + 50 * index).name}\tlow\n" for index in range(24)]
    (tmp_path / "list.tsv").write_text("".join(lines), encoding="utf-8")
    train(tmp_path / "list.tsv", out=tmp_path / "run", settings=SHORT)
    system = System.load(tmp_path / "run", "cpu")
    request = PredictRequest(input="x")
    prediction = describe_prediction(inspect(system, str(tmp_path / "5.wav"), request), request)
    (axis,) = prediction.axes
    assert axis.kind == "speech" and axis.seconds is not None and axis.media is not None
    assert axis.media.seconds == pytest.approx(0.3, abs=0.03)
    drawn = axis.media.spectrogram
    assert drawn is not None and drawn.columns == 40 and drawn.rows * 0.01 == pytest.approx(0.3, abs=0.03)
    assert len(axis.labels) * axis.seconds >= axis.media.seconds - 1e-6
    inspected = describe_input(system, str(tmp_path / "5.wav"), PredictRequest(input="x"), "run")
    assert inspected.prediction.input == {"source": "5.wav"}  # not where it lies on this machine


def test_several_sources_lie_behind_each_other(tmp_path: Path) -> None:
    lines = ["story\tquestion\tanswer\n", *(f"ann {w} bob\twhat{w}\t{w}\n" for w in "abcdefghijklmnopqrstuvwxyz")]
    (tmp_path / "qa.tsv").write_text("".join(lines), encoding="utf-8")
    data = {"data": {"source": ["story", "question"], "target": "answer"}}
    train(tmp_path / "qa.tsv", out=tmp_path / "run", settings=SHORT | data)
    system = System.load(tmp_path / "run", "cpu")
    source = {"story": "ann c bob", "question": "whatc"}
    request = PredictRequest(input=source)
    inspection = inspect(system, source, request)
    prediction = describe_prediction(inspection, request)
    assert prediction.input == source and [axis.name for axis in prediction.axes] == ["story", "question"]
    assert prediction.axes[0].end == prediction.axes[1].begin and prediction.axes[1].end == len(
        inspection.prediction.labels
    )
    assert (
        prediction.outputs[0].attention is not None
        and prediction.outputs[0].attention.columns == prediction.axes[1].end
    )
    assert prediction.encoder.layers == 0


def test_a_language_model_goes_on_with_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"the cat sees the {w}\n" for w in "abcdefghijklmnopqrst" * 3))
    train(tmp_path / "text.txt", out=tmp_path / "run", preset="lm-rnn", settings={"training": SHORT["training"]})
    system = System.load(tmp_path / "run", "cpu")
    request = PredictRequest(input="the c")
    inspection = inspect(system, "the c", request)
    prediction = describe_prediction(inspection, request)
    assert prediction.axes == [] and prediction.cross.layers == 0 and prediction.outputs[0].attention is None
    assert prediction.outputs[0].text == system("the c") and prediction.outputs[0].tokens[0].forced
    assert describe_tree(inspection, request).forced == len(inspection.prefix) > 0
    inspect(system, "", PredictRequest(input=""))
