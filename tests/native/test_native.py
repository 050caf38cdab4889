"""The native library: batches do not matter, int8 is close, wrong files and inputs are refused."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dragoman.config import TooLong
from dragoman.errors import UserError
from dragoman.program import file
from dragoman.program.build import Builder
from dragoman.program.file import quantize, write_program
from dragoman.program.native import EncodedBatch, NativeProgram, available_kernels
from dragoman.program.table import Program, Source
from dragoman.runtime.container import ENTRY, HEADER, SECTIONS, Container
from dragoman.runtime.opened import FACTS

ROOT = Path(__file__).parents[2]
KERNELS = available_kernels()
needs_library = pytest.mark.skipif(not KERNELS, reason="the native library is not built; `make native` builds it")
VOCABULARY, WIDTH, HEADS = 97, 36, 3


def make_program(longest: int = 0) -> Program:
    """A small Transformer-like program: learned or sinusoidal positions, self-attention, a recurrent layer, caches."""
    random = np.random.default_rng(3)
    builder = Builder()

    def weight(name: str, *shape: int) -> str:
        return builder.weight(name, (random.normal(size=shape) * 0.3).astype(np.float32))

    def linear(x: str, name: str, outputs: int, inputs: int, activation: str = "none") -> str:
        return builder.add("linear", x, weights=(weight(name, outputs, inputs),), activation=activation)

    tokens = builder.source(Source("x", "tokens", VOCABULARY))
    table = weight("table", VOCABULARY, WIDTH)
    places = (weight("places", longest, WIDTH),) if longest else ()
    x = builder.add("positions", builder.add("embed", tokens, weights=(table,), scale=2.0), weights=places)
    x = builder.add("self_attention", linear(x, "qkv", 3 * WIDTH, WIDTH), heads=HEADS)
    gates = (weight("in", 4 * WIDTH, WIDTH), weight("own", 4 * WIDTH, WIDTH), weight("bias", 4 * WIDTH))
    x = builder.add("recurrent", x, weights=gates, reverse=1)
    builder.states = x
    keys, values = builder.fix(linear(x, "keys", WIDTH, WIDTH)), builder.fix(x)
    builder.begin_step()
    y = builder.add("positions", builder.add("embed", "token", weights=(table,), scale=2.0))
    y, key, value = builder.add_all("cached_attention", linear(y, "past", 3 * WIDTH, WIDTH), "k", "v", heads=HEADS)
    builder.slot("k", WIDTH, 0, "", key, grows=True)
    builder.slot("v", WIDTH, 0, "", value, grows=True)
    context, weights = builder.add_all("cross_attention", y, keys, values, heads=HEADS, scale=0.3)
    y = linear(builder.add("add", y, context), "inner", 2 * WIDTH, WIDTH, "relu")
    logits = linear(linear(y, "outer", WIDTH, 2 * WIDTH, "tanh"), "out", VOCABULARY, WIDTH)
    return builder.finish(VOCABULARY, logits, [weights])


def make_inputs(count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(5)
    return [{"x": random.integers(0, VOCABULARY, size=random.integers(1, 40))} for _ in range(count)]


def advance(runner: NativeProgram, encoded: EncodedBatch, steps: int) -> list[np.ndarray]:
    """Feed each source some tokens, and return the log-probabilities after each."""
    rows = len(encoded.lengths)
    slots, results = encoded.slots, []
    for t in range(steps):
        tokens = (7 * t + np.arange(rows) * 0 + 1) % VOCABULARY
        given = (np.arange(rows), encoded.lengths, encoded.fixed, slots, encoded.position + t, encoded.cached + t)
        advanced = runner.step(tokens, *given)
        slots = advanced.slots
        results.append(advanced.log_probs)
    return results


@needs_library
@pytest.mark.parametrize("kernels", KERNELS or ("none",))
def test_the_rest_of_a_batch_is_invisible_to_the_last_bit(kernels: str) -> None:
    runner = NativeProgram(make_program(), kernels=kernels)
    inputs = make_inputs(64)
    together = advance(runner, runner.encode(inputs), 6)
    for row in (0, 1, 17, 63):
        alone = advance(runner, runner.encode(inputs[row : row + 1]), 6)
        for one, many in zip(alone, together, strict=True):
            assert np.array_equal(one[0], many[row])


@needs_library
def test_log_probs_are_normalised_and_instruction_sets_agree() -> None:
    inputs = make_inputs(5)
    program = make_program()
    results = []
    for kernels in KERNELS:
        runner = NativeProgram(program, kernels=kernels)
        assert runner.kernels == kernels
        results.append(advance(runner, runner.encode(inputs), 3))
    for step in zip(*results, strict=True):
        assert np.allclose(np.exp(step[0].astype(np.float64)).sum(1), 1, atol=1e-5)
        assert all(np.allclose(step[0], other, atol=1e-4) for other in step)


def dequantize(array: np.ndarray, fine_bits: int) -> np.ndarray:
    """Return what an array is after it was stored with 8 bits and ``fine_bits`` more."""
    whole, fine, scales = quantize(array, fine_bits)
    bits = np.unpackbits(fine, bitorder="little", count=array.size * fine_bits).reshape(array.size, fine_bits)
    part = ((bits << np.arange(fine_bits)).sum(1).reshape(array.shape) + 0.5) / 2**fine_bits
    return ((whole + part - 0.5) * scales.reshape(-1, *[1] * (array.ndim - 1))).astype(np.float32)


@pytest.mark.parametrize("fine_bits", [0, 1, 2])
def test_each_further_bit_halves_the_error_of_int8(fine_bits: int) -> None:
    array = np.random.default_rng(3).normal(size=(7, 5, 3)).astype(np.float32)  # 105: the last byte is not full
    array[2] = 0
    array[4] *= 1e-3
    whole, fine, scales = quantize(array, fine_bits)
    step = scales.reshape(7, 1, 1)
    assert (whole.dtype, whole.shape, fine.size) == (np.int8, array.shape, -(-105 * fine_bits // 8))
    assert np.abs(whole.astype(int)).max() <= 127
    assert np.array_equal(whole, np.rint(array / step))  # products of bytes lose nothing
    assert (np.abs(dequantize(array, fine_bits) - array) <= 0.501 * step / 2**fine_bits).all()
    most = np.abs(array).max((1, 2))
    assert (scales * 127 >= most).all() and (scales * 127 <= most * 1.01 + 1e-28).all()


@needs_library
@pytest.mark.parametrize("format", [1, 2])
def test_int8_weights_are_those_of_the_quantised_arrays(format: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if format == 1:  # as files were written before there were further bits
        for name, value in (("FINE_FORMAT", 1), ("FINE_BITS", 0), ("FINE_BITS_OF_GATES", 0)):
            monkeypatch.setattr(file, name, value)
    program = make_program()
    assert write_program(program, int8=True)[8] == format
    operations = (*program.encode, *program.step)
    gates = {name for each in operations if each.kind == "recurrent" for name in each.weights}
    bits = {name: file.FINE_BITS_OF_GATES if name in gates else file.FINE_BITS for name in program.weights}
    weights = {
        name: dequantize(array, bits[name]) if array.ndim > 1 else array for name, array in program.weights.items()
    }
    inputs = make_inputs(3)
    for kernels in KERNELS:
        quantized = NativeProgram(program, int8=True, kernels=kernels)
        plain = NativeProgram(replace(program, weights=weights), kernels=kernels)
        # Where products of bytes are faster, rows are rounded to 8 bits too.
        tolerance = 0.3 if kernels == "avx512vnni" else 1e-5
        for a, b in zip(*(advance(each, each.encode(inputs), 3) for each in (quantized, plain)), strict=True):
            assert np.allclose(a, b, atol=tolerance)
    assert len(write_program(program, int8=True)) < 0.45 * len(write_program(program))


@pytest.mark.parametrize("int8", [False, True])
def test_a_file_keeps_its_format_when_what_it_says_of_itself_changes(int8: bool) -> None:
    content = write_program(make_program(), int8=int8, more=[file.Section("about", b"{}")])
    container = Container(np.frombuffer(content, np.uint8), "x.dragoman")
    changed = Container(np.frombuffer(file.replace_about(container, {"a": 1}), np.uint8), "y.dragoman")
    assert changed.about() == {"a": 1}
    assert changed.format == container.format == (2 if int8 else 1)
    assert changed.needed("data") == container.needed("data")


@needs_library
def test_wrong_inputs_are_refused_with_a_sentence() -> None:
    runner = NativeProgram(make_program())
    with pytest.raises(UserError, match="a token that the model does not know"):
        runner.encode([{"x": np.array([VOCABULARY])}])
    with pytest.raises(UserError, match="impossible length"):
        runner.encode([{"x": np.array([], np.int32)}])
    with pytest.raises(TooLong, match="longer than the 8 that the model knows"):
        NativeProgram(make_program(longest=8)).encode([{"x": np.arange(9)}])
    with pytest.raises(UserError, match="instruction set"):
        NativeProgram(make_program(), kernels="abacus")


@needs_library
def test_damaged_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_program()
    good = write_program(program)
    other_width = good.replace((3 * WIDTH).to_bytes(8, "little"), (3 * WIDTH + 1).to_bytes(8, "little"))
    for damaged in (b"", good[:20], good[:-64], b"DRAGOMAM" + good[8:], good[:8] + b"\7" + good[9:], other_width):
        monkeypatch.setattr("dragoman.program.native.write_program", lambda *a, damaged=damaged, **k: damaged)
        with pytest.raises(UserError, match=r"cannot run this model: .+"):
            NativeProgram(program)


@needs_library
def test_impossible_programs_are_refused() -> None:
    def refuse(match: str, begin: int = 0, width: int = WIDTH) -> None:
        builder = Builder()
        tokens = builder.source(Source("x", "tokens", VOCABULARY))
        table = builder.weight("table", np.ones((VOCABULARY, WIDTH), np.float32))
        filters = builder.weight("filters", np.ones((WIDTH, 3, WIDTH), np.float32))
        x = builder.add("embed", tokens, weights=(table,))
        builder.states = builder.fix(builder.add("convolve", x, weights=(filters,), before=begin))
        builder.begin_step()
        y = builder.add("embed", "token", weights=(table,))
        logits = builder.add("linear", y, weights=(table,))
        builder.slot("last", width, 1, "", logits if width == VOCABULARY else y)
        with pytest.raises(UserError, match=match):
            NativeProgram(builder.finish(VOCABULARY, logits, []))

    refuse("convolve.*a setting is impossible", begin=4)
    refuse("a slot becomes the logits", width=VOCABULARY)


@needs_library
def test_weights_that_share_their_data_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_program()
    content = write_program(program)
    entries = [ENTRY.unpack_from(content, HEADER.size + ENTRY.size * index) for index in range(9)]
    ((offset, size),) = [(at, size) for kind, _, at, size in entries if SECTIONS[kind - 1] == "weights"]
    table = np.frombuffer(content, "<i8", size // 8, offset).reshape(-1, 8).copy()
    assert (table[:, 6] > 0).sum() == len(table) - 1  # where the data of each begin: only those of the first at 0
    largest = table[:, 2:6].prod(1).argmax()
    table[:, :7] = table[largest, :7]
    damaged = content[:offset] + table.tobytes() + content[offset + size :]
    monkeypatch.setattr("dragoman.program.native.write_program", lambda *a, **k: damaged)
    with pytest.raises(UserError, match="the program is damaged"):
        NativeProgram(program)


def test_a_program_always_gives_the_same_bytes() -> None:
    assert write_program(make_program()) == write_program(make_program())
    assert len(write_program(make_program())) % 64 == 0


def test_the_header_of_operations_is_fresh() -> None:
    render = runpy.run_path(str(ROOT / "native" / "generate.py"))["render"]
    assert render() == (ROOT / "native" / "operations.h").read_text(encoding="utf-8")


def test_the_numbers_of_facts_in_the_binding_are_those_of_the_header() -> None:
    header = (ROOT / "native" / "dragoman.h").read_text(encoding="utf-8")
    facts = re.findall(r"DRAGOMAN_\w+", re.search(r"enum dragoman_fact \{(.*?)\}", header, re.DOTALL)[1])  # type: ignore[index]
    assert [name.removeprefix("DRAGOMAN_").lower() for name in facts] == list(FACTS)
