"""Sound to text, from recordings on disk to digits: dialled tones are learnt, and attention stands below them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from dragoman.data.reading import read
from dragoman.drawing import draw
from dragoman.workflow import evaluate, train

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "tones"
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


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tones", EXAMPLE / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dialled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Numbers of one and two digits, said in ways that training has not heard."""
    folder, tones, chance = tmp_path_factory.mktemp("tones"), maker(), np.random.default_rng(4)
    numbers = [str(number) for number in range(10)] + [f"{number:02d}" for number in range(100)]
    for side, times in (("train", 3), ("dev", 1)):
        lines = ["sound\tdigits"]
        for index, digits in enumerate(numbers * times):
            name = f"{side}{index}.wav"
            soundfile.write(folder / name, tones.dial(digits, chance, slowness=1.2), tones.RATE)
            lines.append(f"{name}\t{digits}")
        (folder / f"{side}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "train.tsv", folder / "dev.tsv"


def test_tones_are_learnt_and_drawn(dialled: tuple[Path, Path], tmp_path: Path) -> None:
    system = train(dialled[0], dev=dialled[1], out=tmp_path / "run", settings=SETTINGS)
    report = evaluate(system, read(dialled[1], system.recipe.reading).examples, beam=1)
    assert report.scores["exact"].value >= 95, report.to_text()
    sound = str(dialled[1].parent / "dev57.wav")
    prediction = system.predict([sound])[0]
    place, drawn = draw(system, [prediction], tmp_path / "page.png")
    assert isinstance(drawn, bytes) and drawn.startswith(b"\x89PNG") and place.name == "page.png"


def test_the_sample_is_as_its_script_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tones = maker()
    monkeypatch.setattr(tones, "FOLDER", tmp_path)
    tones.main()
    for path in sorted((EXAMPLE / "data").glob("*.tsv")):
        assert path.read_text(encoding="utf-8") == (tmp_path / path.name).read_text(encoding="utf-8")
    for name in ("train-000.flac", "test-029.flac"):
        first, second = (soundfile.read(folder / name)[0] for folder in (EXAMPLE / "data", tmp_path))
        assert len(first) == len(second) and np.abs(first - second).max() < 0.01
