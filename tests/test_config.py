"""Settings: what is wrong is said with its full path and the nearest right key; what is right survives a round trip."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import ConfigError, merge, parse_overrides
from dragoman.data.options import DataConfig
from dragoman.errors import UserError
from dragoman.parts import kinds
from dragoman.recipe.layers import gather_settings, preset_names
from dragoman.recipe.schema import Recipe, known_settings, make_reading, make_recipe
from dragoman.recipe.suggestions import SYNONYMS
from dragoman.recipe.training import OptimConfig, TrainingConfig
from dragoman.search.options import SearchConfig
from dragoman.training.plan import plan


def complaint(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        make_recipe(gather_settings(overrides=overrides))
    assert "Traceback" not in str(caught.value) and "pydantic" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "path", "hint"),
    [
        ("dta.format=tsv", "dta", "data"),
        ("encodr.width=3", "encodr", "encoder"),
        ("shar_vocabulary=true", "shar_vocabulary", "share_vocabulary"),
        ("data.formt=tsv", "data.formt", "format"),
        ("training.max_epoch=3", "training.max_epoch", "max_epochs"),
        ("training.optim.learning_rte=1", "training.optim.learning_rte", "learning_rate"),
        ("decoder.widht=3", "decoder.widht", "width"),
        ("decoder={kid='rnn'}", "decoder.kid", "kind"),
        ("decoder.attention={kind='additive', widht=2}", "decoder.attention.widht", "width"),
        ("sources.source.encoder.layer=3", "sources.source.encoder.layer", "layers"),
        ("sources.source.encder.layers=3", "sources.source.encder", "encoder"),
        ("sources.other.modality.embeding=3", "sources.other.modality.embeding", "embedding"),
        ("encoder.direktion=both", "sources.source.encoder.direktion", "direction"),
        ("source.tokenizer.min_cont=2", "sources.source.modality.tokenizer.min_cont", "min_count"),
        ("target.tokenizer.siz=30", "target.tokenizer.siz", "size"),
        ("search.n_bst=3", "search.n_bst", "n_best"),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_the_nearest_key(override: str, path: str, hint: str) -> None:
    assert f"unknown key {path!r}; did you mean {hint!r}?" in complaint(override)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("lr=1", "'training.optim.learning_rate'"),
        ("training.lr=1", "'training.optim.learning_rate'"),
        ("training.learning_rate=1", "'training.optim.learning_rate'"),
        ("epochs=3", "'training.max_epochs'"),
        ("training.epochs=3", "'training.max_epochs'"),
        ("batch=3", "'training.batch_tokens'"),
        ("training.batch_size=3", "'training.batch_tokens'"),
        ("batch-size=3", "'training.batch_tokens'"),
        ("hidden=3", "'encoder.width' or 'decoder.width'"),
        ("decoder.hidden_size=3", "'decoder.width'"),
        ("encoder.num_layers=3", "'layers'"),
        ("layers=3", "'encoder.layers' or 'decoder.layers'"),
        ("dropout=0.3", "'source.dropout' or 'encoder.dropout' or 'decoder.dropout'"),
        ("warmup=10", "'training.optim.warmup'"),
        ("training.optimizer=adam", "'training.optim.kind'"),
        ("beam=3", "'search.beam'"),
        ("training.kind=adam", "'training.optim.kind'"),
        ("vocab_size=100", "'source.tokenizer.size' or 'target.tokenizer.size'"),
        ("learnin_rate=1", "'training.optim.learning_rate'"),
    ],
)
def test_a_suggestion_looks_for_the_meaning(override: str, meant: str) -> None:
    assert f"did you mean {meant}?" in complaint(override)


def test_every_suggestion_exists() -> None:
    assert {path for paths in SYNONYMS.values() for path in paths} <= set(known_settings())
    names = {path.rpartition(".")[2] for path in known_settings()}
    assert not names & SYNONYMS.keys()  # a name that exists is found by itself


@pytest.mark.parametrize(
    "settings",
    [
        {"training": {"max_time": 5, "optim": {"learning_rate": 0.01}}},
        {"training.max_time": 5, "training.optim.learning_rate": 0.01},
        {"training": {"max_time": 5, "optim.learning_rate": 0.01}},
        {"training.optim": {"learning_rate": 0.01}, "training.max_time": 5},
        ["training.max_time=5", "training.optim.learning_rate=0.01"],
        "training={max_time = 5, optim = {learning_rate = 0.01}}",
    ],
)
def test_settings_may_be_nested_dotted_or_strings(settings: Any) -> None:
    expected = {"preset": "auto", "training": {"max_time": 5, "optim": {"learning_rate": 0.01}}}
    assert gather_settings(overrides=settings) == expected
    if isinstance(settings, dict):
        assert gather_settings(config=settings) == expected


def test_one_string_is_one_setting() -> None:
    assert gather_settings(overrides="training.max_time=1")["training"] == {"max_time": 1}


def test_a_config_may_be_a_mapping_or_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[decoder]\nwidth = 3\n", encoding="utf-8")
    for config in ({"decoder": {"width": 3}}, tmp_path / "a.toml", str(tmp_path / "a.toml")):
        assert gather_settings(config=config)["decoder"] == {"width": 3}
    assert gather_settings(config={}) == {"preset": "auto"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"config": 3}, "config is the path of a TOML file, or a mapping of settings; got int"),
        ({"config": ["a.toml"]}, "config is the path"),
        ({"config": Path("/")}, "this is a folder"),
        ({"overrides": 3}, "settings are a mapping such as"),
        ({"overrides": b"a=1"}, "settings are a mapping such as"),
        ({"overrides": [("training.seed", 1)]}, "a setting is a text such as 'decoder.width=512'"),
        ({"overrides": {1: 2}}, "a key is a name such as 'training.max_time'; got 1"),
        ({"overrides": {"training..seed": 2}}, "got 'training..seed'"),
        ({"preset": 3}, "preset is the name of a preset"),
    ],
)
def test_settings_of_a_wrong_type_are_answered_with_a_sentence(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        gather_settings(**arguments)
    assert said in str(caught.value)


def test_a_key_of_another_kind_is_told_apart_from_a_slip() -> None:
    sentence = complaint("decoder={kind='conv', selection='hard'}")
    assert "unknown key 'decoder.selection'; only the decoder of kind 'rnn' has it, not 'conv'" in sentence
    assert "did you mean 'width'?" in complaint("decoder={kind='conv', widht=3}")


def test_hard_selection_needs_attention() -> None:
    assert "needs context = 'attention'" in complaint("decoder.selection=hard", "decoder.context=initial")


def test_far_from_every_key_all_are_listed() -> None:
    sentence = complaint("zzz=1")
    assert all(name in sentence for name in [*Recipe.model_fields, "source", "encoder"])


def test_every_mistake_is_told_at_once() -> None:
    lines = complaint("decoder.widht=3", "training.optim.clip=-1", "search.beam=0").splitlines()
    assert len(lines) == 3
    for path in ("decoder.widht", "training.optim.clip", "search.beam"):
        assert sum(path in line for line in lines) == 1


@pytest.mark.parametrize(
    ("override", "path", "shown"),
    [
        ("decoder.width=wide", "decoder.width", "integer (got 'wide')"),
        ("decoder.width=1.5", "decoder.width", "integer"),
        ("decoder.width=true", "decoder.width", "true and false mean nothing"),
        ("decoder.dropout=1.0", "decoder.dropout", "less than 1"),
        ("decoder=3", "decoder", "expected a table with a 'kind'"),
        ("decoder.attention=additve", "decoder.attention", "did you mean 'additive'?"),
        ("decoder.kind=nix", "decoder", "choose from: "),
        ("encoder.cell=lsmt", "sources.source.encoder.cell", "'lstm'"),
        ("training=3", "training", "a table of settings"),
        ("training.max_updates=0", "training.max_updates", "greater than 0"),
        ("training.autocast=maybe", "training.autocast", "boolean"),
        ("training.optim.kind=sgd", "training.optim.kind", "'adam', 'adamw' or 'muon'"),
        ("training.optim.betas=[0.9]", "training.optim.betas", "required"),
        ("data.header=perhaps", "data.header", "'auto', 'yes' or 'no'"),
        ("data.source=1.5", "data.source", "integer"),
        ("search.normalize=mean", "search.normalize", "'average'"),
        ("sources=3", "sources", "a table of settings"),
        ("target.tokenizer.kind=wrds", "target.tokenizer.kind", "did you mean 'words'?"),
        ("metric=blue", "metric", "'bleu'"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(override: str, path: str, shown: str) -> None:
    sentence = complaint(override)
    assert f"config: {path}" in sentence
    assert shown in sentence
    assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["decoder.input_feeding=true", "decoder.timing=before"], "input_feeding"),
        (["decoder.input_feeding=true", "decoder.context=initial"], "input_feeding"),
        (["share_embeddings=true"], "share_vocabulary"),
        (["share_vocabulary=true", "source.tokenizer.kind=words"], "target.tokenizer.kind"),
        (["search.n_best=6", "search.beam=5"], "n_best"),
        (["search.ctc=0.3"], "training.ctc"),
        (["search.ctc=1.0", "training.ctc=0.3"], "search.ctc"),
        (["search.min_length=5", "search.max_length=5"], "min_length"),
        (["data.dev_share=0.5", "data.test_share=0.5"], "dev_share"),
        (["target.tokenizer.kind=characters", "target.tokenizer.size=100"], "size"),
        (["encoder.width=3", "sources=3"], "sources"),
        (["data.running=true"], "lm-rnn"),
        (["preset=lm-rnn", "data.source=1"], "data.source"),
        (["preset=lm-rnn", "data.running=true", "data.source=1"], "data.running"),
        (["preset=lm-rnn", "data.format=parallel"], "data.format"),
        (["preset=lm-rnn", "data.running=true", "target.tokenizer.drop=0.1"], "target.tokenizer.drop"),
        (["preset=lm-rnn", "metric=bleu"], "perplexity"),
        (["preset=lm-rnn", "share_vocabulary=true"], "share_vocabulary"),
        (["decoder={kind='concat', network={kind='conv'}}"], "decoder.network"),
        (["decoder={kind='concat', network={kind='concat'}}"], "decoder.network"),
    ],
)
def test_settings_that_contradict_each_other_are_named(overrides: list[str], named: str) -> None:
    assert named in complaint(*overrides)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"decoder": {"width": 24, "attention": {"kind": "dot"}}}, "decoder.attention"),
        ({"decoder": {"width": 24, "attention": {"kind": "cosine"}}}, "decoder.attention"),
        ({"decoder": {"width": 24, "bridge": "copy"}}, "decoder.bridge"),
        ({"decoder": {"context": "initial", "bridge": "zero"}}, "decoder.context"),
        ({"share_vocabulary": True, "share_embeddings": True, "source": {"embedding": 8}}, "decoder.embedding"),
        ({"sources": {"picture": {}}}, "picture"),
        ({"data": {"format": "text"}}, "lm-rnn"),
    ],
)
def test_what_only_the_whole_model_shows_is_named_too(
    settings: dict[str, Any], named: str, tmp_path: Path, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any]
) -> None:
    asked = settings if "sources" in settings else merge(tiny_settings, settings)
    with pytest.raises(UserError) as caught:
        plan(pairs_file(tmp_path / "pairs.tsv"), settings=asked)
    assert named in str(caught.value)


@pytest.mark.parametrize("preset", ["auto", *preset_names()])
def test_files_are_read_the_same_with_and_without_the_model(preset: str) -> None:
    for data in ({}, {"target": 2}, {"source": "x"}, {"source": ["a", "b"]}, {"running": True}, {"format": "parallel"}):
        settings = gather_settings(preset, overrides={"data": data})
        try:
            expected = make_recipe(settings).reading
        except ConfigError as error:
            with pytest.raises(ConfigError, match=re.escape(str(error))):
                make_reading(settings)
        else:
            assert make_reading(settings) == expected


@pytest.mark.parametrize("preset", ["auto", *preset_names()])
def test_the_resolved_config_is_read_back_equal(preset: str) -> None:
    recipe = make_recipe(gather_settings(preset))
    assert recipe.preset == preset
    stored = json.loads(json.dumps(recipe.dump()))
    assert stored == recipe.dump()
    assert make_recipe(stored) == recipe


@pytest.mark.parametrize("family", ["encoder", "attention", "decoder", "modality"])
def test_every_part_is_read_back_equal(family: str) -> None:
    for kind in kinds(family):
        home = {"encoder": "encoder", "attention": "decoder.attention", "decoder": "decoder", "modality": "source"}
        recipe = make_recipe(gather_settings(overrides=[f"{home[family]}.kind={kind}"]))
        assert make_recipe(json.loads(json.dumps(recipe.dump()))) == recipe


def test_every_preset_differs_and_says_where_it_comes_from() -> None:
    recipes = [make_recipe(gather_settings(name)) for name in preset_names()]
    assert {"sutskever2014", "cho2014", "bahdanau2015", "luong2015"} <= {recipe.preset for recipe in recipes}
    assert len({json.dumps(recipe.dump()["decoder"]) for recipe in recipes}) == len(recipes)
    assert all(recipe.reference for recipe in recipes)


def test_a_preset_may_be_named_in_any_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "cho2014"\n[decoder]\nwidth = 64\n', encoding="utf-8")
    named = make_recipe(gather_settings("cho2014", overrides=["decoder.width=64"]))
    assert make_recipe(gather_settings(config=file)) == named
    assert make_recipe(gather_settings(overrides=["preset=cho2014", "decoder.width=64"])) == named
    assert (
        make_recipe(gather_settings("luong2015", config=file)).preset == "luong2015"
    )  # the option is nearer to the person
    assert "cho2014" in complaint("preset=cho2041")


def test_what_is_said_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[decoder]\nwidth = 64\nlayers = 3\n[training.optim]\nclip = 5.0\n", encoding="utf-8")
    recipe = make_recipe(gather_settings("luong2015", config=file, overrides=["decoder.width=96"]))
    decoder = recipe.dump()["decoder"]
    assert (decoder["width"], decoder["layers"], decoder["input_feeding"]) == (96, 3, True)
    assert recipe.training.optim.clip == 5.0


def test_another_kind_does_not_inherit_settings() -> None:
    base = {"attention": {"kind": "additive", "width": 7}, "width": 5}
    assert merge(base, {"attention": {"kind": "dot"}}) == {"attention": {"kind": "dot"}, "width": 5}
    assert merge(base, {"attention": {"width": 9}})["attention"] == {"kind": "additive", "width": 9}
    assert base["attention"] == {"kind": "additive", "width": 7}


def test_overrides_are_toml_and_bare_words_are_strings() -> None:
    assert parse_overrides(["a.b=3", "a.c=x y", 'd="3"', "e=[1, 2]", "f=true", "g=1e-3"]) == {
        "a": {"b": 3, "c": "x y"}, "d": "3", "e": [1, 2], "f": True, "g": 1e-3,
    }  # fmt: skip


@pytest.mark.parametrize("item", ["decoder.width", "=3", " =3"])
def test_an_override_without_key_or_value_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_overrides([item])


def test_a_broken_config_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    with pytest.raises(ConfigError, match=r"mine\.toml: no such config file"):
        gather_settings(config=file)
    file.write_text("decoder = {", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.toml: not valid TOML"):
        gather_settings(config=file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"mine\.toml: not valid TOML"):
        gather_settings(config=file)


@pytest.mark.parametrize("section", [Recipe, DataConfig, TrainingConfig, OptimConfig, SearchConfig])
def test_settings_cannot_be_changed_once_checked(section: Any) -> None:
    config = section()
    name = next(iter(section.model_fields))
    with pytest.raises(ValueError, match="frozen"):
        setattr(config, name, getattr(config, name))
