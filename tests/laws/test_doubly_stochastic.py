"""The term that keeps soft attention from overlooking places, for every decoder that has attention; and the gate."""

from __future__ import annotations

import pytest
import torch
from law_cases import close, make_decoder, make_encoder, make_memory, make_padded
from test_decoders import tokens

from dragoman.config import ConfigError
from dragoman.nn.model import Model
from dragoman.parts import kinds, part
from dragoman.recipe.training import TrainingConfig
from dragoman.training.objective.loss import check_attention, doubly_stochastic

WANTED = TrainingConfig(doubly_stochastic=1.0)


def test_it_is_the_formula() -> None:
    """Xu et al. 2015, eq. 14, in loops; padding of either side counts nothing."""
    torch.manual_seed(0)
    attention = torch.rand(2, 3, 2, 4).softmax(-1)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    regions = torch.tensor([[True] * 4, [True, True, False, False]])
    wanted = 0.0
    for row, (steps, places) in enumerate(((3, 4), (1, 2))):
        for place in range(places):
            looked = sum(float(attention[row, step, :, place].mean()) for step in range(steps))
            wanted += (1 - looked) ** 2
    assert float(doubly_stochastic(attention, mask, regions)) == pytest.approx(wanted, rel=1e-5)


def test_every_place_once_costs_nothing() -> None:
    everywhere = torch.eye(3)[None, :, None]
    full = torch.ones(1, 3, dtype=torch.bool)
    assert doubly_stochastic(everywhere, full, full) == 0
    assert doubly_stochastic(torch.eye(3)[None, [0, 0, 0], None], full, full) == 4 + 1 + 1


@pytest.mark.parametrize("kind", [kind for kind in kinds("decoder") if not part("decoder", kind).reads_source])
def test_its_gradient_reaches_encoder_and_decoder(kind: str) -> None:
    encoder = make_encoder(("rnn", {"width": 6}))
    source = make_padded()
    decoder = make_decoder((kind, {"heads": 3} if kind == "transformer" else {}), encoder(source))
    check_attention(decoder, WANTED)
    memory = encoder(source)
    step = decoder.train()(tokens(), decoder.start(memory, 4), need_attention=True)
    doubly_stochastic(step.attention, torch.ones(4, 6, dtype=torch.bool), memory.mask).backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in decoder.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


def test_teaching_with_a_memory_is_teaching() -> None:
    from test_scheduled_sampling import make_batch, make_model

    model, batch = make_model(("rnn", {})).eval(), make_batch()
    assert isinstance(model, Model)
    plain, told = model.teach(batch), model.teach(batch, model.encode(batch.sources), need_attention=True)
    assert plain.attention is None and told.attention is not None
    assert torch.equal(plain.features, told.features)


@pytest.mark.parametrize(
    ("settings", "sentence"), [({"context": "initial"}, "has none"), ({"selection": "hard"}, "soft attention")]
)
def test_without_soft_attention_it_is_refused(settings: dict[str, str], sentence: str) -> None:
    decoder = make_decoder(("rnn", settings), make_memory())
    check_attention(decoder, TrainingConfig())
    with pytest.raises(ConfigError, match=sentence):
        check_attention(decoder, WANTED)


@pytest.mark.parametrize("timing", ["before", "after"])
def test_a_closed_gate_hides_the_source_from_every_step(timing: str) -> None:
    """Open it is as if there were none; closed the source is seen in the first state alone."""
    memory = make_memory()
    gated = make_decoder(("rnn", {"context_gate": True, "timing": timing, "bridge": "zero"}), memory)
    plain = make_decoder(("rnn", {"timing": timing, "bridge": "zero"}), memory)
    weights = {key: value for key, value in gated.state_dict().items() if not key.startswith("context_gate")}
    plain.load_state_dict(weights)
    other = make_memory(seed=8)

    def run(decoder, memory):
        return decoder(tokens(), decoder.start(memory, 4)).log_probs

    torch.nn.init.zeros_(gated.context_gate.weight)
    torch.nn.init.constant_(gated.context_gate.bias, 40.0)
    assert close(run(gated, memory), run(plain, memory))
    torch.nn.init.constant_(gated.context_gate.bias, -200.0)
    assert close(run(gated, memory), run(gated, other))
    assert not close(run(plain, memory), run(plain, other))
