"""Write a program as one flat binary file, ``model.dragoman``, which the native library reads.

All numbers are little-endian. A file begins with the magic "DRAGOMAN", the format version (int32),
the number of sections (int32) and the size of the file (int64). Then comes one entry for each
section: its kind (int32, the place in ``SECTIONS`` from 1), its number within the kind (int32), its
offset and its size in bytes (int64). Sections begin at multiples of 64, and so do the arrays of
weights, so that a mapped file can be used as it is.

Values have numbers. In ``encode`` these are the sources, then the outputs of the operations in
their order; in ``step`` the token, the fixed values, the slots, then the outputs. -1: absent.

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
    FORMAT,
    HEADER,
    MAGIC,
    SECTIONS,
    Container,
    digest_of,
)  # fmt: skip

SOURCE_KINDS: Final = ("tokens", "frames", "picture")
ABSENT: Final = -1


class Section(NamedTuple):
    """A section beside the program."""

    kind: str
    content: bytes
    number: int = 0  # within the kind


def write_program(program: Program, *, int8: bool = False, more: Sequence[Section] = ()) -> bytes:
    """Return a program as the bytes of a model file. The same program always gives the same bytes.

    ``int8``: store matrices as whole numbers from -127 to 127, each output with a scale of its own.
    ``more``: what else the file has, for those who ask the model.
    """
    encode = _number([source.name for source in program.sources], program.encode)
    step = _number(["token", *program.fixed, *(slot.name for slot in program.slots)], program.step)
    weights = {name: index for index, name in enumerate(program.weights)}
    table, data = _weights(program.weights, int8)
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
    return _join([*(Section(kind, content) for kind, content in sections.items()), *more])


def replace_about(container: Container, changes: Mapping[str, Any]) -> bytes:
    """Return a model file whose section "about" has other values under some keys."""
    facts = json.dumps({**container.about(), **changes}, ensure_ascii=False, sort_keys=True)
    kept = [Section(*each) for each in container.sections() if each[0] != "about"]
    return _join([*kept, Section("about", facts.encode("utf-8", "replace"))])


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


def _weights(weights: Mapping[str, np.ndarray], int8: bool) -> tuple[bytes, bytes]:
    """Return the table of weights, and their data."""
    table, pieces, size = [], [], 0

    def place(array: np.ndarray) -> int:
        nonlocal size
        offset = size
        raw = array.tobytes()
        pieces.append(raw + bytes(-len(raw) % ALIGNMENT))
        size += len(pieces[-1])
        return offset

    for array in weights.values():
        dims = [*array.shape, *[1] * (4 - array.ndim)]
        if int8 and array.ndim > 1:
            whole, scales = quantize(array)
            table.append([1, array.ndim, *dims, place(whole), place(scales)])
        else:
            table.append([0, array.ndim, *dims, place(array.astype("<f4")), 0])
    return np.array(table, "<i8").tobytes(), b"".join(pieces)


def quantize(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an array as int8 and the scale of each entry of its first axis, float32."""
    rows = array.reshape(len(array), -1)
    scales = np.maximum(np.abs(rows).max(1), np.float32(1e-30)) / np.float32(127)
    return np.rint(rows / scales[:, None]).astype(np.int8).reshape(array.shape), scales.astype("<f4")


def _join(sections: Sequence[Section]) -> bytes:
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
    data = bytearray(b"".join([HEADER.pack(MAGIC, FORMAT, len(sections), offset), *entries, *pieces]))
    place = head + -head % ALIGNMENT  # of the digest, the first section
    data[place : place + DIGEST] = digest_of(np.frombuffer(data, np.uint8), place)
    return bytes(data)
