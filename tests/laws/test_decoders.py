"""The laws of ``contracts.Decoder``, for every file of the folder."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from law_cases import VOCABULARY, close, decoders, make_decoder, make_memory, make_padded, name, rows_of
from torch import Tensor

from dragoman.config import TooLong
from dragoman.nn.contracts import ReadingDecoder
from dragoman.parts import part
from dragoman.types import Memory, Padded, State, map_tree

every_decoder = pytest.mark.parametrize("case", list(decoders()), ids=name)
bounded_decoders = pytest.mark.parametrize(
    "case", [c for c in decoders() if part("decoder", c[0]).has_bounded_state], ids=name
)
READING = [case for case in decoders() if issubclass(part("decoder", case[0]), ReadingDecoder)]
reading_decoders = pytest.mark.parametrize("case", READING, ids=name)
LENGTH = 6


def tokens(rows: int = 4, length: int = LENGTH, seed: int = 4) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def leaves(tree) -> list[Tensor]:
    found: list[Tensor] = []
    map_tree(lambda x: found.append(x) or x, tree)
    return found


def copied(state: State) -> State:
    return replace(
        state, fixed=map_tree(lambda x: x.clone(), state.fixed), carry=map_tree(lambda x: x.clone(), state.carry)
    )


def gradients(decoder) -> dict[str, Tensor]:
    """Zero where nothing arrived: outside training, hard attention's choice is a constant."""
    named = decoder.named_parameters()
    return {key: torch.zeros_like(one) if one.grad is None else one.grad.clone() for key, one in named}


@every_decoder
def test_any_split_of_the_tokens_gives_the_same(case) -> None:
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    whole = decoder(asked, decoder.start(memory, 4), need_attention=True)
    for sizes in ([1] * LENGTH, [2, 1, 3], [5, 1]):
        state, pieces, maps = decoder.start(memory, 4), [], []
        for piece in asked.split(sizes, 1):
            step = decoder(piece, state, need_attention=True)
            state = step.state
            pieces.append(step.log_probs)
            maps.append(step.attention)
        assert close(torch.cat(pieces, 1), whole.log_probs)
        if whole.attention is not None:
            assert close(torch.cat(maps, 1), whole.attention)
        for ours, theirs in zip(leaves(state.carry), leaves(whole.state.carry), strict=True):
            assert close(ours, theirs)


@every_decoder
def test_causality(case) -> None:
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    changed = asked.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % VOCABULARY
    plain = decoder(asked, decoder.start(memory, 4)).log_probs
    other = decoder(changed, decoder.start(memory, 4)).log_probs
    assert close(plain[:, :3], other[:, :3])
    assert not close(plain[:, 3:], other[:, 3:])


@every_decoder
def test_reorder_permutes_the_carry_and_nothing_else(case) -> None:
    """With k rows for each source, every row continues after a reorder as the row it came from would have."""
    memory = make_memory()
    decoder, k = make_decoder(case, memory), 3
    first, second = tokens(4 * k, 3), tokens(4 * k, 2, seed=11)
    state = decoder(first, decoder.start(memory, 4).spread(k)).state
    order = torch.tensor([source * k + pick for source in range(4) for pick in (2, 0, 2)])
    reordered = decoder(second, state.reorder(order)).log_probs
    straight = decoder(second, decoder(first[order], decoder.start(memory, 4).spread(k)).state).log_probs
    assert close(reordered, straight)
    if leaves(state.carry):
        assert not close(reordered, decoder(second, state).log_probs)


