"""Sound to text, from recordings on disk to digits: dialled tones are learnt, and attention stands below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from dragoman.config import merge
from dragoman.data.reading.read import read
from dragoman.drawing.attention import draw
from dragoman.evaluation.evaluate import evaluate
from dragoman.inference.system import System
from dragoman.modalities.speech import Speech
from dragoman.training.run import train

if TYPE_CHECKING:
    from conftest import ExampleData

SETTINGS: dict[str, Any] = {
    "target": {"tokenizer": {"kind": "characters"}},
    "source": {"kind": "speech", "normalise": "global", "hop": 0.02, "window": 0.04},
    "encoder": {"kind": "pyramid", "cell": "gru", "width": 24, "layers": 2},
    "decoder": {
        "kind": "rnn", "cell": "gru", "width": 48, "embedding": 24, "tie_embeddings": False,
        "attention": {"kind": "location", "kernel": 5, "filters": 4},
    },
    "training": {
        "threads": 1, "loaders": 0, "batch_tokens": 384, "max_updates": 140, "max_epochs": None, "validate_every": 140,
        "average": 1, "ctc": 0.3, "label_smoothing": 0.0,
        "optim": {"learning_rate": 1e-2, "schedule": "cosine", "warmup": 20},
    },
    "search": {"beam": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def dialled(example_data: Callable[[str], ExampleData], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Record numbers of one and two digits; dev has the same numbers as train in other recordings."""
    folder, tones = tmp_path_factory.mktemp("dialled"), example_data("tones").script
    generator = np.random.default_rng(4)
    numbers = [str(number) for number in range(10)] + [f"{number:02d}" for number in range(100)]
    for side, times in (("train", 3), ("dev", 1)):
        lines = ["sound\tdigits"]
        for index, digits in enumerate(numbers * times):
            name = f"{side}{index}.wav"
            soundfile.write(folder / name, tones.dial(digits, generator, slowness=1.2), tones.RATE)
            lines.append(f"{name}\t{digits}")
        (folder / f"{side}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "train.tsv", folder / "dev.tsv"


@pytest.fixture(scope="module")
def system(dialled: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> System:
    return train(dialled[0], dev=dialled[1], out=tmp_path_factory.mktemp("tones") / "run", settings=SETTINGS)


def test_tones_are_learnt_and_drawn(system: System, dialled: tuple[Path, Path], tmp_path: Path) -> None:
    report = evaluate(system, read(dialled[1], system.recipe.reading).examples, beam=1)
    assert report.scores["exact"].value >= 95, report.to_text()
    sound = str(dialled[1].parent / "dev57.wav")
    prediction = system.predict([sound], keep_arrays=True)[0]
    place, drawn = draw([system.view_attention(prediction)], tmp_path / "page.png")
    assert isinstance(drawn, bytes) and drawn.startswith(b"\x89PNG") and place.name == "page.png"


def test_each_digit_is_heard_inside_its_tone(
    system: System, example_data: Callable[[str], ExampleData], tmp_path: Path
) -> None:
    tones = example_data("tones").script
    assert system.engine.has_ctc
    generator, files, times = np.random.default_rng(8), [], []
    for number in range(60):
        sound, heard = tones.dial_timed(f"{number + 20:02d}", generator, slowness=1.2)
        files.append(str(tmp_path / f"{number + 20:02d}.wav"))
        times.append(heard)
        soundfile.write(files[-1], sound, tones.RATE)
    inside, digits = 0, 0
    for file, heard, prediction in zip(files, times, system.predict(files, alignments=True), strict=True):
        found = prediction.timings
        assert (found.made_from, found.unit) == ("ctc", "character") and found.duration > 0.2
        if prediction.text != Path(file).stem:
            continue
        for unit, (begin, end) in zip(found.units, heard, strict=True):
            digits += 1
            inside += begin <= (unit.begin + unit.end) / 2 <= end
    assert digits >= 100 and inside >= 0.98 * digits


def test_validations_decode_each_dev_file_once(
    dialled: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    array = Speech.array

    def counted(self: Speech, raw: str) -> np.ndarray:
        reads[Path(raw).name] += 1
        return array(self, raw)

    monkeypatch.setattr(Speech, "array", counted)
    limits = {"training": {"max_updates": 6, "validate_every": 2, "loaders": 0}}
    train(dialled[0], dev=dialled[1], out=tmp_path / "run", settings=merge(SETTINGS, limits))
    names = [line.split("\t")[0] for line in dialled[1].read_text(encoding="utf-8").splitlines()[1:]]
    assert len(names) > 20
    assert {name: reads[name] for name in names} == dict.fromkeys(names, 1)  # three validations and the evaluation
