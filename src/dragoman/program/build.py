"""Collect the operations of a program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.program.table import OPERATIONS, Operation, Program, SettingValue, Slot, Source


class Builder:
    """Collects operations, first those of ``encode``, then those of ``step``.

    Names of values are made here and are the same whenever the same calls are made.
    """

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._encode: list[Operation] = []
        self._step: list[Operation] = []
        self._current = self._encode
        self._fixed: list[str] = []
        self._slots: list[Slot] = []
        self._weights: dict[str, np.ndarray] = {}
        self._count = 0
        self.states = ""
        self.begin = ""
        self.ctc = ""
        self.summary = ""

    def source(self, source: Source) -> str:
        """Add a source and return the name of its value."""
        self._sources.append(source)
        return source.name

    def weight(self, name: str, array: np.ndarray) -> str:
        """Store an array by a name and return the name. A name has one array."""
        known = self._weights.get(name)
        if known is None:
            self._weights[name] = np.ascontiguousarray(array, dtype=np.float32)
        elif known.shape != array.shape or not np.array_equal(known, array, equal_nan=True):
            raise ValueError(f"two different weights have the name {name!r}")
        return name

    def add(self, kind: str, *inputs: str, weights: Sequence[str] = (), **settings: SettingValue) -> str:
        """Add an operation and return the name of its first output."""
        return self.add_all(kind, *inputs, weights=weights, **settings)[0]

    def add_all(
        self, kind: str, *inputs: str, weights: Sequence[str] = (), **settings: SettingValue
    ) -> tuple[str, ...]:
        """Add an operation and return the names of its outputs."""
        form = OPERATIONS[kind]
        known = {setting.name: setting.default for setting in form.settings}
        unknown = settings.keys() - known.keys()
        if unknown:
            raise ValueError(f"{kind} has no setting {sorted(unknown)}")
        if form.inputs != ("*",):
            inputs = (*inputs, *[""] * (len(form.inputs) - len(inputs)))
        weights = (*weights, *[""] * (len(form.weights) - len(weights)))
        outputs = []
        for output in form.outputs:
            is_absent = output.endswith("?") and settings.get("cell", "lstm") != "lstm"
            outputs.append("" if is_absent else f"{kind}.{self._count}.{output.rstrip('?')}")
        self._count += 1
        self._current.append(Operation(kind, inputs, tuple(outputs), weights, {**known, **settings}))
        return tuple(outputs)

    def begin_step(self) -> None:
        """Go on with the operations of ``step``."""
        self._current = self._step

    def fix(self, value: str) -> str:
        """Let ``step`` read a value of ``encode``, and return its name."""
        if value not in self._fixed:
            self._fixed.append(value)
        return value

    def slot(self, name: str, width: int, rows: int, begin: str, end: str, grows: bool = False) -> None:
        """Add a piece of the state of a hypothesis."""
        self._slots.append(Slot(name, width, rows, begin, end, grows))

    def finish(self, vocabulary: int, logits: str, attention: Sequence[str]) -> Program:
        """Return the program."""
        return Program(
            vocabulary,
            tuple(self._sources),
            tuple(self._encode),
            tuple(self._fixed),
            tuple(self._slots),
            tuple(self._step),
            logits,
            tuple(attention),
            self.states,
            self.begin,
            self.ctc,
            self.summary,
            dict(self._weights),
        )
