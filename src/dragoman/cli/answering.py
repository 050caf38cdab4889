"""How ``predict`` answers: inputs are read in chunks, answered in order, and written as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import typer

from dragoman.cli.counting import LiveCount, is_terminal
from dragoman.cli.messages import Messages
from dragoman.cli.output import Shard, open_also, open_output
from dragoman.cli.timings import SUFFIXES, TimingFiles, write_timings
from dragoman.errors import UserError
from dragoman.process.devices import available_cores

if TYPE_CHECKING:
    from dragoman.inference.inputs import Input, InputReader
    from dragoman.inference.predictions import Prediction, Raw
    from dragoman.inference.session import Session

Item = TypeVar("Item")

SHOWN = 5  # places that a message names; it counts the others
PROBLEMS = 20  # inputs that could not be read which have a message of their own


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options ask of the answers: how they are computed, what is in them, and where they go."""

    batch: int
    workers: int | None
    prefix: str | None
    confidence: bool
    abstain: float | None
    abstain_file: Path | None
    as_json: bool
    maps: bool
    alternatives: int
    alignments: bool
    align_unit: str
    timings: str | None
    out: Path | None
    resume: bool
    part: Shard

    def chunk_size(self, files: Sequence[str]) -> int:
        """Return how many inputs are read before they are answered.

        At a terminal, and with ``--batch 1``, each line is answered before the next one is read.
        """
        is_typed = list(files) == ["-"] and is_terminal("stdin")
        return 1 if self.batch == 1 or is_typed else 16 * self.batch * (self.workers or available_cores())


