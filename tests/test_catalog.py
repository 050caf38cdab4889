"""``dragoman parts``: all that a config can name, read off the code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman import parts
from dragoman.data import tokenizers
from dragoman.recipe import catalog
from dragoman.recipe.layers import preset_names
from dragoman.recipe.schema import make_recipe

EVERY = catalog.entries()


def test_every_kind_and_every_preset_is_listed() -> None:
    listed = {(entry.family, entry.kind) for entry in EVERY}
    wanted = {(family, kind) for family in parts.FAMILIES if family != "frontend" for kind in parts.kinds(family)}
    wanted |= {("tokenizer", kind) for kind in tokenizers.kinds()}
    wanted |= {("settings", name) for name in catalog.TABLES}
    wanted |= {("preset", name) for name in preset_names()}
    assert listed == wanted and len(EVERY) == len(listed)
    for entry in EVERY:
        assert entry.about and not entry.about.endswith(".")
        if entry.family in ("encoder", "decoder", "attention", "preset"):
            assert entry.reference and any(character.isdigit() for character in entry.reference)


@pytest.mark.parametrize("entry", [entry for entry in EVERY if entry.family in parts.FAMILIES], ids=lambda e: e.kind)
def test_options_and_defaults_are_the_configs_own(entry: catalog.Entry) -> None:
    config = parts.part(entry.family, entry.kind).Config
    assert [option.name for option in entry.options] == list(config.model_fields)
    again = config(**{option.name: option.default for option in entry.options if option.name != "tokenizer"})
    assert again == config()
    assert all(option.type for option in entry.options)


def test_no_setting_is_left_out() -> None:
    """Every key that a recipe has stands in some entry, or is the table that an entry is about."""
    plain = make_recipe({}).dump()
    listed = {entry.kind: {option.name for option in entry.options} for entry in EVERY if entry.family == "settings"}
    for name, table in plain.items():
        if isinstance(table, dict) and name in listed:
            inner = {key.partition(".")[2] for key in listed if key.startswith(f"{name}.")}
            parts = {entry.family for entry in EVERY} & {*table}  # as target.tokenizer, which has its own entries
            assert set(table) == listed[name] | inner | parts, name
        else:
            others = (
                "preset",
                "reference",
                "sources",
                "target",
                "decoder",
            )  # options of parts, and what an option says
            assert name in listed["top"] or name in others, name
    assert listed["init"] == {"encoder", "decoder", "sources", "tokenizers", "target_tokenizer"}


def test_what_a_person_reads(call: Any) -> None:
    everything = call("parts")
    assert everything.code == 0 and everything.err == ""
    assert max(len(line) for line in everything.lines) <= 100
    for text in (
        "ENCODER",
        "DECODER",
        "ATTENTION",
        "MODALITY",
        "TOKENIZER",
        "SETTINGS",
        "PRESET",
        "bahdanau2015",
        "scaled_dot",
    ):
        assert any(text in line for line in everything.lines)
    rnn = "\n".join(call("parts", "decoder.rnn").lines)
    for said in (
        "before | after", "= lstm", "tanh | relu | gru | lstm", "whole number > 0", ">= 0 and < 1", "Luong et al. 2015",
        'With timing = "after", the last output vector enters the cell', "additive | bilinear",
    ):  # fmt: skip
        assert said in " ".join(rnn.split())
    assert "conv" not in rnn and "ENCODER" not in rnn
    assert len(call("parts", "attention").lines) < len(everything.lines)
    assert 'reference = "Luong, Pham and Manning 2015"' in call("parts", "preset.luong2015").lines


def test_as_json(call: Any) -> None:
    plain = json.loads(call("parts", "--json").out)
    assert list(plain) == ["encoder", "decoder", "attention", "modality", "tokenizer", "settings", "preset"]
    assert plain["encoder"]["rnn"]["options"]["direction"] == {
        "type": "forward | backward | both", "default": "both", "note": "",
    }  # fmt: skip
    assert plain["preset"]["vaswani2017"]["settings"]["decoder"]["heads"] == 8
    assert json.loads(call("parts", "attention.dot", "--json").out) == {"attention": {"dot": plain["attention"]["dot"]}}


def test_a_family_may_be_named_in_the_plural(call: Any) -> None:
    assert call("parts", "presets").out == call("parts", "preset").out != b""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rnn", "did you mean encoder.rnn or decoder.rnn?"),
        ("decodes", "did you mean 'decoder'"),
        ("decoder.rrn", "did you mean 'decoder.rnn'"),
        ("luong2015", "did you mean preset.luong2015?"),
        ("", "no such part"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(call: Any, name: str, says: str) -> None:
    answer = call("parts", name)
    assert answer.code == 2 and says in answer.err and answer.err.count("\n") == 1


@pytest.mark.parametrize("verb", [[], ["train"], ["predict"], ["check"]])
def test_help_names_values_in_words(call: Any, verb: list[str]) -> None:
    """Before, every flag seemed to take a value: ``--quiet <bool>``."""
    options = call(*verb, "--help").out.decode().partition("Options")[2]
    assert options and not any(word in options for word in ("<bool>", "<str>", "<list", "<int", "<float", "<path>"))
