"""Training modes: scheduled sampling, frozen parts, and starting from other runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from dragoman.config import ConfigError, merge
from dragoman.data.tokenizers import TokenizerConfig, fit
from dragoman.data.vocabulary import SPECIALS
from dragoman.errors import UserError
from dragoman.files import write_json
from dragoman.inference.build import build_model
from dragoman.inference.system import System
from dragoman.nn.contracts import Decoder
from dragoman.parts import kinds, part
from dragoman.recipe.schema import make_recipe, spell_out
from dragoman.recipe.training import SamplingConfig, gold_share
from dragoman.runs.lengths import LengthLimits
from dragoman.runs.setup import Setup
from dragoman.runs.weights import named_weights
from dragoman.training.corpus import encode_corpus
from dragoman.training.events import Scores
from dragoman.training.freezing import find_frozen
from dragoman.training.plan import Plan, plan
from dragoman.training.run import train
from dragoman.training.trainer import Trainer


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("modes") / "pairs.tsv", 100)


def settings_of(base: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    found = merge(spell_out(base), {"training": {"max_updates": 8, "validate_every": 4}})
    for one in more:
        found = merge(found, spell_out(one))
    return found


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def stop_after(updates: int) -> Callable[[], bool]:
    asked = iter(range(1, updates + 1))
    return lambda: next(asked) == updates


def trainer_of(planned: Plan) -> Trainer:
    system = planned.system
    return Trainer(
        system.model,
        encode_corpus(system, planned.data.train),
        system.recipe.training,
        lambda model: Scores(1.0, 1.0, "made up", {}),
    )


def read_metrics(folder: Path, event: str) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


# ---- scheduled sampling


def test_the_schedules_of_the_paper() -> None:
    linear = SamplingConfig(schedule="linear", k=0.9, slope=0.01, floor=0.25)
    assert [gold_share(linear, i) for i in (1, 10, 65, 66, 10**6)] == pytest.approx([0.89, 0.8, 0.25, 0.25, 0.25])
    exponential = SamplingConfig(schedule="exponential", k=0.99)
    assert [gold_share(exponential, i) for i in (1, 2, 100)] == pytest.approx([0.99, 0.9801, 0.99**100])
    sigmoid = SamplingConfig(schedule="inverse-sigmoid", k=10)
    assert gold_share(sigmoid, 10) == pytest.approx(10 / (10 + 2.718281828))
    assert gold_share(sigmoid, 10**9) == pytest.approx(0.0)  # and no overflow
    late = SamplingConfig(schedule="linear", slope=0.1, start=50)
    assert [gold_share(late, i) for i in (1, 50, 51, 52)] == pytest.approx([1.0, 1.0, 0.9, 0.8])
    assert gold_share(SamplingConfig(), 12345) == 1.0


@pytest.mark.parametrize("schedule", ["linear", "exponential", "inverse-sigmoid"])
def test_a_schedule_only_falls(schedule: Any) -> None:
    config = SamplingConfig(schedule=schedule, floor=0.1)
    shares = [gold_share(config, update) for update in range(1, 30_000, 97)]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.99 and 0.1 <= shares[-1] < 0.2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"schedule": "exponential", "k": 1.5}, "below 1"),
        ({"schedule": "inverse-sigmoid", "k": 0.5}, "at least 1"),
        ({"schedule": "exponential", "slope": 0.1}, "'slope' belongs to"),
        ({"k": 3.0}, "no meaning while schedule = 'none'"),
        ({"schedule": "linear", "floor": 1.0}, "less than 1"),
        ({"schedule": "linaer"}, "'linear'"),
    ],
)
def test_impossible_schedules_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SamplingConfig(**settings)
    with pytest.raises(ConfigError, match=r"training\.sampling"):
        make_recipe({"training": {"sampling": settings}})


def test_a_sampled_run_in_pieces_is_the_run_in_one(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    sampling = {"schedule": "linear", "slope": 0.05, "floor": 0.1, "start": 3}
    training = {"sampling": sampling, "log_every": 1, "max_updates": 11, "accumulate": 2, "batch_tokens": 64}
    settings = settings_of(tiny_settings, {"training": training})
    train(pairs, out=tmp_path / "whole", settings=settings)
    for updates in (2, 5):
        train(pairs, out=tmp_path / "pieces", settings=settings, should_stop=stop_after(updates))
    train(pairs, out=tmp_path / "pieces", settings=settings)
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole")
    plain = merge(settings, {"training": {"sampling": {"schedule": "none", "slope": None, "floor": 0.0, "start": 0}}})
    train(pairs, out=tmp_path / "gold", settings=plain)
    assert digest(tmp_path / "gold") != digest(tmp_path / "whole")
    shares = [record["gold_share"] for record in read_metrics(tmp_path / "whole", "stepped")]
    assert shares == pytest.approx([1, 1, 1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6])
    assert {record["gold_share"] for record in read_metrics(tmp_path / "gold", "stepped")} == {1.0}


def test_up_to_its_start_a_schedule_changes_nothing(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    late = {"training": {"sampling": {"schedule": "exponential", "k": 0.5, "start": 8}}}
    train(pairs, out=tmp_path / "late", settings=settings_of(tiny_settings, late))
    train(pairs, out=tmp_path / "never", settings=settings_of(tiny_settings))
    late_weights, weights = (load_file(tmp_path / name / "model.safetensors") for name in ("late", "never"))
    assert all(torch.equal(late_weights[name], weights[name]) for name in weights)


def test_measuring_a_sampled_run_changes_nothing(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    settings = settings_of(tiny_settings, {"training": {"sampling": {"schedule": "linear", "slope": 0.1}}})
    train(pairs, out=tmp_path / "plain", settings=settings)
    train(pairs, out=tmp_path / "measured", settings=settings, on_plan=lambda s, trainer, f: trainer.measure())
    assert digest(tmp_path / "plain") == digest(tmp_path / "measured")


# ---- frozen parts

FREEZES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "encoder": (["encoder"], ("encoders.", "frontends.")),
    "a source": (["source"], ("encoders.", "frontends.")),
    "decoder": (["decoder"], ("decoder.",)),
    "by name": (["decoder.embedding", "encoders.source.layers"], ("decoder.embedding.", "encoders.source.layers.")),
}


@pytest.mark.parametrize("encoder", [{"kind": "rnn"}, {"kind": "conv", "norm": "batch", "layers": 1}], ids=str)
@pytest.mark.parametrize("name", FREEZES)
def test_frozen_parts_stay_and_others_learn(
    name: str, encoder: dict[str, Any], pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    names, prefixes = FREEZES[name]
    optim = {"kind": "adamw", "weight_decay": 0.5, "learning_rate": 0.01, "warmup": 0}
    more = {"encoder": {"width": 16, **encoder}, "decoder": {"tie_embeddings": False}, "source": {"dropout": 0.1}}
    planned = plan(pairs, settings=settings_of(tiny_settings, more, {"training": {"freeze": names, "optim": optim}}))
    before = {key: tensor.clone() for key, tensor in planned.system.model.state_dict().items()}
    trainer = trainer_of(planned)
    list(trainer.run())
    after = planned.system.model.state_dict()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert not [key for key in changed if key.startswith(prefixes)]
    assert {key for key in before if not key.startswith(prefixes)} == changed
    frozen, trained = trainer.updater.frozen.count, trainer.updater.frozen.trained_count
    assert frozen + trained == planned.system.model.parameters_count
    assert any(f"{frozen:,} parameters; {trained:,} are trained" in reason for reason in planned.reasons)


def test_one_tensor_with_two_names_is_frozen_by_either(pairs: Path, tiny_settings: dict[str, Any]) -> None:
    one_table = {"share_vocabulary": True, "share_embeddings": True, "decoder": {"tie_embeddings": True}}
    planned = plan(pairs, settings=settings_of(tiny_settings, one_table, {"training": {"freeze": "encoder"}}))
    told = "\n".join(planned.reasons)
    for tied in ("decoder.embedding.weight", "decoder.project.weight"):
        assert f"frozen too: {tied}, because it is one tensor with frontends.source.embedding.weight" in told
    frozen = find_frozen(planned.system.model, ["decoder.project.weight"])
    assert [id(parameter) for parameter in frozen.parameters] == [id(planned.system.model.decoder.embedding.weight)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["decodr"], "nothing in this model is called 'decodr'; did you mean 'decoder'"),
        (["decoder.embed"], "did you mean 'decoder.embedding'"),
        ([""], "nothing in this model is called ''"),
        (["encoder", "decoder"], "nothing is left to train"),
    ],
)
def test_freezing_nothing_or_all_is_refused(
    names: list[str], says: str, pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        train(pairs, out=tmp_path / "run", settings=settings_of(tiny_settings, {"training": {"freeze": names}}))
    assert not (tmp_path / "run").exists()


# ---- starting from other runs


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any]) -> Path:
    """A decoder without memory, over the letters a to f."""
    recipe = make_recipe({"sources": {}, "decoder": {"kind": "rnn", **tiny_settings["decoder"]}})
    target = fit(TokenizerConfig(kind="characters"), ["abcdef", "fedcba"])
    system = System(recipe, {}, target, build_model(recipe, {}, target), LengthLimits())
    return system.save(tmp_path_factory.mktemp("lm") / "lm")


def test_a_whole_model_from_another_run(tiny_run: Any, tmp_path: Path) -> None:
    init = {"encoder": str(tiny_run.folder), "decoder": str(tiny_run.folder)}
    planned = plan(tiny_run.pairs, settings={"init": init})  # no widths said: built as the other run was
    ours, theirs = named_weights(planned.system.model), load_file(tiny_run.folder / "model.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not any(transfer.fresh or transfer.rows for transfer in planned.transfers)
    other = System.load(tiny_run.folder)
    assert planned.system.predict(["abcd", "hg"])[1].tokens == other.predict(["abcd", "hg"])[1].tokens
    assert sum("the tokeniser of the run it starts from" in reason for reason in planned.reasons) == 2


def test_vectors_inside_a_network_over_the_pair_are_taken_by_token(tmp_path: Path) -> None:
    """Two files of as many letters, in another order."""
    systems: list[System] = []
    for name, letters in (("first", "abcdefgh"), ("second", "hgfedcba")):
        texts = [letters[i % 8] * (9 - i % 8) + letters[(i // 8) % 8] for i in range(64)]
        file = tmp_path / f"{name}.tsv"
        file.write_text("".join(f"{text}\t{text}\n" for text in texts), encoding="utf-8")
        network = {"decoder": {"network": {"width": 16, "layers": 1, "embedding": 16}}, "source": {"embedding": 16}}
        init = {"init": {"decoder": str(systems[0].folder)}} if systems else {}
        tokenizer = {"target": {"tokenizer": {"kind": "characters"}}}
        planned = plan(file, preset="concat-rnn", settings=merge(merge(network, tokenizer), init))
        systems.append(planned.system.in_folder(planned.system.save(tmp_path / name)))
    first, second = systems
    name = "decoder.network.embedding.weight"
    for symbol in "abcdefgh":
        ours = second.model.state_dict()[name][second.target.vocabulary.id(symbol)]
        theirs = first.model.state_dict()[name][first.target.vocabulary.id(symbol)]
        assert torch.equal(ours, theirs), symbol


def test_a_decoder_from_a_language_model(
    language_model: Path, tiny_run: Any, tmp_path: Path, tiny_settings: dict[str, Any]
) -> None:
    """The pairs have letters that the language model has not: rows are matched by token."""
    attention = {"decoder": {"attention": {"kind": "additive"}}}
    settings = settings_of(tiny_settings, {"init": {"decoder": str(language_model)}}, attention)
    planned = plan(tiny_run.pairs, settings=settings)
    fresh = plan(tiny_run.pairs, settings=merge(settings, {"init": {"decoder": None}}))
    ours, without = planned.system.model.state_dict(), fresh.system.model.state_dict()
    theirs = System.load(language_model).model.state_dict()
    (transfer,) = planned.transfers
    assert {"decoder.stack.layers.0.weight_hh_l0", "decoder.stack.layers.0.weight_ih_l0"} <= transfer.taken.keys()
    for name in transfer.taken.keys() - transfer.rows.keys():
        assert torch.equal(ours[name], theirs[name])
    assert transfer.rows == {"decoder.embedding.weight": (10, 12), "decoder.project.bias": (10, 12)}
    vocabulary, known = planned.system.target.vocabulary, System.load(language_model).target.vocabulary
    for symbol in "abcdefgh":
        row = ours["decoder.embedding.weight"][vocabulary.id(symbol)]
        if symbol in "gh":
            assert torch.equal(row, without["decoder.embedding.weight"][vocabulary.id(symbol)])
        else:
            assert torch.equal(row, theirs["decoder.embedding.weight"][known.id(symbol)])
    specials = slice(len(SPECIALS))
    assert torch.equal(ours["decoder.embedding.weight"][specials], theirs["decoder.embedding.weight"][specials])
    untouched = [name for name in ours if name not in transfer.taken and name != "decoder.project.weight"]
    assert untouched and all(torch.equal(ours[name], without[name]) for name in untouched)
    assert all(name.startswith(("decoder.attention.", "decoder.output_vector")) for name in transfer.fresh)
    told = "\n".join(planned.reasons)
    assert "decoder from" in told and "10 of 12 rows found there by their token" in told
    assert "the other run has no such tensor" in told
    train(tiny_run.pairs, out=tmp_path / "run", settings=settings)
    stored = json.loads((tmp_path / "run" / "init.json").read_text(encoding="utf-8"))
    assert stored == [json.loads(json.dumps(transfer.to_json()))]
    assert str(language_model) in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_tokenisers_are_taken_where_they_lose_nothing(
    language_model: Path, tmp_path: Path, tiny_settings: dict[str, Any]
) -> None:
    file = tmp_path / "few.tsv"
    few = ["abc", "fed", "cab", "bad", "fab", "ace", "bed", "def", "dab", "fee", "add", "ebb", "cede", "faded"]
    file.write_text("".join(f"{word}\t{word[::-1]}\n" for word in few), encoding="utf-8")
    theirs = System.load(language_model).target.vocabulary.symbols

    def symbols(file: Path, **init: Any) -> tuple[str, ...]:
        settings = settings_of(tiny_settings, {"init": {"decoder": str(language_model), **init}})
        return plan(file, settings=settings).system.target.vocabulary.symbols

    assert symbols(file) == theirs
    assert symbols(file, tokenizers="fit") != theirs
    more = tmp_path / "more.tsv"
    more.write_text(file.read_text(encoding="utf-8") + "xyz\tzyx\nxy\tyx\nyz\tzy\nzx\txz\n", encoding="utf-8")
    assert set("xyz") < set(symbols(more))
    assert symbols(more, tokenizers="reuse") == theirs
    assert symbols(more, decoder=None, target_tokenizer=str(language_model)) == theirs


def test_a_table_shared_by_both_sides_is_taken_once(tiny_run: Any, tiny_settings: dict[str, Any]) -> None:
    shared = {"share_vocabulary": True, "share_embeddings": True}
    init = {"encoder": str(tiny_run.folder), "decoder": str(tiny_run.folder), "tokenizers": "fit"}
    planned = plan(tiny_run.pairs, settings=settings_of(tiny_settings, shared, {"init": init}))
    decoder, source = planned.transfers
    assert "decoder.embedding.weight" in decoder.taken
    assert source.fresh["frontends.source.embedding.weight"] == "shared with a part that has taken it already"


def test_going_on_needs_the_same_other_run(
    language_model: Path, pairs: Path, tiny_settings: Any, tmp_path: Path
) -> None:
    origin = Path(shutil.copytree(language_model, tmp_path / "lm"))
    settings = settings_of(tiny_settings, {"init": {"decoder": str(origin)}, "training": {"freeze": ["decoder.stack"]}})
    train(pairs, out=tmp_path / "whole", settings=settings)
    train(pairs, out=tmp_path / "pieces", settings=settings, should_stop=stop_after(3))
    weights = (origin / "model.safetensors").read_bytes()
    System.load(tmp_path / "whole")
    recipe = System.load(origin)
    recipe.model.decoder.embedding.weight.data += 1  # type: ignore[union-attr, operator]
    recipe.save(origin)
    with pytest.raises(UserError, match="the weights of the runs it starts from"):
        train(pairs, out=tmp_path / "pieces", settings=settings)
    (origin / "model.safetensors").write_bytes(weights)
    train(pairs, out=tmp_path / "pieces", settings=settings)
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole")
    shutil.rmtree(origin)
    assert System.load(tmp_path / "whole")("abc") == System.load(tmp_path / "pieces")("abc")  # needs no other run


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such run": ({"init": {"decoder": "{tmp}/none"}}, "init.decoder = .*none.*not the folder of a run"),
    "wrong decoder": (
        {"init": {"decoder": "{lm}"}, "decoder": {"kind": "conv", "width": 16}},
        "has a rnn decoder, but this model's is conv",
    ),
    "wrong encoder": (
        {"init": {"encoder": "{run}"}, "encoder": {"kind": "conv", "width": 16}},
        "has a rnn encoder, but encoder here is conv",
    ),
    "nothing fits": (
        {"init": {"decoder": "{lm}"}, "decoder": {"width": 24, "cell": "gru", "embedding": 20, "layers": 2}},
        "nothing of .* fits this model",
    ),
    "no encoder there": ({"init": {"encoder": "{lm}"}}, "is a language model and has no encoder"),
    "no such source": ({"init": {"sources": {"picture": "{run}"}}}, "no source of that name"),
    "settings for what is reused": (
        {"init": {"decoder": "{lm}", "tokenizers": "reuse"}, "target": {"tokenizer": {"kind": "bytes"}}},
        "settings of its own",
    ),
    "unknown key": ({"init": {"decodr": "{lm}"}}, "did you mean 'decoder'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_origin_is_answered_with_a_sentence(
    name: str, language_model: Path, tiny_run: Any, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    settings, says = WRONG[name]
    places = {"{tmp}": str(tmp_path), "{lm}": str(language_model), "{run}": str(tiny_run.folder)}
    filled = json.dumps(settings)
    for place, path in places.items():
        filled = filled.replace(place, path)
    base = settings_of(tiny_settings)
    if "decoder" in settings and settings["decoder"].get("kind"):
        base["decoder"] = {}
    with pytest.raises(ConfigError, match=says):
        train(tiny_run.pairs, out=tmp_path / "run", settings=merge(base, spell_out(json.loads(filled))))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", kinds("decoder"))
@pytest.mark.parametrize("tie", [True, False])
def test_what_a_decoder_has_for_each_token_is_known_by_name(kind: str, tie: bool) -> None:
    """Rows are matched by token in these tensors and no others, whatever their sizes happen to be."""
    made = part("decoder", kind)
    tied = {"tie_embeddings": tie} if "tie_embeddings" in made.Config.model_fields else {}
    decoders = [made(made.Config(**tied), vocabulary=v, memory_width=None, summary_shape=None) for v in (11, 13)]
    shapes = [{name: tensor.shape for name, tensor in one.state_dict().items()} for one in decoders]
    by_token = {name for name in shapes[0] if shapes[0][name] != shapes[1][name]}
    inside = [(name, module) for name, module in decoders[0].named_modules() if isinstance(module, Decoder)]
    known = [f"{inside[-1][0]}.{table}".lstrip(".") for table in inside[-1][1].token_tables]
    assert set(known[:2]) <= by_token <= set(known)  # an output layer may do without a bias


def test_runs_from_before_these_settings_go_on(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    settings = settings_of(tiny_settings)
    train(pairs, out=tmp_path / "run", settings=settings, should_stop=stop_after(3))
    for file in ("run.json", "config.json"):
        record = json.loads((tmp_path / "run" / file).read_text(encoding="utf-8"))
        del record["recipe"]["init"], record["recipe"]["training"]["freeze"], record["recipe"]["training"]["sampling"]
        write_json(tmp_path / "run" / file, record)
    assert Setup.read(tmp_path / "run")
    train(pairs, out=tmp_path / "run", settings=settings)
    train(pairs, out=tmp_path / "whole", settings=settings)
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