@every_decoder
@pytest.mark.parametrize("sources", [1, 7], ids=["few", "many"])
def test_a_search_sees_what_one_call_with_gradients_sees(case, sources: int) -> None:
    """Token by token, with rows that are reordered, multiplied and dropped, and without gradients."""
    memory = make_memory(8)
    memory = rows_of(memory, list(range(sources)))
    decoder = make_decoder(case, memory)
    state = decoder.start(memory, sources)
    length = 28 if state.history else 5  # long enough that entries of a cache are dropped
    draw = torch.Generator().manual_seed(5)
    chosen = torch.zeros(sources, 0, dtype=torch.long)  # (N, t)
    seen, maps = [], []
    with torch.inference_mode():
        state, k = decoder.start(memory, sources), 1
        for position in range(length):
            asked = torch.randint(0, VOCABULARY, (sources * k, 1), generator=draw)
            chosen = torch.cat([chosen, asked], 1)
            step = decoder(asked, state, need_attention=position % 2 == 1)
            state = step.state
            wider = 4 if position < length - 2 else 2
            picks = torch.randint(0, k, (sources, wider), generator=draw) + k * torch.arange(sources)[:, None]
            last = step.next_log_probs()
            state, chosen, k = state.reorder(picks.flatten()), chosen[picks.flatten()], wider
            seen.append(last[picks.flatten()])
            maps.append(None if step.attention is None else step.attention[picks.flatten(), -1])
    chosen = chosen.clone()  # outside inference mode
    whole = decoder(chosen, decoder.start(memory, sources).spread(k), need_attention=True)
    assert close(whole.log_probs[:, -1], seen[-1], 2e-5)
    if maps[-1] is not None:
        assert close(whole.attention[:, -1], maps[-1], 2e-5)
    if sources > 1:
        some = torch.tensor([4, 0])
        rows = torch.cat([source * k + torch.arange(k) for source in some])
        after = tokens(2 * k, 1, seed=3)
        with torch.inference_mode():
            told = decoder(after, state.select(some)).next_log_probs()
        forced = decoder(torch.cat([chosen[rows], after], 1), decoder.start(rows_of(memory, [4, 0]), 2).spread(k))
        assert close(forced.log_probs[:, -1], told, 2e-5)


@every_decoder
@pytest.mark.parametrize("sources", [1, 7], ids=["few", "many"])
def test_two_continuations_of_one_state(case, sources: int) -> None:
    """Without gradients, where a decoder may share memory between states, none disturbs the other."""
    memory = rows_of(make_memory(8), list(range(sources)))
    decoder = make_decoder(case, memory)
    with torch.inference_mode():
        state = decoder(tokens(sources, 2), decoder.start(memory, sources)).state
        first, other = (decoder(tokens(sources, 1, seed), state).state for seed in (6, 7))
        found = decoder(tokens(sources, 1, 8), first).next_log_probs()
        alone = decoder(tokens(sources, 2), decoder.start(memory, sources)).state
        alone = decoder(tokens(sources, 1, 6), alone).state
        assert close(found, decoder(tokens(sources, 1, 8), alone).next_log_probs())
        assert not close(found, decoder(tokens(sources, 1, 8), other).next_log_probs())


@every_decoder
def test_select_keeps_whole_sources(case) -> None:
    memory = make_memory()
    decoder, k = make_decoder(case, memory), 2
    first, second = tokens(4 * k, 3), tokens(4 * k, 2, seed=11)
    state = decoder(first, decoder.start(memory, 4).spread(k)).state
    everything = decoder(second, state).log_probs.view(4, k, 2, -1)
    some = decoder(second.view(4, k, 2)[[3, 1]].flatten(0, 1), state.select(torch.tensor([3, 1]))).log_probs
    assert close(some.view(2, k, 2, -1), everything[[3, 1]])
    fresh = decoder(first[:2], decoder.start(memory, 4).select(torch.tensor([3, 1]))).log_probs
    assert close(fresh, decoder(first[:2], decoder.start(rows_of(memory, [3, 1]), 2)).log_probs)


@every_decoder
def test_padding_of_the_memory_is_invisible(case) -> None:
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    rubbish = memory.states.clone()
    rubbish[~memory.mask] = 30.0
    wide = torch.full((4, 4, memory.states.shape[-1]), 9.0)
    longer = Memory(
        torch.cat([rubbish, wide], 1),
        torch.cat([memory.mask, torch.zeros(4, 4, dtype=torch.bool)], 1),
        summary=memory.summary,
    )
    plain = decoder(asked, decoder.start(memory, 4)).log_probs
    assert close(plain, decoder(asked, decoder.start(longer, 4)).log_probs)


@every_decoder
def test_what_a_search_writes_into_its_scores_stays_there(case) -> None:
    memory = make_memory()
    decoder = make_decoder(case, memory)
    with torch.no_grad():
        step = decoder(tokens(), decoder.start(memory, 4))
        before = step.next_log_probs()
        kept = before.clone()
        before.fill_(-torch.inf)  # as rules do with what they forbid
        assert torch.equal(step.next_log_probs(), kept)


