"""A new modality with its frontend, and a new tokeniser: each is one new file, and nothing else is edited."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import parts

MODALITY = '''
"""Numbers, one on each line of a file."""

from pathlib import Path

import numpy as np
from pydantic import Field

from dragoman.config import Section
from dragoman.data.media import MediaError, Probe, check_file
from dragoman.data.modality import Modality, pad_sequences
from dragoman.files import read_json, write_json
from dragoman.types import Axis


class Numbers(Modality):
    is_file = True
    frontend_kind = "digits"
    suffixes = (".numbers",)
    marks = (rb"[0-9]+\\n",)
    file_noun, file_title = "a list of numbers", "Lists of numbers"

    class Config(Section):
        width: int = Field(8, gt=0)
        """Width of the vector of a number."""

    def __init__(self, config, largest):
        self.config, self.largest = config, largest

    @classmethod
    def probe(cls, raw):
        check_file(raw)
        try:
            return Probe(frames=len([int(line) for line in Path(raw).read_text().split()]))
        except ValueError:
            raise MediaError("a line is not a number") from None

    @classmethod
    def measures(cls, probe):
        return {"numbers": probe.frames}

    @classmethod
    def fit(cls, config, raw, name):
        return cls(config, max(int(line) for path in raw for line in Path(path).read_text().split()))

    def array(self, raw):
        self.probe(raw)
        return np.array([[int(line) / self.largest] for line in Path(raw).read_text().split()], dtype=np.float32)

    def length(self, raw):
        return self.probe(raw).frames

    def collate(self, arrays):
        return pad_sequences(arrays)

    def frontend_options(self):
        return {"width": self.config.width}

    def axis(self, array, stride=1):
        return Axis("numbers", tuple(f"{value * self.largest:.0f}" for value in array[::stride, 0]))

    def save(self, folder, name):
        write_json(folder / f"{name}.numbers.json", {"largest": self.largest})
        return [f"{name}.numbers.json"]

    @classmethod
    def load(cls, config, folder, name):
        return cls(config, read_json(folder / f"{name}.numbers.json")["largest"])
'''
FRONTEND = '''
"""A vector for each number, by a linear layer."""

from torch import nn

from dragoman.nn.contracts import Frontend
from dragoman.types import Padded


class DigitsFrontend(Frontend):
    def __init__(self, width):
        super().__init__()
        self.width, self.project = width, nn.Linear(1, width)

    def forward(self, source):
        return Padded(self.project(source.data), source.mask)
'''
TOKENIZER = '''
"""Two characters are one token."""

from collections import Counter

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import UNK, Vocabulary


class Pairs(Tokenizer):
    settings = frozenset({"min_count"})

    @classmethod
    def fit(cls, config, texts):
        seen = Counter(pair for text in texts for pair in cls._split(text))
        return cls(Vocabulary.build(seen, min_count=config.min_count))

    @staticmethod
    def _split(text):
        return [text[at : at + 2] for at in range(0, len(text), 2)]

    def _encode(self, text):
        return [self.vocabulary.id(pair) for pair in self._split(text)]

    def _decode(self, ids):
        return "".join("?" if index == UNK else self.vocabulary.symbol(index) for index in ids)
'''
FILES = {
    ("dragoman.modalities", "numbers"): MODALITY,
    ("dragoman.nn.frontends", "digits"): FRONTEND,
    ("dragoman.data.tokenizers", "pairs"): TOKENIZER,
}
SMALL: dict[str, Any] = {
    "source": {"width": 6},
    "encoder": {"kind": "rnn", "width": 8},
    "decoder": {"width": 16, "embedding": 8},
    "target": {"tokenizer": {"kind": "pairs"}},
    "training": {"threads": 1, "max_updates": 4, "validate_every": 2, "log_every": 1},
}


@pytest.fixture
def extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the new files into folders of their own and append these to the packages' search paths."""
    for (package, kind), text in FILES.items():
        folder = tmp_path / "extensions" / package
        folder.mkdir(parents=True)
        (folder / f"{kind}.py").write_text(text)
        module = importlib.import_module(package)
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
    importlib.invalidate_caches()
    yield tmp_path
    for package, kind in FILES:
        sys.modules.pop(f"{package}.{kind}", None)
        vars(sys.modules[package]).pop(kind, None)


def write_data(folder: Path, rows: int = 40) -> Path:
    chance = random.Random(1)
    lines = []
    for row in range(rows):
        values = [chance.randrange(1, 4) for _ in range(chance.randrange(1, 6))]
        (folder / f"{row}.numbers").write_text("".join(f"{value}\n" for value in values))
        lines.append(f"{row}.numbers\t{''.join('abc'[value - 1] * 2 for value in values)}\n")
    (folder / "data.tsv").write_text("".join(lines))
    return folder / "data.tsv"


def test_new_files_are_a_modality_and_a_tokeniser(extended: Path, call: Any) -> None:
    from dragoman import load, train

    assert "numbers" in parts.kinds("modality") and "digits" in parts.kinds("frontend")
    file = write_data(extended)
    (extended / "data.tsv").write_text(file.read_text() + "broken.numbers\tab\n")
    (extended / "broken.numbers").write_text("1\nno number\n")
    report = "\n".join(call("check", file).lines)
    assert "40 of 41 rows used" in report and "Lists of numbers (source): 40 distinct" in report
    assert "broken.numbers: a line is not a number" in report
    system = train(file, out=extended / "run", settings=SMALL)
    assert type(system.modalities["source"]).__name__ == "Numbers" and type(system.target).__name__ == "Pairs"
    assert type(system.model.frontends["source"]).__name__ == "DigitsFrontend"
    assert {"aa", "bb", "cc"} == set(system.target.vocabulary.symbols)
    paths = [str(extended / f"{row}.numbers") for row in range(3)]
    (first, *_) = expected = system.predict(paths)
    assert first.axes["source"].kind == "numbers" and first.attention is not None
    assert first.attention.shape[-1] == len(first.axes["source"].labels)
    again = load(extended / "run").predict(paths)
    assert [(one.text, one.log_probs) for one in again] == [(one.text, one.log_probs) for one in expected]
    assert call("predict", extended / "run", *paths).lines == [one.text for one in expected]
    assert any("numbers" in line for line in call("parts", "modality").lines)
    assert any("pairs" in line for line in call("parts", "tokenizer").lines)


def test_auto_knows_an_encoder_for_a_new_modality(extended: Path) -> None:
    from dragoman.training.plan import plan

    settled = plan(write_data(extended), settings={"target": {"tokenizer": {"kind": "pairs"}}})
    assert any("numbers of up to about 5 frames, short enough to read each" in reason for reason in settled.reasons)
    assert parts.kind_of(settled.system.recipe.sources["source"].encoder) == "rnn"


def test_what_was_not_added_is_not_there() -> None:
    assert "numbers" not in parts.kinds("modality") and "digits" not in parts.kinds("frontend")
