"""Write a program as one flat binary file, ``model.dragoman``, which the native library reads.

All numbers are little-endian. A file begins with the magic "DRAGOMAN", the format version (int32),
the number of sections (int32) and the size of the file (int64). Then comes one entry for each
section: its kind (int32, the place in ``SECTIONS`` from 1), its number within the kind (int32), its
offset and its size in bytes (int64). Sections begin at multiples of 64, and so do the arrays of
weights, so that a mapped file can be used as it is.

Values have numbers. In ``encode`` these are the sources, then the outputs of the operations in
their order; in ``step`` the token, the fixed values, the slots, then the outputs. -1: absent.

The table of weights has eight int64 for each: its form, the number of its axes, its four sides (1
where it has fewer axes), the offset of its data, and that of its scales, both within the section
"data". Form 0 is float32. Form n from 1 to 3 has an int8 for each weight, then n - 1 further bits for
each, packed from the lowest bit of a byte on (``quantize``), and one float32 scale for each entry of
the first axis. Forms 2 and 3 came with format version 2; files without them have version 1.

The library needs the sections up to "strings". The others are for whoever asks the model:

digest      SHA-256 of the file, in which these 32 bytes count as zeros
tokenizer   the table of a tokeniser (native/tokenizer.h); its number is that of the source, or the
            number of sources for the target; a tokeniser that is used twice is stored once
settings    float64: search settings in the order of enum dragoman_setting (native/dragoman.h), from
            DRAGOMAN_BOS to DRAGOMAN_SEED; then ratio, extra, most and characters: an output has at
            most min(most, ceil(ratio * source length) + extra) tokens, an input so many characters
            (0: any number)
forbidden   int32: the number of sequences of token ids that no output has, then the length and the
            ids of each
only        int32, in the same form: the sequences of which every output is one (without the end
            symbol); missing or none: any output
about       a JSON object, which says where the model comes from and what its sources are
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from dragoman.program.table import OPERATIONS, Operation, Program, Setting, SettingValue
from dragoman.runtime.container import (
    ALIGNMENT,
    DIGEST,
    ENTRY,
    FORMATS,
    HEADER,
    MAGIC,
    SECTIONS,
    Container,
    digest_of,
)  # fmt: skip

SOURCE_KINDS: Final = ("tokens", "frames", "picture")
ABSENT: Final = -1
PLAIN_FORMAT, FINE_FORMAT = FORMATS
FINE_BITS: Final = 2  # that int8 matrices have beside the 8 which products of bytes use (decision 0033)
FINE_BITS_OF_GATES: Final = 1  # of the matrices of recurrent layers


class Section(NamedTuple):
    """A section beside the program."""

    kind: str
    content: bytes
    number: int = 0  # within the kind


def write_program(program: Program, *, int8: bool = False, more: Sequence[Section] = ()) -> bytes:
    """Return a program as the bytes of a model file. The same program always gives the same bytes.

    ``int8``: store matrices as whole numbers from -127 to 127, each output with a scale of its own, and
    one or two further bits of each weight, which only products of floats use.
    ``more``: what else the file has, for those who ask the model.
    """
    encode = _number([source.name for source in program.sources], program.encode)
    step = _number(["token", *program.fixed, *(slot.name for slot in program.slots)], program.step)
    weights = {name: index for index, name in enumerate(program.weights)}
    table, data = _weights(program.weights, _fine_bits(program) if int8 else {})
    strings, places = b"", []
    for source in program.sources:
        places.append(len(strings))
        strings += source.name.encode() + b"\0"
    sections = {
        "program": _ints(
            [program.version, program.vocabulary, step[program.logits]],
            [encode.get(name, ABSENT) for name in (program.states, program.begin, program.ctc, program.summary)],
            [len(program.sources), len(program.fixed), len(program.slots), len(program.attention)],
            [len(program.weights), len(program.encode), len(program.step)],
            [encode[name] for name in program.fixed],
            [step[name] for name in program.attention],
        ),
        "sources": _ints(
            *([SOURCE_KINDS.index(each.kind), each.width, at] for each, at in zip(program.sources, places, strict=True))
        ),
        "slots": _ints(
            *(
                [slot.width, slot.rows, encode[slot.begin] if slot.begin else ABSENT, step[slot.end], int(slot.grows)]
                for slot in program.slots
            )
        ),
        "encode": b"".join(_operation(each, encode, weights) for each in program.encode),
        "step": b"".join(_operation(each, step, weights) for each in program.step),
        "weights": table,
        "data": data,
        "strings": strings,
    }
    format = FINE_FORMAT if int8 else PLAIN_FORMAT
    return _join([*(Section(kind, content) for kind, content in sections.items()), *more], format)


def replace_about(container: Container, changes: Mapping[str, Any]) -> bytes:
    """Return a model file whose section "about" has other values under some keys."""
    facts = json.dumps({**container.about(), **changes}, ensure_ascii=False, sort_keys=True)
    kept = [Section(*each) for each in container.sections() if each[0] != "about"]
    return _join([*kept, Section("about", facts.encode("utf-8", "replace"))], container.format)


def _number(given: Sequence[str], operations: Iterable[Operation]) -> dict[str, int]:
    """Return the number of each value by its name."""
    outputs = (name for operation in operations for name in operation.outputs if name)
    return {name: index for index, name in enumerate(chain(given, outputs))}


def _ints(*parts: Iterable[int]) -> bytes:
    return np.fromiter(chain.from_iterable(parts), "<i4").tobytes()


def _operation(operation: Operation, values: Mapping[str, int], weights: Mapping[str, int]) -> bytes:
    """Return an operation: kind, number of inputs, inputs, which outputs there are, weights, settings."""
    head = _ints(
        [list(OPERATIONS).index(operation.kind), len(operation.inputs)],
        [values[name] if name else ABSENT for name in operation.inputs],
        [int(bool(name)) for name in operation.outputs],
        [weights[name] if name else ABSENT for name in operation.weights],
    )
    form = OPERATIONS[operation.kind].settings
    return head + b"".join(_setting(setting, operation.settings[setting.name]) for setting in form)


def _setting(setting: Setting, value: SettingValue) -> bytes:
    if setting.kind == "float":
        return struct.pack("<f", value)
    return struct.pack("<i", setting.words.index(str(value)) if setting.kind == "word" else value)


def _fine_bits(program: Program) -> dict[str, int]:
    """Return how many further bits each matrix gets; one that several operations read, the most of them.

    A matrix of one column is left out: with a scale for each row it would only get larger.
    """
    bits: dict[str, int] = {}
    for operation in (*program.encode, *program.step):
        for name in operation.weights:
            if name and program.weights[name].ndim > 1 and program.weights[name][0].size > 1:
                own = FINE_BITS_OF_GATES if operation.kind == "recurrent" else FINE_BITS
                bits[name] = max(own, bits.get(name, 0))
    return bits


def _weights(weights: Mapping[str, np.ndarray], fine_bits: Mapping[str, int]) -> tuple[bytes, bytes]:
    """Return the table of weights, and their data. Those that ``fine_bits`` names are quantised."""
    table, pieces, size = [], [], 0
    scales_of: dict[int, np.ndarray] = {}  # by the place in the table; they come last, alike beside alike

    def place(array: np.ndarray) -> int:
        nonlocal size
        offset = size
        raw = array.tobytes()
        pieces.append(raw + bytes(-len(raw) % ALIGNMENT))
        size += len(pieces[-1])
        return offset

    for index, (name, array) in enumerate(weights.items()):
        dims = [*array.shape, *[1] * (4 - array.ndim)]
        if name in fine_bits:
            whole, fine, scales_of[index] = quantize(array, fine_bits[name])
            numbers = np.concatenate([whole.reshape(-1).view(np.uint8), fine])
            table.append([1 + fine_bits[name], array.ndim, *dims, place(numbers), 0])
        else:
            table.append([0, array.ndim, *dims, place(array.astype("<f4")), 0])
    for index, scales in scales_of.items():
        table[index][-1] = place(scales)
    return np.array(table, "<i8").tobytes(), b"".join(pieces)


def quantize(array: np.ndarray, fine_bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an array as int8, its further bits packed as bytes, and the scale of each entry of its first axis.

    ``whole`` is the array rounded to 8 bits. ``fine`` says in which of 2 ** fine_bits equal parts of the interval
    around it, from -1/2 to 1/2, a weight lies: it is taken for (whole + (fine + 1/2) / 2 ** fine_bits - 1/2) * scale.
    """
    rows = array.reshape(len(array), -1)
    scales = _round_up(np.maximum(np.abs(rows).max(1), np.float32(1e-30)) / np.float32(127))
    scaled = rows / scales[:, None]
    whole = np.rint(scaled)
    parts = 1 << fine_bits
    fine = np.clip(np.floor((scaled - whole + np.float32(0.5)) * parts), 0, parts - 1).astype(np.uint8)
    bits = fine.reshape(-1, 1) >> np.arange(fine_bits, dtype=np.uint8) & 1
    return whole.astype(np.int8).reshape(array.shape), np.packbits(bits, bitorder="little"), scales


