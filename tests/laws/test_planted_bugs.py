"""The laws themselves are tested: a classic bug, planted, must make them fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import test_attention
import test_decoders
import test_encoders
import torch

from dragoman.contracts import Attended
from dragoman.nn.decoders.rnn import RNN as Decoder
from dragoman.nn.encoders.rnn import RNN as Encoder
from dragoman.nn.scoring import ScoredAttention
from dragoman.types import State

ATTENTION = ("rnn", {"timing": "after"})
FEEDING = ("rnn", {"input_feeding": True})
BOTH = ("rnn", {"width": 6})


def fails(law: Any, case: Any) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
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
