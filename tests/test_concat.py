"""One network over source and target: pairings, the loss over the source, learning, and a run from file to output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dragoman
from dragoman.config import ConfigError, merge
from dragoman.data.reading.read import read
from dragoman.data.vocabulary import BOS, EOS
from dragoman.drawing.attention import draw
from dragoman.evaluation.evaluate import evaluate
from dragoman.inference.attention_view import view_attention
from dragoman.inference.predictions import Output, Prediction
from dragoman.studio.inspection import read_input
from dragoman.studio.views.attention import describe_attention
from dragoman.training.corpus import encode_corpus
from dragoman.training.objective.loss import summed_loss
from dragoman.training.plan import plan
from dragoman.training.run import train
from dragoman.types import Axis

RNN = {"kind": "rnn", "width": 32, "embedding": 16, "dropout": 0.1}
TRANSFORMER = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feed_forward": 32}
SHARED = {"share_vocabulary": True, "share_embeddings": True}
SMALL: dict[str, Any] = {
    "sources": {"source": {"modality": {"embedding": 16, "dropout": 0.0}, "encoder": {"kind": "identity"}}},
    "decoder": {"kind": "concat", "network": RNN},
    "training": {"threads": 1, "batch_tokens": 96, "max_updates": 12, "average": 1},
}


def settings(**more: Any) -> dict[str, Any]:
    return merge(SMALL, more)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("concat") / "pairs.tsv", 80)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"sources": {"source": {"encoder": {"kind": "rnn"}}}}, "encoder.kind = 'identity'"),
        ({"sources": {"source": {"modality": {"embedding": 8}}}}, "source.embedding"),
        ({"decoder": {"source_loss": 1.0}}, "share_vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused(pairs: Path, more: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(pairs, settings=settings(**more))
    assert named in str(caught.value)


@pytest.mark.parametrize("network", [RNN, TRANSFORMER], ids=["rnn", "transformer"])
@pytest.mark.parametrize("sharing", [{}, SHARED], ids=["two tables", "one table"])
def test_it_trains_saves_loads_and_decodes(
    pairs: Path, tmp_path: Path, network: dict[str, Any], sharing: dict[str, Any]
) -> None:
    more = {**sharing, "decoder": {"network": network, **({"source_loss": 0.5} if sharing else {})}}
    trained = train(pairs, out=tmp_path / "run", settings=settings(**more))
    loaded = dragoman.load(tmp_path / "run")
    texts = ["abc", "hgfedcba", "", "xyz", "a"]
    for options in ({"beam": 1}, {"beam": 4, "n_best": 3}, {"sample": True, "samples": 2}):
        one, other, alone = (
            system.predict(texts, batch=batch, **options) for system, batch in ((trained, 64), (loaded, 2), (loaded, 1))
        )
        for a, b, c in zip(one, other, alone, strict=True):
            assert [x.text for x in a.outputs] == [x.text for x in b.outputs] == [x.text for x in c.outputs]
            assert a.score == pytest.approx(c.score, abs=1e-4)
    assert loaded.score(["abc"], ["cba"])[0].log_prob == pytest.approx(trained.score(["abc"], ["cba"])[0].log_prob)


def test_where_it_looked_can_be_seen(pairs: Path, tmp_path: Path, call: Any) -> None:
    """The attention of one Transformer over the pair is to the source and to its own output, in one row."""
    trained = train(pairs, out=tmp_path / "run", settings=settings(decoder={"network": TRANSFORMER}))
    told = trained.predict(["abc"], maps=True)[0]
    looked, read = told.outputs[0].self_attention, len(told.labels)
    assert looked is not None and looked.shape == (2, 2, len(told.tokens), read + len(told.tokens))
    assert looked.sum(-1) == pytest.approx(1.0, abs=1e-5) and (looked[..., :read].sum(-1) > 0).all()
    assert (looked.reshape(4, *looked.shape[2:])[:, 0, read + 1 :] == 0).all()  # the first token: the source and <s>

    answer = call("inspect", tmp_path / "run", "abc", "-o", tmp_path / "seen.svg")
    assert answer.code == 0 and answer.lines == [told.text]
    drawing = (tmp_path / "seen.svg").read_text()
    assert all(f">{label}<" in drawing for label in ("a", "b", "c", "&lt;s&gt;", "read before →"))

    session = trained.session()
    record = describe_attention(session, read_input(session, "abc"), trained.target.encode("cb"), "decoder")
    assert record.columns == [*told.labels, "<s>", "c"] and record.rows == ["c", "b"]
    assert (record.layers, record.heads) == (2, 2)
    assert record.average.rows == 2 and record.average.columns == len(record.columns)


def test_of_a_recording_that_it_reads_itself_the_text_is_drawn() -> None:
    """The row of weights goes on over the output's tokens, which stand in no spectrogram."""
    output = Output("a", 0.0, 0.0, ("a", "</s>"), (0.0, 0.0), True, None, np.full((1, 1, 2, 4), 0.25))
    axis = Axis("speech", ("0.0", "0.1"), seconds=0.1)
    prediction = Prediction("call.wav", (output,), {"source": axis})
    place, drawing = draw([view_attention(prediction, "run", {"source": 1}, reads_source=True)])
    assert place.suffix == ".svg" and isinstance(drawing, str) and ">0.1<" in drawing and ">a<" in drawing


