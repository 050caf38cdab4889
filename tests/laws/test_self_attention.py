"""Self-attention that is told: distributions, 0 on padding and ahead, the weights that were used, and no effect."""

from __future__ import annotations

import pytest
import torch
from law_cases import (
    WIDTH,
    close,
    decoders,
    encoders,
    make_decoder,
    make_encoder,
    make_memory,
    make_padded,
    make_source,
    name,
)
from test_decoders import LENGTH, tokens
from torch import Tensor

from dragoman.nn.blocks.positions import sinusoids
from dragoman.parts import part
from dragoman.types import Padded

every_encoder = pytest.mark.parametrize("case", list(encoders()), ids=name)
every_decoder = pytest.mark.parametrize("case", list(decoders()), ids=name)


@every_encoder
def test_of_the_encoder(case) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder)
    before = encoder(source)
    told = encoder.self_attention(source)
    after = encoder(source)
    assert torch.equal(before.states, after.states)
    kind, settings = case if "inner" not in case[1] else (case[1]["inner"]["kind"], case[1]["inner"])
    assert (told is not None) == (kind == "transformer")
    if told is None:
        assert encoder.self_attention_shape == (0, 0)
        return
    batch, length = before.mask.shape
    assert told.shape == (batch, settings["layers"], settings["heads"], length, length)
    assert encoder.self_attention_shape == told.shape[1:3]
    assert (told >= 0).all() and close(told.sum(-1), torch.ones(told.shape[:-1]))
    assert (told.masked_select(~before.mask[:, None, None, None]) == 0).all()
    alone = encoder.self_attention(Padded(source.data[1:2, :3], source.mask[1:2, :3]))
    assert close(alone[0], told[1, :, :, : alone.shape[-1], : alone.shape[-1]])


@every_decoder
def test_of_the_decoder(case) -> None:
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    state = decoder.start(memory, 4)
    before = decoder(asked, state)
    told = decoder.self_attention(asked, state)
    assert torch.equal(before.log_probs, decoder(asked, state).log_probs)
    kind, settings = case if "network" not in case[1] else (case[1]["network"]["kind"], case[1]["network"])
    if kind in ("rnn", "conv", "transformer"):
        assert (told is not None) == (kind == "transformer")
    if told is None:
        assert decoder.self_attention_shape == (0, 0)
        return
    assert decoder.self_attention_shape == told.shape[1:3]
    read = memory.mask.shape[1] if decoder.reads_source else 0  # positions of the source that stand before the tokens
    assert told.shape == (4, settings["layers"], settings["heads"], LENGTH, read + LENGTH)
    assert (told >= 0).all() and close(told.sum(-1), torch.ones(told.shape[:-1]))
    assert (told.triu(read + 1) == 0).all()
    if read:
        source = told[..., :read]
        assert (source.masked_select(~memory.mask[:, None, None, None]) == 0).all() and (source.sum(-1) > 0).all()
    for position in range(LENGTH):  # and token by token, behind the states that the decoder itself made
        piece = asked[:, position : position + 1]
        single = decoder.self_attention(piece, state)
        assert single.shape[-2:] == (1, read + position + 1)
        assert close(single[..., 0, :], told[..., position, : read + position + 1])
        state = decoder(piece, state).state


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_it_is_what_the_formula_says(family: str) -> None:
    """softmax(Q Kᵀ / sqrt(d)) of the only layer, whose input is known: token vectors and positions."""
    torch.manual_seed(0)
    found = part(family, "transformer")
    config = found.Config(width=WIDTH, layers=1, heads=3, feed_forward=8, norm="post")
    if family == "encoder":
        module = found(config, input_width=WIDTH).eval()
        source = make_padded(1)
        vectors, told = source.data, module.self_attention(source)
    else:
        module = found(config, vocabulary=11, memory_width=None, summary_shape=None).eval()
        asked = tokens(1)
        vectors, told = module.embedding(asked), module.self_attention(asked, module.start(None, 1))
    x = vectors * WIDTH**0.5 + sinusoids(0, vectors.shape[1], WIDTH)
    query, keys, _ = module.blocks[0].project(x).chunk(3, -1)

    def heads(y: Tensor) -> Tensor:
        return y.view(1, -1, 3, WIDTH // 3).transpose(1, 2)

    scores = heads(query) @ heads(keys).transpose(2, 3) / (WIDTH // 3) ** 0.5
    if family == "decoder":
        scores = scores + torch.full_like(scores, float("-inf")).triu(1)
    assert close(told[:, 0], scores.softmax(-1))