class Answering:
    """Answers inputs, and counts what people have to know about them afterwards."""

    def __init__(self, session: Session, reader: InputReader, asked: Asked, messages: Messages) -> None:
        self.session, self.reader, self.asked, self.messages = session, reader, asked, messages
        self.done = self.written = 0  # inputs with a line, and those that had one before
        self.failed = 0  # inputs that could not be read or have no output
        self.abstained = 0
        self.unfinished: list[int] = []  # numbers of inputs: the first few
        self.unfinished_count = 0
        self._noted = False  # that the confidence was fitted for another search

    def answer(self, files: Sequence[str]) -> None:
        """Answer the inputs of the files and write a line for each, or files with times."""
        asked = self.asked
        files_of_times = None
        if asked.timings in SUFFIXES:
            assert asked.timings is not None
            files_of_times = TimingFiles(asked.timings, asked.out)
        is_elsewhere = asked.out is not None or not is_terminal("stdout")  # the outputs do not show how far it is
        is_shown = is_terminal("stderr") and is_elsewhere and not self.messages.quiet
        with ExitStack() as stack:
            output, self.written = stack.enter_context(open_output(None if files_of_times else asked.out, asked.resume))
            left_out = stack.enter_context(open_also(asked.abstain_file, asked.resume, "--abstain-file"))
            count = stack.enter_context(LiveCount("inputs answered", is_shown))
            inputs = asked.part.pick(self.reader.read(files))
            self._skip_written(inputs)
            for chunk in _chunks(inputs, asked.chunk_size(files)):
                if files_of_times is not None:
                    files_of_times.check_count(self.done + len(chunk))
                for (number, given), prediction in zip(chunk, self._predict(chunk), strict=True):
                    self.done += 1
                    count(self.done)
                    self._take_note(number, given, prediction, left_out)
                    if files_of_times is not None and asked.out is not None:
                        files_of_times.write(prediction)
                    else:
                        output.write(self._to_text(prediction).encode("utf-8", "replace"))
                output.flush()
                if left_out is not None:
                    left_out.flush()

    def sum_up(self) -> None:
        """Say on standard error what happened to some of the inputs."""
        note, new = self.messages.note, self.done - self.written
        if not self.done:
            note("dragoman: there was no input, so there is no output")
        if self.reader.damaged:
            places = _first_few(self.reader.damaged, len(self.reader.damaged))
            note(f"dragoman: {places}: not UTF-8; undecodable bytes were read as U+FFFD")
        if self.unfinished:
            places = _first_few(self.unfinished, self.unfinished_count)
            note(f"dragoman: input {places}: the output had no end and was cut at the length limit")
        if (abstain := self.asked.abstain) is not None:
            note(f"dragoman: {self.abstained:,} of {new:,} outputs left out: confidence below {abstain:g}")
        if self.failed > PROBLEMS:
            typer.echo(f"dragoman: {self.failed - PROBLEMS:,} more of {new:,} inputs could not be answered", err=True)

    def _skip_written(self, inputs: Iterator[tuple[int, Input]]) -> None:
        """Go past the inputs whose lines are in the file already."""
        out = self.asked.out
        skipped = sum(1 for _ in islice(inputs, self.written))
        if skipped < self.written:
            raise UserError(
                f"--resume: {out} has {self.written:,} lines, but there are {skipped:,} inputs; it belongs to other "
                "inputs"
            )
        if self.written:
            self.messages.note(f"dragoman: {self.written:,} lines are in {out} already")
        self.done = self.written

    def _predict(self, chunk: Sequence[tuple[int, Input]]) -> Iterator[Prediction]:
        asked = self.asked
        return self.session.stream(
            [given.raw for _, given in chunk],
            batch=asked.batch,
            workers=asked.workers,
            attention=asked.as_json,
            alignments=asked.alignments or asked.timings is not None,
            align_unit=asked.align_unit,
            trace=False,
            probabilities=asked.as_json,
            maps=asked.maps,
            alternatives=asked.alternatives,
            prefix=asked.prefix,
            abstain=asked.abstain,
            first=chunk[0][0],
            step=asked.part.count,
        )

    def _take_note(self, number: int, given: Input, prediction: Prediction, left_out: BinaryIO | None) -> None:
        """Count an input that failed, whose output has no end or is left out, and say what has to be said at once."""
        problem = given.problem or prediction.error
        if problem is not None:
            self.failed += 1
            place = f"{given.place}: " if given.place else ""
            if self.failed <= PROBLEMS:
                typer.echo(f"dragoman: {place}{problem}", err=True)
        if not prediction.outputs[0].finished and not self.session.system.is_language_model:
            self.unfinished_count += 1
            self.unfinished += [number + 1] if len(self.unfinished) < SHOWN else []
        if prediction.abstained:
            self.abstained += 1
            if left_out is not None:
                left_out.write(_input_line(prediction.source).encode("utf-8", "replace") + b"\n")
        note, is_asked = prediction.confidence_note, self.asked.confidence and self.asked.abstain is None
        if is_asked and note is not None and not self._noted:
            self._noted = True
            self.messages.note(f"dragoman: {note}")

    def _to_text(self, prediction: Prediction) -> str:
        """Return what is written for a prediction."""
        asked = self.asked
        if asked.timings is not None:
            return write_timings(prediction, asked.timings)
        if asked.as_json:
            return json.dumps(prediction.to_json(asked.maps, raw=True), ensure_ascii=False) + "\n"
        return _to_line(prediction, asked.confidence, asked.alignments) + "\n"


def _to_line(prediction: Prediction, confidence: bool, alignments: bool) -> str:
    """Return the outputs, each with its confidence and its links if these are asked for, separated by tabs.

    A line break inside an output becomes a space.
    """
    cells: list[str] = []
    for output in prediction.outputs:
        cells.append(output.text.replace("\n", " "))
        if confidence:
            cells.append("" if output.confidence is None else f"{output.confidence:.4f}")
        if alignments:
            cells.append("" if output.alignment is None else output.alignment.to_pharaoh())
    return "\t".join(cells)


def _input_line(source: Raw) -> str:
    """Return an input as a line: its text, or a JSON object of several sources."""
    return source.replace("\n", " ") if isinstance(source, str) else json.dumps(dict(source), ensure_ascii=False)


def _chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of ``size`` items, reading no further ahead than that."""
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _first_few(items: Sequence[object], count: int) -> str:
    """Return the first items as text, with the number of the others. ``count``: of all."""
    more = f" and {count - SHOWN:,} more" if count > SHOWN else ""
    return ", ".join(map(str, items[:SHOWN])) + more