def _round_up(scales: np.ndarray) -> np.ndarray:
    """Return positive float32 rounded up to 8 significant bits: the zeros behind them compress to nothing."""
    return (scales.astype("<f4").view("<u4") + np.uint32(0xFFFF) & np.uint32(0xFFFF0000)).view("<f4")


def _join(sections: Sequence[Section], format: int = PLAIN_FORMAT) -> bytes:
    sections = [Section("digest", bytes(DIGEST)), *sections]
    head = HEADER.size + ENTRY.size * len(sections)
    entries, pieces, offset = [], [bytes(-head % ALIGNMENT)], head + -head % ALIGNMENT
    places: dict[bytes, int] = {}  # of tables, which several sides may share
    for kind, content, number in sections:
        known = places.get(content) if kind == "tokenizer" else None
        entries.append(ENTRY.pack(SECTIONS.index(kind) + 1, number, offset if known is None else known, len(content)))
        if known is None:
            if kind == "tokenizer":
                places[content] = offset
            pieces.append(content + bytes(-len(content) % ALIGNMENT))
            offset += len(pieces[-1])
    data = bytearray(b"".join([HEADER.pack(MAGIC, format, len(sections), offset), *entries, *pieces]))
    place = head + -head % ALIGNMENT  # of the digest, the first section
    data[place : place + DIGEST] = digest_of(np.frombuffer(data, np.uint8), place)
    return bytes(data)
