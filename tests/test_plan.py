"""Planning: every stage is a value, nothing is done twice, and no earlier stage changes."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import merge
from dragoman.data.tokenizers import Tokenizer
from dragoman.recipe.schema import spell_out
from dragoman.training import corpus
from dragoman.training.plan import asking, choosing, plan, reading
from dragoman.training.plan.fitting import fit

CHARACTERS = {"kind": "characters"}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {n}\t{n} target{' long' * (n % 7 == 0)}\n" for n in range(100)), encoding="utf-8")
    return path


@pytest.mark.parametrize("ctc", [0.0, 0.3])
def test_every_training_row_is_tokenized_once(
    pairs: Path, tiny_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, ctc: float
) -> None:
    calls: Counter[str] = Counter()
    encode = Tokenizer.encode

    def counted(self: Tokenizer, text: str) -> list[int]:
        calls[text] += 1
        return encode(self, text)

    monkeypatch.setattr(Tokenizer, "encode", counted)
    more = {"source": {"tokenizer": CHARACTERS}, "target": {"tokenizer": CHARACTERS}, "training": {"ctc": ctc}}
    planned = plan(pairs, settings=merge(spell_out(tiny_settings), spell_out(more)))
    data = corpus.training_corpus(planned.system, planned.rows)
    assert len(data.batches(256, seed=1, epoch=0)) > 1
    texts = [text for row in planned.data.train for text in (row.sources["source"], row.target)]
    assert len(texts) > 100 and {calls[text] for text in texts} == {1}


def test_the_recipe_is_made_three_times(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the data is read, before tokenizers are fitted, and when all is known."""
    made: list[str] = []
    for module in (asking, reading, choosing):
        make: Callable[..., Any] = module.make_recipe

        def counted(settings: Any, make: Callable[..., Any] = make, name: str = module.__name__) -> Any:
            made.append(name.rpartition(".")[2])
            return make(settings)

        monkeypatch.setattr(module, "make_recipe", counted)
    plan(pairs)
    assert made == ["asking", "reading", "choosing"]


def test_no_stage_changes_an_earlier_one(pairs: Path, tiny_settings: dict[str, Any]) -> None:
    settings = merge(spell_out(tiny_settings), spell_out({"target": {"tokenizer": CHARACTERS}, "max_tokens": 12}))
    request = asking.ask(None, None, settings)
    read = reading.read(request, pairs, None, None)
    before = copy.deepcopy(read.data)
    fitted = fit(read)
    configs = {name: modality.config for name, modality in fitted.modalities.items()}
    choice = choosing.choose(fitted)
    assert read.data == before and {name: m.config for name, m in fitted.modalities.items()} == configs
    assert len(choice.data.train) == len(choice.rows.targets) < len(fitted.rows.targets) == len(before.train)
    dropped = choice.data.audits["train"].count("too_many_tokens")
    assert dropped == len(before.train) - len(choice.data.train) and not before.audits["train"].count("too_many_tokens")
    assert all(modality is not fitted.modalities[name] for name, modality in choice.modalities.items())
    with pytest.raises(FrozenInstanceError):
        choice.recipe = choice.recipe  # type: ignore[misc]
