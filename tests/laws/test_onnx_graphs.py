"""ONNX graphs compute what the model does, for every part, with several hypotheses of padded sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from law_cases import (
    WIDTH,
    cut,
    encoders,
    lowered_decoders,
    make_decoder,
    make_encoder,
    make_padded,
    make_source,
    name,
    rows_of,
)
from test_joined_sources import CASES, make, sources
from test_programs import agree, frames, randomize

from dragoman.errors import UserError
from dragoman.export.onnx_graph import encode_graph, step_graph
from dragoman.inference.engine.onnx import OnnxRunner
from dragoman.inference.engine.programs import ProgramDecoder, ReferenceRunner, Runner
from dragoman.nn.frontends.picture import PictureFrontend
from dragoman.nn.model import Model
from dragoman.types import Padded

pytest.importorskip("onnx", reason="onnx is an extra")
pytest.importorskip("onnxruntime", reason="onnxruntime is an extra")

TOKENS = [[3, 7, 1], [5, 5, 2], [0, 1, 9], [4, 8, 6]]


def runners(model: Model) -> dict[str, Runner]:
    program = model.lower()
    encode = encode_graph(program).SerializeToString() if program.encode else None
    return {
        "numpy": ReferenceRunner(program),
        "onnx": OnnxRunner(program, encode, step_graph(program).SerializeToString()),
    }


@torch.inference_mode()
def check(model: Model, batch: dict[str, Padded], rows: int = 4) -> None:
    """Advance two hypotheses of each source by three tokens, swapping them in between."""
    randomize(model)
    model.eval()
    memory = model.encode(batch)
    first = torch.tensor(TOKENS[:rows])
    tokens = torch.stack([first, first.flip(1)], 1).flatten(0, 1)  # (N, 3)
    swap = torch.arange(2 * rows).view(rows, 2).flip(1).flatten()

    def run(decoder: Any, start: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        one = decoder(tokens[:, :2], start.spread(2), need_attention=True)
        two = decoder(tokens[:, 2:], one.state.reorder(swap), need_attention=True)
        maps = None if one.attention is None else torch.cat([one.attention, two.attention], 1)
        return torch.cat([one.log_probs, two.log_probs], 1), maps

    wanted, wanted_maps = run(model, model.start(memory, rows))
    own = [{key: cut(source, row).data[0].numpy() for key, source in batch.items()} for row in range(rows)]
    for runner in runners(model).values():
        decoder = ProgramDecoder(runner)
        encoded = decoder.encode(own)
        got, maps = run(decoder, decoder.start(encoded, rows))
        agree(got.numpy(), wanted)
        assert (maps is None) == (wanted_maps is None)
        if maps is not None:
            assert wanted_maps is not None
            agree(maps.numpy(), wanted_maps)


@pytest.mark.parametrize("case", list(lowered_decoders()), ids=name)
def test_decoders(case: tuple[str, dict[str, Any]]) -> None:
    encoder = make_encoder(("identity", {}) if case[0] == "concat" else ("rnn", {"width": 6, "layers": 2}))
    source = make_padded()
    check(Model({"x": frames()}, {"x": encoder}, make_decoder(case, encoder(source))), {"x": source})


@pytest.mark.parametrize("case", list(lowered_decoders())[::5], ids=name)
def test_language_models(case: tuple[str, dict[str, Any]]) -> None:
    try:
        decoder = make_decoder(case, None)
    except UserError:
        pytest.skip("this decoder needs a source")
    check(Model({}, {}, decoder), {})


@pytest.mark.parametrize("case", list(encoders()), ids=name)
def test_encoders(case: tuple[str, dict[str, Any]]) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder)
    frontend: Any = frames()
    if encoder.reads == "picture":
        frontend = PictureFrontend([0.1 * i for i in range(WIDTH)], [0.01 * (i + 1) for i in range(WIDTH)])
        source = Padded(source.data * source.mask[..., None], source.mask)
    decoder = make_decoder(("rnn", {"timing": "before"}), rows_of(encoder(source), [0]))
    check(Model({"x": frontend}, {"x": encoder}, decoder), {"x": source})


@pytest.mark.parametrize("kinds", CASES, ids=" ".join)
def test_several_sources(kinds: tuple[str, ...]) -> None:
    own, joined = make(kinds)
    batch = sources(own)
    memory = joined({key: encoder(batch[key]) for key, encoder in own.items()})
    decoder = make_decoder(("rnn", {"input_feeding": True}), memory)
    check(Model({key: frames() for key in own}, own, decoder, joined), batch)


@pytest.mark.parametrize("kind", ["transformer", "conv", "rnn"])
def test_tags(kind: str) -> None:
    from dragoman.nn.frontends.text import TextFrontend

    frontend = TextFrontend(WIDTH, 0.0, np.zeros(11), 1, tags=np.arange(11) % 3 == 1)
    tokens = torch.tensor([[1, 4, 2, 5, 7, 0, 1], [2, 3, 5, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0, 0], [2, 7, 4, 5, 8, 0, 0]])
    source = Padded(tokens, torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None])
    encoder = make_encoder((kind, {"width": 12, "layers": 1}))
    decoder = make_decoder(("transformer", {"heads": 3}), encoder(frontend(source)))
    check(Model({"x": frontend}, {"x": encoder}, decoder), {"x": source})


def test_sentences() -> None:
    from dragoman.nn.frontends.text import TextFrontend

    frontend = TextFrontend(WIDTH, 0.0, np.zeros(11), 1, np.arange(11) % 3 == 2)
    tokens = torch.tensor([[1, 2, 4, 5, 7, 0, 8], [1, 3, 5, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0], [2, 2, 2, 5, 8, 0, 0]])
    source = Padded(tokens, torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None])
    encoder = make_encoder(("transformer", {"width": 12, "layers": 1, "heads": 3, "feed_forward": 16}))
    decoder = make_decoder(("transformer", {"heads": 3}), encoder(frontend(source)))
    check(Model({"x": frontend}, {"x": encoder}, decoder), {"x": source})