@every_decoder
def test_log_probs_are_normalised(case) -> None:
    memory = make_memory()
    decoder = make_decoder(case, memory)
    log_probs = decoder(tokens(), decoder.start(memory, 4)).log_probs
    assert log_probs.dtype == torch.float32
    assert log_probs.shape == (4, LENGTH, VOCABULARY)
    assert close(log_probs.exp().sum(-1), torch.ones(4, LENGTH))


@every_decoder
def test_pure(case) -> None:
    """The state given is unchanged, nothing stays on the decoder, and the same call gives the same result."""
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    attributes = set(vars(decoder))
    state = decoder.start(memory, 4)
    before = copied(state)
    first = decoder(asked, state).log_probs
    decoder(tokens(seed=30), decoder.start(make_memory(seed=31), 4))
    assert torch.equal(first, decoder(asked, state).log_probs)
    for tree, old in ((state.fixed, before.fixed), (state.carry, before.carry)):
        assert all(torch.equal(a, b) for a, b in zip(leaves(tree), leaves(old), strict=True))
    assert set(vars(decoder)) == attributes


@every_decoder
def test_asking_for_attention_changes_nothing(case) -> None:
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    plain = decoder(asked, decoder.start(memory, 4))
    told = decoder(asked, decoder.start(memory, 4), need_attention=True)
    assert plain.attention is None
    assert torch.equal(plain.log_probs, told.log_probs)
    assert decoder.maps == decoder.map_shape[0] * decoder.map_shape[1]
    assert (told.attention is not None) == (decoder.maps > 0)
    if decoder.maps:
        assert told.attention.shape == (4, LENGTH, decoder.maps, memory.mask.shape[1])
        assert close(told.attention.sum(-1), torch.ones(4, LENGTH, decoder.maps))
        assert (told.attention.masked_select(~memory.mask[:, None, None]) == 0).all()


@every_decoder
def test_batch_of_one_is_a_row_of_many(case) -> None:
    memory = make_memory(8)
    decoder, asked = make_decoder(case, memory), tokens(8)
    together = decoder(asked, decoder.start(memory, 8)).log_probs
    for row in range(8):
        one = rows_of(memory, [row])
        assert close(decoder(asked[row : row + 1], decoder.start(one, 1)).log_probs[0], together[row])


@every_decoder
def test_the_source_matters(case) -> None:
    memory, other = make_memory(), make_memory(seed=77)
    decoder, asked = make_decoder(case, memory), tokens()
    assert not close(
        decoder(asked, decoder.start(memory, 4)).log_probs, decoder(asked, decoder.start(other, 4)).log_probs
    )


@every_decoder
def test_gradient_reaches_every_parameter(case) -> None:
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens(4, 12)
    decoder.train()
    step = decoder(asked, decoder.start(memory, 4))
    loss = step.log_probs.square().sum()
    if step.choices is not None:
        loss = loss + step.choices.log_probs.sum()
    loss.backward()
    for key, parameter in decoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


@every_decoder
def test_gradient_is_that_of_one_token_at_a_time(case) -> None:
    """The fast paths (whole sequences, deferred gradients) against the plainest way of running."""
    memory = make_memory()
    read = memory.states.requires_grad_()
    decoder, asked = make_decoder(case, memory), tokens()
    weights = torch.randn(4, LENGTH, VOCABULARY, generator=torch.Generator().manual_seed(2))
    (decoder(asked, decoder.start(memory, 4)).log_probs * weights).sum().backward()
    fast, fast_read, read.grad = gradients(decoder), read.grad, None
    decoder.zero_grad()
    state, total = decoder.start(memory, 4), torch.zeros(())
    for position in range(LENGTH):
        step = decoder(asked[:, position : position + 1], state)
        state = step.state
        total = total + (step.log_probs * weights[:, position : position + 1]).sum()
    total.backward()
    for key, gradient in gradients(decoder).items():
        assert close(fast[key], gradient, 1e-4), key
    assert (fast_read is None) == (read.grad is None)
    assert read.grad is None or close(fast_read, read.grad, 1e-4)


