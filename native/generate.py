"""Write native/operations.h from the table of operations. ``--check`` only tells whether it is fresh."""

from __future__ import annotations

import sys
from pathlib import Path

from dragoman.program.table import ACTIVATIONS, AXES, CELLS, GRIDS, OPERATIONS, VERSION, Kind

HEADER = Path(__file__).parent / "operations.h"
TYPES = {"int": 0, "float": 1, "word": 2}


def main() -> None:
    text = render()
    if "--check" not in sys.argv[1:]:
        HEADER.write_text(text, encoding="utf-8")
    elif HEADER.read_text(encoding="utf-8") != text:
        sys.exit("native/operations.h is not fresh: run python native/generate.py")


def render() -> str:
    """Return the header as text."""
    lines = [
        "/* Generated from src/dragoman/program/table.py by native/generate.py. Do not edit. */",
        "#ifndef DRAGOMAN_OPERATIONS_H",
        "#define DRAGOMAN_OPERATIONS_H",
        "",
        f"enum {{ PROGRAM_VERSION = {VERSION} }};",
        "",
        "/* The kinds of operations, by their numbers in files. */",
        "enum operation_kind {",
        *(f"    OP_{name.upper()}," for name in OPERATIONS),
        "    OP_COUNT,",
        "};",
        "",
        "/* The words that settings may be. */",
    ]
    for title, words in (("ACT", ACTIVATIONS), ("AXIS", AXES), ("CELL", CELLS), ("GRID", GRIDS)):
        lines.append(f"enum {{ {', '.join(f'{title}_{word.upper()}' for word in words)}, {title}_COUNT }};")
    lines += ["", "/* The place of each setting among those of its operation. */"]
    for name, kind in OPERATIONS.items():
        if kind.settings:
            places = ", ".join(f"{name.upper()}_{setting.name.upper()}" for setting in kind.settings)
            lines.append(f"enum {{ {places} }};")
    lines += [
        "",
        "/* How many inputs, outputs, weights and settings an operation has; inputs -1: two or more. A bit of",
        " * `needed_*` is 1 where the name may not be absent; `setting_types`: 0 int, 1 float, 2 word, and the",
        " * number of words. */",
        "struct operation_form {",
        "    const char *name;",
        "    int inputs, outputs, weights, settings;",
        "    unsigned needed_inputs, needed_outputs, needed_weights;",
        "    signed char setting_types[4], setting_words[4];",
        "};",
        "",
        "static const struct operation_form operation_forms[OP_COUNT] = {",
        *(_form(name, kind) for name, kind in OPERATIONS.items()),
        "};",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _form(name: str, kind: Kind) -> str:
    inputs = -1 if kind.inputs == ("*",) else len(kind.inputs)
    counts = f"{inputs}, {len(kind.outputs)}, {len(kind.weights)}, {len(kind.settings)}"
    needed = ", ".join(str(_needed(names)) for names in (kind.inputs, kind.outputs, kind.weights))
    types = ", ".join(str(TYPES[setting.kind]) for setting in kind.settings) or "0"
    words = ", ".join(str(len(setting.words)) for setting in kind.settings) or "0"
    return f'    {{"{name}", {counts}, {needed}, {{{types}}}, {{{words}}}}},'


def _needed(names: tuple[str, ...]) -> int:
    return sum(1 << index for index, name in enumerate(names) if not name.endswith("?") and name != "*")


if __name__ == "__main__":
    main()
