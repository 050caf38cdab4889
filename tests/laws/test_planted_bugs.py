"""The laws themselves are tested: a classic bug, planted, must make them fail."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import test_attention
import test_decoders
import test_encoders
import torch

from dragoman.nn import kernels
from dragoman.nn.blocks.scored_attention import ScoredAttention
from dragoman.nn.contracts import Attended
from dragoman.nn.decoders import transformer
from dragoman.nn.decoders.conv import Conv
from dragoman.nn.decoders.rnn import RNN as Decoder
from dragoman.nn.decoders.transformer import Transformer
from dragoman.nn.encoders.conv import Conv as ConvEncoder
from dragoman.nn.encoders.rnn import RNN as Encoder
from dragoman.types import Growing, State, map_history

ATTENTION = ("rnn", {"timing": "after"})
FEEDING = ("rnn", {"input_feeding": True})
BOTH = ("rnn", {"width": 6})
TRANSFORMER = ("transformer", {"layers": 2, "heads": 3, "feed_forward": 16})
CONV = ("conv", {"layers": 2, "kernel": 3, "embedding": 12})
CONV_ENCODER = ("conv", {"layers": 2, "width": 10})


@pytest.fixture(scope="module", autouse=True)
def sound() -> None:
    """Without a bug the laws hold: what fails below fails because of the bug."""
    for case in (TRANSFORMER, CONV):
        test_decoders.test_any_split_of_the_tokens_gives_the_same(case)
        test_decoders.test_reorder_permutes_the_carry_and_nothing_else(case)
        test_decoders.test_causality(case)
        test_decoders.test_padding_of_the_memory_is_invisible(case)
    test_decoders.test_vectors_read_are_tokens_read(TRANSFORMER)
    test_encoders.test_padding_is_invisible(CONV_ENCODER)


def fails(law: Any, case: Any) -> None:
    with pytest.raises(AssertionError):
        law(case)


def test_a_forgotten_attention_mask(monkeypatch) -> None:
    def unmasked(self, query, prepared, previous=None):
        weights = torch.softmax(self.score(query, prepared["keys"]), dim=-1)
        return Attended(torch.bmm(weights, prepared["values"]), weights[:, :, None])

    monkeypatch.setattr(ScoredAttention, "forward", unmasked)
    fails(test_attention.test_weights_are_a_distribution_and_padding_gets_exactly_nothing, "dot")
    fails(test_attention.test_what_stands_on_padding_does_not_matter, "dot")
    fails(test_decoders.test_padding_of_the_memory_is_invisible, ATTENTION)


def test_a_mask_applied_after_the_softmax(monkeypatch) -> None:
    def late(self, query, prepared, previous=None):
        weights = torch.softmax(self.score(query, prepared["keys"]), dim=-1)
        weights = weights.masked_fill(prepared["padding"][:, None], 0.0)
        return Attended(torch.bmm(weights, prepared["values"]), weights[:, :, None])

    monkeypatch.setattr(ScoredAttention, "forward", late)
    fails(test_attention.test_weights_are_a_distribution_and_padding_gets_exactly_nothing, "dot")


def test_an_encoder_that_reads_padding(monkeypatch) -> None:
    forward = Encoder.forward
    monkeypatch.setattr(
        Encoder,
        "forward",
        lambda self, x: replace(forward(self, replace(x, mask=torch.ones_like(x.mask))), mask=x.mask),
    )
    fails(test_encoders.test_padding_is_invisible, BOTH)
    fails(test_encoders.test_batch_of_one_is_a_row_of_many, BOTH)


def test_state_kept_on_self(monkeypatch) -> None:
    forward = Decoder.forward

    def remembers(self, tokens, state, need_attention=False):
        kept = getattr(self, "kept", None)
        if kept is not None and kept.carry["hidden"].shape == state.carry["hidden"].shape:
            state = kept
        step = forward(self, tokens, state, need_attention)
        object.__setattr__(self, "kept", step.state)
        return step

    monkeypatch.setattr(Decoder, "forward", remembers)
    fails(test_decoders.test_pure, ATTENTION)
    fails(test_decoders.test_asking_for_attention_changes_nothing, ATTENTION)


def test_a_state_changed_in_place(monkeypatch) -> None:
    forward = Decoder.forward

    def overwrites(self, tokens, state, need_attention=False):
        step = forward(self, tokens, state, need_attention)
        with torch.no_grad():
            state.carry["hidden"].copy_(step.state.carry["hidden"])
        return step

    monkeypatch.setattr(Decoder, "forward", overwrites)
    fails(test_decoders.test_pure, ("rnn", {"bridge": "dense"}))


def test_a_carry_not_reordered(monkeypatch) -> None:
    monkeypatch.setattr(State, "reorder", lambda self, rows: self)
    fails(test_decoders.test_reorder_permutes_the_carry_and_nothing_else, ATTENTION)


def test_half_of_the_carry_not_reordered(monkeypatch) -> None:
    """Input feeding keeps two things a row; one of them forgotten is the bug that ships."""
    reorder = State.reorder

    def forgets(self, rows):
        moved = reorder(self, rows)
        return replace(moved, carry={**moved.carry, "fed": self.carry["fed"]})

    monkeypatch.setattr(State, "reorder", forgets)
    fails(test_decoders.test_reorder_permutes_the_carry_and_nothing_else, FEEDING)


def test_a_decoder_that_sees_the_future(monkeypatch) -> None:
    forward = Decoder.forward

    def peeks(self, tokens, state, need_attention=False):
        step = forward(self, tokens, state, need_attention)
        return replace(step, features=step.features + step.features.mean(1, keepdim=True))

    monkeypatch.setattr(Decoder, "forward", peeks)
    fails(test_decoders.test_causality, ATTENTION)
    fails(test_decoders.test_any_split_of_the_tokens_gives_the_same, ATTENTION)


def test_a_source_that_is_ignored(monkeypatch) -> None:
    start = Decoder.start

    def blind(self, memory, sources):
        empty = None if memory is None else replace(memory, states=memory.states * 0, summary=memory.summary * 0)
        return start(self, empty, sources)

    monkeypatch.setattr(Decoder, "start", blind)
    fails(test_decoders.test_the_source_matters, ATTENTION)


def spoil_carry(monkeypatch, decoder, spoil) -> None:
    """After every call, ``spoil`` changes the carry."""
    forward = decoder.forward

    def spoiled(self, tokens, state, need_attention=False):
        step = forward(self, tokens, state, need_attention)
        return replace(step, state=replace(step.state, carry=spoil(step.state.carry)))

    monkeypatch.setattr(decoder, "forward", spoiled)


@pytest.mark.parametrize("case", [TRANSFORMER, CONV], ids=["cache", "window"])
def test_a_cache_or_window_not_reordered(monkeypatch, case) -> None:
    monkeypatch.setattr(State, "reorder", lambda self, rows: self)
    fails(test_decoders.test_reorder_permutes_the_carry_and_nothing_else, case)


def test_rows_that_see_the_tokens_of_other_hypotheses(monkeypatch) -> None:
    hide = transformer.hide_others
    monkeypatch.setattr(transformer, "hide_others", lambda *given: torch.zeros_like(hide(*given)))
    fails(test_decoders.test_reorder_permutes_the_carry_and_nothing_else, TRANSFORMER)
    fails(partial(test_decoders.test_a_search_sees_what_one_call_with_gradients_sees, sources=7), TRANSFORMER)


def test_a_cache_that_writes_over_another_continuation(monkeypatch) -> None:
    append = Growing.append

    def greedy(self, new):
        self._filled[0] = self.length
        return append(self, new)

    monkeypatch.setattr(Growing, "append", greedy)
    fails(partial(test_decoders.test_two_continuations_of_one_state, sources=7), TRANSFORMER)


def test_entries_dropped_although_a_row_sees_them(monkeypatch) -> None:
    drop = transformer.drop_unseen
    monkeypatch.setattr(transformer, "drop_unseen", lambda history, entries, sources: drop(
        history, entries.roll(1, 0), sources
    ))  # fmt: skip
    fails(partial(test_decoders.test_a_search_sees_what_one_call_with_gradients_sees, sources=7), TRANSFORMER)


def test_a_window_of_one_layer_not_reordered(monkeypatch) -> None:
    reorder = State.reorder

    def forgets(self, rows):
        moved = reorder(self, rows)
        return replace(moved, carry={**moved.carry, "1": self.carry["1"]})

    monkeypatch.setattr(State, "reorder", forgets)
    fails(test_decoders.test_reorder_permutes_the_carry_and_nothing_else, CONV)


def test_positions_of_the_transformer_that_restart_in_every_chunk(monkeypatch) -> None:
    position_vectors = Transformer._position_vectors
    monkeypatch.setattr(Transformer, "_position_vectors", lambda self, past, carry, x: position_vectors(self, 0, {}, x))
    fails(test_decoders.test_any_split_of_the_tokens_gives_the_same, TRANSFORMER)
    fails(test_decoders.test_without_a_source_it_is_a_language_model, TRANSFORMER)


def test_positions_of_the_convolution_that_restart_in_every_chunk(monkeypatch) -> None:
    spoil_carry(monkeypatch, Conv, lambda carry: {**carry, "position": torch.zeros_like(carry["position"])})
    fails(test_decoders.test_any_split_of_the_tokens_gives_the_same, CONV)


def test_a_cache_that_forgets_its_oldest_token(monkeypatch) -> None:
    forward = Transformer.forward

    def forgets(self, tokens, state, need_attention=False):
        step = forward(self, tokens, state, need_attention)
        history = map_history(lambda grown: Growing(grown.tensor[:, :, -2:]), step.state.history)
        return replace(step, state=replace(step.state, history=history))

    monkeypatch.setattr(Transformer, "forward", forgets)
    fails(test_decoders.test_any_split_of_the_tokens_gives_the_same, TRANSFORMER)


def test_a_window_one_token_too_short(monkeypatch) -> None:
    def shorten(carry):
        windows = {name: x.clone() for name, x in carry.items()}
        for name, window in windows.items():
            if name != "position":
                window[:, 0] = 0.0  # its oldest input, which a kernel of 3 still sees
        return windows

    spoil_carry(monkeypatch, Conv, shorten)
    fails(test_decoders.test_any_split_of_the_tokens_gives_the_same, CONV)
    fails(test_decoders.test_gradient_is_that_of_one_token_at_a_time, CONV)


def test_a_window_one_token_late(monkeypatch) -> None:
    """Convolutions centred on a token instead of ending there."""
    forward = Conv.forward

    def centred(self, tokens, state, need_attention=False):
        return forward(self, tokens.roll(-1, 1), state, need_attention)

    monkeypatch.setattr(Conv, "forward", centred)
    fails(test_decoders.test_causality, CONV)


def test_self_attention_without_a_causal_mask(monkeypatch) -> None:
    attend = kernels.multi_head_self_attention
    monkeypatch.setattr(
        kernels, "multi_head_self_attention", lambda projected, masked, heads: attend(projected, None, heads)
    )
    fails(test_decoders.test_causality, TRANSFORMER)
    fails(test_decoders.test_any_split_of_the_tokens_gives_the_same, TRANSFORMER)


def test_cross_attention_that_sees_padding(monkeypatch) -> None:
    attend = kernels.multi_head_attention
    monkeypatch.setattr(kernels, "multi_head_attention", lambda q, k, v, masked, heads: attend(q, k, v, None, heads))
    fails(test_decoders.test_padding_of_the_memory_is_invisible, TRANSFORMER)


def test_a_cache_whose_padding_is_forgotten(monkeypatch) -> None:
    """Rows of different length were read: entries of the cache behind the shorter ones are nothing to look at."""
    read = Transformer.read

    def forgets(self, vectors, state):
        features, after = read(self, vectors, state)
        return features, replace(after, carry={})

    monkeypatch.setattr(Transformer, "read", forgets)
    fails(test_decoders.test_vectors_read_are_tokens_read, TRANSFORMER)


def test_a_convolution_over_padding_that_is_not_zero(monkeypatch) -> None:
    forward = ConvEncoder.forward
    monkeypatch.setattr(
        ConvEncoder,
        "forward",
        lambda self, x: replace(forward(self, replace(x, mask=torch.ones_like(x.mask))), mask=x.mask),
    )
    fails(test_encoders.test_padding_is_invisible, CONV_ENCODER)
    fails(test_encoders.test_batch_of_one_is_a_row_of_many, CONV_ENCODER)