@every_decoder
def test_nothing_of_an_update_stays_in_memory(case) -> None:
    """Rings of references would hold weights and whole graphs until the garbage collector comes by."""
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()
    memory.states.requires_grad_()

    def update() -> None:
        decoder(asked, decoder.start(memory, 4)).log_probs.sum().backward()

    def numbers() -> int:
        return sum(one.numel() for one in gc.get_objects() if type(one) is Tensor)

    update()  # whatever is kept once, such as tables of positions, is there now
    gc.collect()
    gc.disable()
    try:
        before = numbers()
        update()
        assert numbers() == before
    finally:
        gc.enable()


@every_decoder
def test_without_a_source_it_is_a_language_model(case) -> None:
    decoder, asked = make_decoder(case, None), tokens()
    whole = decoder(asked, decoder.start(None, 4)).log_probs
    state, pieces = decoder.start(None, 4), []
    for piece in asked.split([1, 2, 3], 1):
        step = decoder(piece, state)
        state = step.state
        pieces.append(step.log_probs)
    assert close(torch.cat(pieces, 1), whole)


@every_decoder
def test_what_is_too_long_is_refused_by_the_length_that_the_decoder_tells(case) -> None:
    """``longest`` tokens can be read, in one call or several, and not one more."""
    kind, settings = case
    inner = settings.get("network", settings)
    if inner.get("positions") == "learned" or kind == "conv":
        small = {**inner, "max_positions": 5}
        decoder = make_decoder((kind, {**settings, "network": small} if "network" in settings else small), None)
    else:
        decoder = make_decoder(case, None)
    if decoder.longest is None:
        decoder(tokens(2, 50), decoder.start(None, 2))
        return
    assert decoder.longest == 5
    state = decoder(tokens(2, 3), decoder.start(None, 2)).state
    state = decoder(tokens(2, 2), state).state
    for begin, length in ((state, 1), (decoder.start(None, 2), 6)):
        with pytest.raises(TooLong):
            decoder(tokens(2, length), begin)


@bounded_decoders
def test_the_state_of_a_bounded_language_model_does_not_grow(case) -> None:
    decoder = make_decoder(case, None)
    few, many = (decoder(tokens(4, length), decoder.start(None, 4)).state for length in (2, 40))
    assert [x.shape for x in leaves(few.carry)] == [x.shape for x in leaves(many.carry)]


@reading_decoders
def test_vectors_read_are_tokens_read(case) -> None:
    """The vectors of tokens, twice, in rows of different length, against the tokens of each row by itself."""
    decoder, first, second, after = make_decoder(case, None), tokens(4, 7), tokens(4, 2, seed=20), tokens(4, 3, seed=21)
    masks = [make_padded().mask, torch.tensor([[True, False], [True, True], [True, True], [True, False]])]
    state, seen = decoder.start(None, 4), []
    for asked, mask in zip((first, second), masks, strict=True):
        vectors = decoder.embedding(asked).masked_fill(~mask[:, :, None], 40.0)
        features, state = decoder.read(Padded(vectors, mask), state)
        seen.append(features)
    together = decoder(after, state).log_probs
    for row in range(4):
        real = [
            asked[row : row + 1, : int(mask[row].sum())] for asked, mask in zip((first, second), masks, strict=True)
        ]
        alone = decoder(torch.cat(real, 1), decoder.start(None, 1))
        features = torch.cat([x[row, : y.shape[1]] for x, y in zip(seen, real, strict=True)])
        assert close(features, alone.features[0])
        assert close(together[row], decoder(after[row : row + 1], alone.state).log_probs[0])


@every_decoder
def test_values_are_what_attention_averages(case) -> None:
    """An encoder may give others than the states that are compared with; those on padding do not count."""
    memory = make_memory()
    decoder, asked = make_decoder(case, memory), tokens()

    def outputs(values: Tensor | None) -> Tensor:
        return decoder(asked, decoder.start(replace(memory, values=values), 4)).log_probs

    plain = outputs(None)
    assert close(outputs(memory.states.clone()), plain)
    other = torch.randn(memory.states.shape, generator=torch.Generator().manual_seed(8))
    found = outputs(other)
    assert close(outputs(other.masked_fill(~memory.mask[..., None], 1e3)), found)
    if decoder.maps:
        assert not close(found, plain)
        attention = [
            decoder(asked, decoder.start(replace(memory, values=one), 4), need_attention=True).attention[:, 0, 0]
            for one in (None, other)
        ]
        assert close(*attention), "in the lowest layer the first token looks by the states alone"