def test_a_recurrent_one_has_no_attention_to_draw(pairs: Path, tmp_path: Path, call: Any) -> None:
    train(pairs, out=tmp_path / "run", settings=settings())
    answer = call("inspect", tmp_path / "run", "abc", "-o", tmp_path / "seen.svg")
    assert answer.code == 2 and "no attention to draw" in answer.err and not (tmp_path / "seen.svg").exists()


@pytest.mark.parametrize("network", [RNN, TRANSFORMER], ids=["rnn", "transformer"])
def test_it_is_the_language_model_of_the_joined_text(pairs: Path, network: dict[str, Any]) -> None:
    """With one table of vectors, encoder and decoder together are the network over source, <sep>, target."""
    system = plan(pairs, settings=settings(**SHARED, decoder={"network": {**network, "dropout": 0.0}})).system
    system.model.eval()
    inner = system.model.decoder.network
    for source, target in (("abc", "cba"), ("abcdefgh", "a")):
        read_first = [*system.target.encode(source), EOS]
        gold = [*system.target.encode(target), EOS]
        joined = torch.tensor([[*read_first, BOS, *gold[:-1]]])
        log_probs = inner(joined, inner.start(None, 1)).log_probs[0, len(read_first) :]
        expected = sum(log_probs[position, token].item() for position, token in enumerate(gold))
        assert system.score([source], [target])[0].log_prob == pytest.approx(expected, abs=1e-4)


def test_the_loss_counts_the_source_where_asked_and_only_in_training(pairs: Path) -> None:
    losses = {}
    for weight in (0.0, 1.0, 0.25):
        planned = plan(pairs, settings=settings(**SHARED, decoder={"network": {"dropout": 0.0}, "source_loss": weight}))
        encoded = encode_corpus(planned.system, planned.data.train)
        batch, model = encoded.batch(torch.arange(8).numpy()), planned.system.model
        for frontend in model.frontends.values():
            frontend.rare.zero_()  # nothing hidden, so that both modes read the same
        losses[weight] = [summed_loss(model.train(mode).teach(batch), batch).item() for mode in (True, False)]
        if weight == 1.0:
            model.train()
            step, (source,) = model.teach(batch), batch.sources.values()
            real = source.mask[:, 1:]
            assert step.reading is not None
            logits = step.readout(step.reading.features[:, :-1][real])
            counted = nn.functional.cross_entropy(logits, source.data[:, 1:][real], reduction="sum").item()
    target = losses[0.0][0]
    assert losses[1.0][0] == pytest.approx(target + counted, rel=1e-5)
    assert losses[0.25][0] == pytest.approx(target + 0.25 * counted, rel=1e-5)
    assert all(after == pytest.approx(target, rel=1e-5) for _, after in losses.values())


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_one_network_learns(task: str, kind: str, tmp_path: Path, pairs_file: Callable[..., Path]) -> None:
    seen: list[str] = []
    for name, rows, seed in (("train", 1500, 1), ("test", 300, 2)):
        words = [line.split()[0] for line in pairs_file(tmp_path / name, rows, seed, 4).read_text().splitlines()]
        words = [word for word in words if word not in seen]
        lines = [f"{word}\t{word if task == 'copy' else word[::-1]}\n" for word in words]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
        seen += words
    network = {
        "rnn": {"kind": "rnn", "cell": "gru", "width": 128, "embedding": 32},
        "transformer": {"kind": "transformer", "width": 32, "layers": 2, "heads": 4, "feed_forward": 64, "dropout": 0},
    }[kind]
    asked = {
        **(SHARED if kind == "rnn" else {}),
        "sources": {"source": {"modality": {"embedding": 32, "dropout": 0.0}, "encoder": {"kind": "identity"}}},
        "decoder": {"kind": "concat", "network": network},
        "training": {
            "threads": 1, "batch_tokens": 256, "max_epochs": 16, "validate_every": 100, "average": 1,
            "label_smoothing": 0.0,
            "optim": {"learning_rate": 8e-3 if kind == "rnn" else 5e-3, "schedule": "cosine", "warmup": 50},
        },
    }  # fmt: skip
    system = train(tmp_path / "train.tsv", out=tmp_path / "run", settings=asked)
    assert evaluate(system, read(tmp_path / "test.tsv").examples, beam=1).scores["exact"].value >= 98.0
