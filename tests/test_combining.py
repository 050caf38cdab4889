"""Ensembles and shallow fusion of whole systems, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragoman
from dragoman.config import merge
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit
from dragoman.data.vocabulary import SPECIALS
from dragoman.errors import UserError
from dragoman.inference.build import build_model
from dragoman.inference.ensembles import EnsembleEngine, fuse
from dragoman.inference.ensembles import ensemble as combine
from dragoman.inference.predictions import Prediction
from dragoman.inference.system import System
from dragoman.recipe.schema import make_recipe, spell_out
from dragoman.runs.lengths import LengthLimits
from dragoman.training.run import train

INPUTS = ["abcd", "hg", "", "aaaaaaa", "abcdefgh", "c"]
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 4, "n_best": 3},
    {"beam": 3, "stop": "certain", "normalize": "none"},
    {"sample": True, "samples": 3, "seed": 4},
]


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory, tiny_run: Any) -> Path:
    """Another architecture, and another way of cutting the source, on the same pairs."""
    small = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16}
    settings = {
        "source": {"embedding": 16, "tokenizer": {"kind": "bytes"}},
        "encoder": {"kind": "transformer", **small},
        "decoder": {"kind": "conv", "width": 16, "layers": 2, "embedding": 16},
        "training": tiny_run.settings["training"],
    }
    folder = tmp_path_factory.mktemp("other") / "run"
    train(tiny_run.pairs, out=folder, settings=settings)
    return folder


def language_model(target: Tokenizer, seed: int = 1) -> System:
    recipe = make_recipe(
        {"sources": {}, "decoder": {"kind": "rnn", "width": 16, "embedding": 16}, "training": {"seed": seed}}
    )
    model = build_model(recipe, {}, target)
    for parameter in model.parameters():
        parameter.data *= 3  # with opinions
    return System(recipe, {}, target, model.eval(), LengthLimits())


@pytest.fixture(scope="module")
def system(tiny_run: Any) -> System:
    return dragoman.load(tiny_run.folder)


@pytest.fixture(scope="module")
def ensemble(tiny_run: Any, other_run: Path) -> System:
    return dragoman.load([tiny_run.folder, other_run])


def alike(first: list[Prediction], second: list[Prediction], tolerance: float = 1e-4) -> bool:
    return all(
        a.tokens == b.tokens
        and np.allclose(a.log_probs, b.log_probs, atol=tolerance, rtol=0)
        and abs(a.score - b.score) < tolerance
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one.outputs, other.outputs, strict=True)
    )


# ---- ensembles


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_run_with_itself_is_the_run(tiny_run: Any, system: System, search: dict[str, Any]) -> None:
    twice = dragoman.load([tiny_run.folder, tiny_run.folder])
    assert isinstance(twice.engine, EnsembleEngine)
    together, alone = twice.predict(INPUTS, **search), system.predict(INPUTS, **search)
    assert alike(together, alone)
    assert np.allclose(together[0].attention, alone[0].attention, atol=1e-5)  # type: ignore[arg-type]
    assert dragoman.load([tiny_run.folder]).combined is None


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_laws_of_search_hold_for_ensembles(ensemble: System, search: dict[str, Any]) -> None:
    found = ensemble.predict(INPUTS, **search)
    assert alike(found, ensemble.predict(INPUTS, batch=1, **search))  # company does not matter
    for prediction in found:
        for output in prediction.outputs if prediction.source else ():
            if output.finished and "⁇" not in output.text:
                (forced,) = ensemble.score([prediction.source], [output.text])
                assert forced.log_prob == pytest.approx(output.log_prob, abs=1e-4)
    best = ensemble.predict(INPUTS, beam=5, n_best=5)
    for prediction in best:
        assert len({output.tokens for output in prediction.outputs}) == len(prediction.outputs)
        scores = [output.score for output in prediction.outputs if output.finished]
        assert scores == sorted(scores, reverse=True)
    assert [one.text for one in best] == [one.text for one in ensemble.predict(INPUTS, beam=5, n_best=1)]


def test_the_log_probability_is_that_of_mean_probabilities(ensemble: System, system: System, other_run: Path) -> None:
    sources, targets = ["abc", "hgfe"], ["cba", "ab"]
    members = [one.score(sources, targets) for one in (system, dragoman.load(other_run))]
    for row, scored in enumerate(ensemble.score(sources, targets)):
        each = np.array([member[row].log_probs for member in members])
        assert scored.log_probs == pytest.approx(np.log(np.exp(each).mean(0)), abs=1e-5)


def test_the_order_of_the_members_does_not_matter(ensemble: System, tiny_run: Any, other_run: Path) -> None:
    turned = dragoman.load([other_run, tiny_run.folder])
    assert alike(turned.predict(INPUTS, beam=3), ensemble.predict(INPUTS, beam=3))
    first, second = turned.predict(["abé"])[0], ensemble.predict(["abé"])[0]
    assert (len(first.labels), len(second.labels)) == (5, 4)  # bytes and characters, and the end
    for one in (first, second):
        assert one.attention is not None and one.attention.shape[2] == len(one.labels)


def test_samples_of_an_ensemble_differ_and_repeat(ensemble: System) -> None:
    search: dict[str, Any] = {"sample": True, "samples": 8, "temperature": 2.0}
    first = ensemble.predict(["abcd"], seed=1, **search)[0]
    assert len(first.outputs) == 8 and len({output.text for output in first.outputs}) > 2
    assert alike([first], ensemble.predict(["abcd"], seed=1, **search))
    assert not alike([first], ensemble.predict(["abcd"], seed=2, **search))


def with_target(system: System, target: Tokenizer) -> System:
    """The same kind of model, untrained, over another vocabulary."""
    recipe = system.recipe
    return System(
        recipe, system.modalities, target, build_model(recipe, system.modalities, target).eval(), LengthLimits()
    )


def test_the_same_tokens_in_another_order_are_the_same_tokens(system: System) -> None:
    symbols = list(reversed(system.target.vocabulary.symbols))
    turned = fit(TokenizerConfig(kind="characters"), ["".join(s * (len(symbols) - i) for i, s in enumerate(symbols))])
    assert list(turned.vocabulary.symbols) == symbols
    other = with_target(system, turned)
    weights = {name: tensor.clone() for name, tensor in system.model.state_dict().items()}
    order = [*range(len(SPECIALS)), *(system.target.vocabulary.id(symbol) for symbol in symbols)]
    for name in ("decoder.embedding.weight", "decoder.project.weight", "decoder.project.bias"):
        weights[name] = weights[name][order]
    other.model.load_state_dict(weights)
    assert alike(combine([system, other]).predict(INPUTS, beam=3), system.predict(INPUTS, beam=3))


def test_what_cannot_be_an_ensemble_is_said(system: System, tmp_path: Path) -> None:
    fewer = with_target(system, fit(TokenizerConfig(kind="characters"), ["abcdefgz"]))
    with pytest.raises(UserError, match=r"1 only in .* \('h'\) and 1 only in this system \('z'\)"):
        combine([system, fewer])
    words = with_target(system, fit(TokenizerConfig(kind="bytes"), ["abc"]))
    with pytest.raises(UserError, match=r"writes bytes, but .* writes characters.*init\.target_tokenizer="):
        combine([system, words])
    with pytest.raises(UserError, match=r"reads no source, but .* reads \['source'\]"):
        combine([system, language_model(system.target)])
    with pytest.raises(UserError, match="at least one run"):
        dragoman.load([])
    with pytest.raises(UserError, match="no folder of its own"):
        combine([system, system]).save(tmp_path)


# ---- shallow fusion


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_fusion_ranks_by_both_and_reports_the_model(system: System, search: dict[str, Any]) -> None:
    lm, weight = language_model(system.target), 0.5
    fused = fuse(system, lm, weight)
    found = fused.predict(INPUTS, **search)
    assert alike(found, fused.predict(INPUTS, batch=1, **search))
    penalty = fused.search_config(**search).penalty
    checked = 0
    for prediction in found:
        for output in prediction.outputs if prediction.source else ():
            if output.finished:
                (own,) = system.score([prediction.source], [output.text])
                assert own.log_probs == pytest.approx(output.log_probs, abs=1e-4)
                told = told_by(lm, output.text)
                assert output.score * penalty(len(output.tokens)) == pytest.approx(
                    own.log_prob + weight * told, abs=1e-3
                )
                checked += 1
    assert checked > 4


def told_by(lm: System, text: str) -> float:
    """What a language model thinks of a text, by its decoder alone."""
    tokens = torch.tensor([[2, *lm.target.encode(text), 3]])
    with torch.inference_mode():
        log_probs = lm.model(tokens[:, :-1], lm.model.start(None, 1)).log_probs
    return float(log_probs.gather(2, tokens[:, 1:, None]).sum())


def test_the_weight_says_how_much(system: System) -> None:
    lm = language_model(system.target)
    search: dict[str, Any] = {"beam": 8, "normalize": "none", "min_length": 3, "max_length": 4}
    plain = system.predict(INPUTS, **search)
    assert alike(fuse(system, lm, 0.0).predict(INPUTS, **search), plain)
    heavy = fuse(system, lm, 5.0).predict(INPUTS, **search)
    assert [one.text for one in heavy] != [one.text for one in plain]
    told = [sum(told_by(lm, one.text) for one in found if one.source) for found in (heavy, plain)]
    assert told[0] > told[1]
    samples = fuse(system, lm, 0.3).predict(["abcd"], sample=True, samples=8, temperature=2.0)[0]
    assert len({output.text for output in samples.outputs}) > 2


def test_scores_of_given_targets_are_the_models_own(system: System) -> None:
    fused = fuse(system, language_model(system.target), 2.0)
    assert fused.score(["abc"], ["cba"]) == system.score(["abc"], ["cba"])


def test_a_language_model_may_know_more_tokens(system: System) -> None:
    """Tokens are matched by their strings; what the model never writes does not matter."""
    wider = fit(TokenizerConfig(kind="characters"), ["zzzyyyx" + "".join(system.target.vocabulary.symbols)])
    lm = language_model(wider)
    outputs = fuse(system, lm, 0.7).predict(["abcd", "hg"], beam=2, normalize="none")
    for prediction in outputs:
        (own,) = system.score([prediction.source], [prediction.text])
        assert prediction.score == pytest.approx(own.log_prob + 0.7 * told_by(lm, prediction.text), abs=1e-3)
    narrow = language_model(fit(TokenizerConfig(kind="characters"), ["abc"]))
    with pytest.raises(UserError, match=r"5 only in .*, …\)"):
        fuse(system, narrow, 0.3)


def test_an_ensemble_with_a_language_model(ensemble: System) -> None:
    lm = language_model(ensemble.target)
    (found,) = fuse(ensemble, lm, 0.4).predict(["abcd"], beam=3, normalize="none")
    (own,) = ensemble.score(["abcd"], [found.text])
    assert found.score == pytest.approx(own.log_prob + 0.4 * told_by(lm, found.text), abs=1e-3)
    assert own.log_probs == pytest.approx(found.log_probs, abs=1e-4)


def test_what_cannot_be_fused_is_said(system: System) -> None:
    with pytest.raises(UserError, match="not a language model"):
        fuse(system, system, 0.3)
    with pytest.raises(UserError, match="must be 0 or more"):
        fuse(system, language_model(system.target), -0.1)


# ---- command line


@pytest.fixture(scope="module")
def lm_run(tmp_path_factory: pytest.TempPathFactory, system: System) -> Path:
    return language_model(system.target).save(tmp_path_factory.mktemp("lm") / "lm")


def test_predict_evaluate_and_score_with_several_runs(
    call: Any, tiny_run: Any, other_run: Path, lm_run: Path, ensemble: System
) -> None:
    stdin = "\n".join(INPUTS).encode()
    together = call("predict", tiny_run.folder, "--ensemble", other_run, stdin=stdin)
    assert together.code == 0, together.err
    assert together.lines == [one.text for one in ensemble.predict(INPUTS)]
    options = ["--ensemble", other_run, "--ensemble", tiny_run.folder, "--lm", lm_run, "--lm-weight", "0.5"]
    fused = call("predict", tiny_run.folder, *options, "--sample", "--n-best", 3, stdin=stdin)
    assert fused.code == 0 and [len(line.split("\t")) for line in fused.lines] == [3, 3, 1, 3, 3, 3]
    record = json.loads(call("predict", tiny_run.folder, "--lm", lm_run, "--json", stdin=b"abcd\n").lines[0])[
        "outputs"
    ][0]
    assert sum(record["log_probs"]) == pytest.approx(record["log_prob"])
    assert record["score"] < record["log_prob"] / len(record["tokens"])  # the language model has its say as well
    report = json.loads(call("evaluate", tiny_run.folder, tiny_run.pairs, "--json", *options).out)
    assert report["scores"]["exact"]["value"] >= 0
    scored = call("score", tiny_run.folder, tiny_run.pairs, "--ensemble", other_run)
    assert scored.code == 0 and len(scored.lines) == 200
    first = tiny_run.pairs.read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert float(scored.lines[0].split("\t")[0]) == pytest.approx(
        ensemble.score([first[0]], [first[1]])[0].log_prob, abs=1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["predict", "{run}", "--ensemble", "{tmp}"], "not the folder of a run"),
        (["predict", "{run}", "--lm", "{tmp}"], "not the folder of a run"),
        (["predict", "{run}", "--lm", "{run}"], "not a language model"),
        (["predict", "{run}", "--lm-weight", "0.2"], "give one with --lm RUN"),
        (["evaluate", "{run}", "{pairs}", "--ensemble", "{lm}"], "read the same sources"),
        (["predict", "{run}", "--lm", "{lm}", "--lm-weight", "-1"], "must be 0 or more"),
        (["train", "{pairs}", "--init-decoder", "{tmp}", "--out", "{tmp}/r"], "init.decoder"),
        (["train", "{pairs}", "--init-encoder", "{lm}", "--out", "{tmp}/r"], "has no encoder"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(
    call: Any, tiny_run: Any, lm_run: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    places = {"run": tiny_run.folder, "tmp": tmp_path, "pairs": tiny_run.pairs, "lm": lm_run}
    answer = call(*(argument.format(**places) for argument in arguments), stdin=b"abc\n")
    assert answer.code == 2 and says in answer.err and "Traceback" not in answer.err
    assert not list(tmp_path.iterdir())


def test_train_from_other_runs_on_the_command_line(
    call: Any, tiny_run: Any, lm_run: Path, tmp_path: Path, as_flags: Any
) -> None:
    settings = as_flags(
        merge(spell_out({}), {"training": {"max_updates": 3, "threads": 1, "batch_tokens": 96, "freeze": "encoder"}})
    )
    options = ["--init-encoder", tiny_run.folder, "--init-decoder", lm_run, "--out", tmp_path / "run"]
    answer = call("train", tiny_run.pairs, *options, *settings)
    assert answer.code == 0, answer.err
    assert f"init: decoder from {lm_run}" in answer.err and "init: encoder (source) from" in answer.err
    assert "frozen: encoder" in answer.err
    assert dragoman.load(tmp_path / "run").recipe.init.decoder == str(lm_run)
