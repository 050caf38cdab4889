"""Autocast: every preset trains under it, on the CPU too, and learns about what it learns without."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman.config import merge
from dragoman.nn.kernels import full_precision
from dragoman.training.events import Event, Stepped
from dragoman.training.run import train

pytestmark = pytest.mark.usefixtures("needs_bfloat16")

SMALL = {"source": {"embedding": 16}, "training": {"threads": 1, "batch_tokens": 96, "max_updates": 4, "log_every": 1}}
RECURRENT: dict[str, Any] = {
    "encoder": {"width": 16, "layers": 1}, "decoder": {"width": 32, "layers": 1, "embedding": 16},
}  # fmt: skip
EQUAL = merge(RECURRENT, {"encoder": {"width": 32}})  # the encoder's last state is the decoder's first
SIZES: dict[str, dict[str, Any]] = {
    "auto": RECURRENT,
    "sutskever2014": EQUAL,
    "cho2014": RECURRENT,
    "bahdanau2015": RECURRENT,
    "luong2015": EQUAL,
    "gehring2017": {"encoder": {"width": 16, "layers": 2}, "decoder": {"width": 16, "layers": 2, "embedding": 16}},
    "transformer-tiny": {
        "source": {"embedding": 16},
        "encoder": {"width": 16, "feed_forward": 16, "layers": 1},
        "decoder": {"width": 16, "feed_forward": 16, "layers": 1},
    },
    "vaswani2017": {
        "source": {"embedding": 16},
        "encoder": {"width": 16, "feed_forward": 16, "layers": 1},
        "decoder": {"width": 16, "feed_forward": 16, "layers": 1},
    },
    "concat-rnn": {"decoder": {"network": {"width": 16, "layers": 1, "embedding": 16}}},
}


def losses(pairs: Path, out: Path, preset: str, autocast: bool) -> list[float]:
    events: list[Event] = []
    settings = merge(merge(SMALL, SIZES[preset]), {"training": {"autocast": autocast}})
    train(pairs, out=out, preset=None if preset == "auto" else preset, settings=settings, on_event=events.append)
    return [event.loss for event in events if isinstance(event, Stepped)]


@pytest.mark.parametrize("preset", SIZES)
def test_presets_train_under_autocast(tiny_run: Any, tmp_path: Path, preset: str) -> None:
    found = losses(tiny_run.pairs, tmp_path / "half", preset, True)
    wanted = losses(tiny_run.pairs, tmp_path / "full", preset, False)
    assert len(found) == len(wanted) == 4 and all(map(math.isfinite, found))
    assert found == pytest.approx(wanted, rel=0.02)
    assert found != wanted, "nothing was computed in another type of number"


@pytest.mark.parametrize("preset", ["lm-rnn", "lm-transformer"])
def test_language_models_train_under_autocast(tiny_run: Any, tmp_path: Path, preset: str) -> None:
    events: list[Event] = []
    text = tmp_path / "text.txt"
    text.write_text(tiny_run.pairs.read_text(encoding="utf-8").replace("\t", " "), encoding="utf-8")
    settings = merge(SMALL, {"decoder": {"width": 16, "layers": 1}, "training": {"autocast": True}})
    del settings["source"]
    train(text, out=tmp_path / "run", preset=preset, settings=settings, on_event=events.append)
    assert all(math.isfinite(event.loss) for event in events if isinstance(event, Stepped))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_ctc_under_autocast(tmp_path: Path, cell: str) -> None:
    chance = np.random.default_rng(0)
    lines = []
    for row in range(40):
        np.save(tmp_path / f"{row}.npy", chance.normal(size=(20 + row % 5, 6)).astype(np.float32))
        lines.append(f"{row}.npy\t{'abcd'[row % 4]}{'dcba'[row % 4]}\n")
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    events: list[Event] = []
    small = {"encoder": {"width": 16, "layers": 2, "cell": cell}, "decoder": {"width": 16, "layers": 1, "embedding": 8}}
    training = {"training": {"autocast": True, "ctc": 0.3, "max_updates": 3, "log_every": 1, "threads": 1}}
    settings = merge(merge(small, training), {"source": {"kind": "features"}})
    train(tmp_path / "pairs.tsv", out=tmp_path / "run", preset="chan2016", settings=settings, on_event=events.append)
    found = [event.loss for event in events if isinstance(event, Stepped)]
    assert len(found) == 3 and all(map(math.isfinite, found))


def test_full_precision_reaches_all_tensors_and_nothing_else() -> None:
    @full_precision
    def product(x: torch.Tensor, pair: tuple[torch.Tensor, int], *, other: torch.Tensor) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cpu") and pair[1] == 3
        return x @ pair[0] @ other

    x = torch.randn(2, 2)
    plain = product(x, (x, 3), other=x)
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        found = product(x.bfloat16(), (x, 3), other=x)
    assert found.dtype == torch.float32 and torch.allclose(found, plain, atol=0.1)
    assert product(x.double(), (x.double(), 3), other=x.double()).dtype == torch.float64
