"""A program computes what the module does: encoding and three steps, for every part and its settings."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from law_cases import (
    VOCABULARY,
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
    seeded,
)
from test_joined_sources import CASES, make, sources

from dragoman.config import TooLong
from dragoman.errors import UserError
from dragoman.nn.contracts import Encoder
from dragoman.nn.frontends.frames import FramesFrontend
from dragoman.nn.frontends.picture import PictureFrontend
from dragoman.nn.frontends.text import TextFrontend
from dragoman.nn.model import Model
from dragoman.program.native import NativeProgram, available_kernels
from dragoman.program.reference import Reference
from dragoman.program.table import OPERATIONS, Program
from dragoman.types import Memory, Padded

KERNELS = available_kernels()  # empty where the native library is not built
TOKENS = [[3, 7, 1], [5, 5, 2], [0, 1, 9], [4, 8, 6]]


def frames() -> FramesFrontend:
    return FramesFrontend(WIDTH, 0, 0.0, 0, 0.0)


def randomize(model: torch.nn.Module) -> None:
    """Give every parameter and statistic another value, so that none of them can be left out unnoticed."""
    seeded(9)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    for key, buffer in model.named_buffers():
        if key.endswith("running_mean"):
            buffer.normal_(std=0.3)
        elif key.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)


def agree(got: np.ndarray, expected: torch.Tensor) -> None:
    """Compare with a tolerance of 1e-5 of the largest number."""
    wanted = expected.detach().numpy()
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= 1e-5 * max(1.0, np.abs(wanted).max())


@torch.inference_mode()
def check(model: Model, batch: Mapping[str, Padded], rows: int = 4) -> Program:
    """Hold the program of a model against it, row by row of a padded batch."""
    randomize(model)
    model.eval()
    program = model.lower()
    runner = Reference(program)
    tokens = torch.tensor(TOKENS[:rows])
    memory = model.encode(batch)
    step = model(tokens, model.start(memory, rows), need_attention=True)
    logits = step.logits
    for row in range(rows):
        own = {key: cut(source, row).data[0].numpy() for key, source in batch.items()}
        encoded = runner.encode(own)
        if memory is not None:
            states = int(memory.mask[row].sum())
            if memory.summary is not None:
                assert encoded.summary is not None
                agree(encoded.summary, memory.summary[row].flatten()[None])
        slots = encoded.slots
        for t in range(tokens.shape[1]):
            advanced = runner.step(TOKENS[row][t], encoded.fixed, slots, encoded.position + t)
            slots = advanced.slots
            agree(advanced.logits, logits[row, t])
            if step.attention is not None:
                assert advanced.attention is not None
                agree(advanced.attention, step.attention[row, t, :, :states])
    check_native(program, batch, logits, step.attention, memory)
    return program


def check_native(
    program: Program,
    batch: Mapping[str, Padded],
    logits: torch.Tensor,
    attention: torch.Tensor | None,
    memory: Memory | None,
) -> None:
    """Hold the native library against the module: all rows in one batch, on every instruction set."""
    for kernels in KERNELS:
        runner = NativeProgram(program, kernels=kernels)
        rows = len(logits)
        encoded = runner.encode(
            [{key: cut(source, row).data[0].numpy() for key, source in batch.items()} for row in range(rows)]
        )
        if memory is not None and memory.summary is not None:
            assert encoded.summary is not None
            agree(encoded.summary, memory.summary.flatten(1))
        slots = encoded.slots
        for t in range(logits.shape[1]):
            tokens = np.array([TOKENS[row][t] for row in range(rows)])
            given = (np.arange(rows), encoded.lengths, encoded.fixed, slots, encoded.position + t, encoded.cached + t)
            advanced = runner.step(tokens, *given, attention=True)
            slots = advanced.slots
            agree(advanced.log_probs, logits[:, t].log_softmax(-1))
            if attention is not None:
                assert advanced.attention is not None
                agree(advanced.attention, attention[:, t, :, : advanced.attention.shape[2]])


@pytest.mark.parametrize("case", list(lowered_decoders()), ids=name)
def test_decoders(case: tuple[str, dict[str, Any]]) -> None:
    reads = case[0] == "concat"
    encoder = make_encoder(("identity", {}) if reads else ("rnn", {"width": 6, "layers": 2}))
    source = make_padded()
    memory: Memory = encoder(source)
    model = Model({"x": frames()}, {"x": encoder}, make_decoder(case, memory))
    check(model, {"x": source})


@pytest.mark.parametrize("case", list(lowered_decoders()), ids=name)
def test_decoders_as_language_models(case: tuple[str, dict[str, Any]]) -> None:
    try:
        decoder = make_decoder(case, None)
    except UserError:
        pytest.skip("this decoder needs a source")
    check(Model({}, {}, decoder), {})


@pytest.mark.parametrize("case", list(encoders()), ids=name)
def test_encoders(case: tuple[str, dict[str, Any]]) -> None:
    encoder: Encoder = make_encoder(case)
    source = make_source(encoder)
    seeded(4)
    frontend: Any = frames()
    if encoder.reads == "picture":
        frontend = PictureFrontend([0.1 * i for i in range(WIDTH)], [0.01 * (i + 1) for i in range(WIDTH)])
        source = Padded(source.data * source.mask[..., None], source.mask)
    memory = encoder(source)
    decoder = make_decoder(("rnn", {"timing": "before"}), rows_of(memory, [0]))
    check(Model({"x": frontend}, {"x": encoder}, decoder), {"x": source})


@pytest.mark.parametrize("kinds", CASES, ids=" ".join)
def test_several_sources(kinds: tuple[str, ...]) -> None:
    own, joined = make(kinds)
    batch = sources(own)
    memory = joined({key: encoder(batch[key]) for key, encoder in own.items()})
    decoder = make_decoder(("rnn", {"input_feeding": True}), memory)
    check(Model({key: frames() for key in own}, own, decoder, joined), batch)


TAGS = np.arange(VOCABULARY) % 3 == 1


def tagged() -> tuple[TextFrontend, Padded]:
    """Return a frontend that knows tags, and rows with tags at either end, in the middle, nowhere and nothing else."""
    seeded(8)
    frontend = TextFrontend(WIDTH, 0.0, np.zeros(VOCABULARY), 1, tags=TAGS)
    tokens = torch.tensor([[1, 4, 2, 5, 7, 0, 1], [2, 3, 5, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0, 0], [2, 7, 4, 5, 8, 0, 0]])
    return frontend, Padded(tokens, torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None])


@pytest.mark.parametrize("case", [case for case in encoders() if case[0] != "grid"], ids=name)
def test_tags(case: tuple[str, dict[str, Any]]) -> None:
    frontend, source = tagged()
    encoder = make_encoder(case)
    decoder = make_decoder(("rnn", {"timing": "before"}), encoder(frontend(source)))
    check(Model({"x": frontend}, {"x": encoder}, decoder), {"x": source})


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_more_positions_than_a_program_counts_are_refused(positions: str) -> None:
    frontend, source = tagged()
    settings = {"positions": positions, "width": 12, "layers": 1, "heads": 3, "max_positions": 512}
    encoder = make_encoder(("transformer", settings))
    decoder = make_decoder(("rnn", {"timing": "before"}), encoder(frontend(source)))
    model = Model({"x": frontend}, {"x": encoder}, decoder)
    program = model.eval().lower()
    tokens = torch.arange(513)[None] % VOCABULARY
    with torch.inference_mode():
        memory = model.encode({"x": Padded(tokens[:, :512], torch.ones(1, 512, dtype=torch.bool))})
    assert memory is not None and memory.summary is not None
    summary = Reference(program).encode({"x": tokens[0, :512].numpy()}).summary
    assert summary is not None
    agree(summary, memory.summary[0].flatten()[None])
    with pytest.raises(TooLong):
        Reference(program).encode({"x": tokens[0].numpy()})


@pytest.mark.parametrize("int8", [False, True])
def test_positions_are_counted_in_files_too(int8: bool) -> None:
    """Whole numbers of 8 bits are too coarse to count with, so what counts is not rounded."""
    if not KERNELS:
        pytest.skip("the native library is not built")
    frontend, _ = tagged()
    encoder = make_encoder(("transformer", {"width": 12, "layers": 1, "heads": 3, "feed_forward": 16}))
    tokens = torch.arange(300)[None] % VOCABULARY
    source = Padded(tokens, torch.ones(1, 300, dtype=torch.bool))
    decoder = make_decoder(("rnn", {"timing": "before"}), encoder(frontend(source)))
    model = Model({"x": frontend}, {"x": encoder}, decoder).eval()
    with torch.inference_mode():
        memory = model.encode({"x": source})
        plain = Model({"x": frontend}, {"x": encoder}, decoder).encoders["x"](
            Padded(frontend(source).data, source.mask)
        )
    assert memory is not None and memory.summary is not None and plain.summary is not None
    found = NativeProgram(model.lower(), int8=int8).encode([{"x": tokens[0].numpy()}]).summary
    assert found is not None
    expected, other = (each.flatten(1).numpy() for each in (memory.summary, plain.summary))
    error = np.abs(found - expected).max()
    assert error < (0.1 * np.abs(other - expected).max() if int8 else 1e-5)


@pytest.mark.parametrize("by_sentence", [False, True])
def test_text(by_sentence: bool) -> None:
    seeded(8)
    ends = np.arange(VOCABULARY) % 3 == 2
    frontend = TextFrontend(WIDTH, 0.0, np.zeros(VOCABULARY), 1, ends if by_sentence else None)
    tokens = torch.tensor([[1, 2, 4, 5, 7, 0, 8], [1, 3, 5, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0], [2, 2, 2, 5, 8, 0, 0]])
    lengths = torch.tensor([7, 3, 1, 5])
    source = Padded(tokens, torch.arange(7) < lengths[:, None])
    encoder = make_encoder(("transformer", {"width": 12, "layers": 1, "heads": 3, "feed_forward": 16}))
    memory = encoder(frontend(source))
    model = Model({"x": frontend}, {"x": encoder}, make_decoder(("transformer", {"heads": 3}), memory))
    model.ctc = torch.nn.Linear(12, VOCABULARY)  # the blank is the symbol of padding, as in `build_model`
    program = check(model, {"x": source})
    ctc = Reference(program).encode({"x": tokens[0].numpy()}).ctc
    assert ctc is not None
    with torch.inference_mode():
        states = model.encode({"x": Padded(tokens[:1], source.mask[:1])})
        assert states is not None
        agree(ctc, model.ctc(states.states)[0])


def test_the_same_model_gives_the_same_program() -> None:
    encoder = make_encoder(("rnn", {"width": 6}))
    model = Model({"x": frames()}, {"x": encoder}, make_decoder(("rnn", {}), encoder(make_padded()))).eval()
    first, second = model.lower(), model.lower()
    assert first.encode == second.encode and first.step == second.step and first.slots == second.slots
    assert list(first.weights) == list(second.weights)
    assert all(np.array_equal(first.weights[key], second.weights[key]) for key in first.weights)


def test_shared_weights_are_stored_once() -> None:
    model = Model({}, {}, make_decoder(("transformer", {"heads": 3}), None)).eval()
    assert model.lower().size == model.parameters_count


def test_every_operation_is_used_by_some_part() -> None:
    used = set()
    cases: list[tuple[Any, Any]] = [*itertools.product(encoders(), [("rnn", {"timing": "before"})])]
    cases += [
        *itertools.product([("rnn", {"width": 6, "layers": 2})], lowered_decoders()),
        (("identity", {}), next(lowered_decoders())),
    ]
    for encoder_case, decoder_case in cases:
        encoder = make_encoder(encoder_case)
        memory = encoder(make_source(encoder))
        if decoder_case[0] == "concat" and encoder_case[0] != "identity":
            continue
        frontend = PictureFrontend([0.0] * WIDTH, [1.0] * WIDTH) if encoder.reads == "picture" else frames()
        program = Model({"x": frontend}, {"x": encoder}, make_decoder(decoder_case, memory)).eval().lower()
        used |= {operation.kind for operation in (*program.encode, *program.step)}
    assert used | {"pool_sentences"} == set(OPERATIONS)  # sentences: see test_text


def test_a_part_without_a_program_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = make_encoder(("identity", {}))
    model = Model({"x": frames()}, {"x": encoder}, make_decoder(("rnn", {"bridge": "zero"}), encoder(make_padded())))
    monkeypatch.delattr(type(encoder), "lower")
    with pytest.raises(UserError, match=r"the encoder 'identity' .* has no `lower` method"):
        model.lower()
