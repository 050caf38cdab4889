"""From a prediction to its alignment: links, times or boxes for each of its outputs, by the kind of its sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dragoman.data.media import Probe, named
from dragoman.data.modality import Modality
from dragoman.data.vocabulary import SPECIALS
from dragoman.errors import UserError
from dragoman.files import damaged_file
from dragoman.inference.alignment.boxes import Boxes, find_boxes
from dragoman.inference.alignment.links import choose_map, link_units
from dragoman.inference.alignment.timings import (
    MadeFrom,
    Stretch,
    Timings,
    attention_stretches,
    ctc_stretches,
    time_units,
)
from dragoman.inference.alignment.units import Units, choose_target_unit, choose_units, find_units
from dragoman.inference.predictions import Output, Prediction
from dragoman.inference.requests import PreparedInput
from dragoman.runs.alignment import ADVICE, ALIGNMENT, AlignmentChoice
from dragoman.types import Axis, Hypothesis

if TYPE_CHECKING:
    from dragoman.inference.steps import Steps


def can_align(steps: Steps) -> bool:
    """Tell whether outputs can be aligned: by attention, or recordings by CTC."""
    return bool(steps.system.modalities) and (steps.engine.has_attention or steps.engine.has_ctc)


def refuse_unaligned(steps: Steps) -> None:
    """Raise an error that says why outputs cannot be aligned."""
    if can_align(steps):
        return
    system = steps.system
    if system.is_language_model:
        raise UserError(f"{system.name}: a language model has no source that its outputs could be aligned with")
    raise UserError(
        f"{system.name}: the engine {steps.engine.name!r} shows no attention for this run, so nothing can be aligned; "
        "ask with the engine torch, or train a model whose decoder has attention"
    )


@dataclass(frozen=True, slots=True)
class TextMaps:
    """The attention of an output to the texts among its sources."""

    attention: np.ndarray  # (T, A, S), the positions of these sources alone
    sources: Sequence[Units]
    target: Units


class InputAligner:
    """Aligns the outputs for one input, whose files have been read."""

    def __init__(self, steps: Steps, prepared: PreparedInput, axes: Mapping[str, Axis], unit: str = "auto") -> None:
        """``unit`` is one of ``units.ALIGN_UNITS``."""
        self._steps, self._prepared, self._axes, self._unit = steps, prepared, axes, unit
        self._system = steps.system
        self._arrays = steps.engine.own_arrays(prepared.arrays)

    def align(self, prediction: Prediction, hypotheses: Sequence[Hypothesis]) -> Prediction:
        """Return the prediction with the alignment of each of its outputs."""
        outputs = tuple(
            self._align_output(output, hypothesis.tokens)
            for output, hypothesis in zip(prediction.outputs, hypotheses, strict=True)
        )
        return replace(prediction, outputs=outputs)

    def _align_output(self, output: Output, tokens: Sequence[int]) -> Output:
        attention = None if output.attention is None else choose_map(self._checked(output.attention), self._choice)
        alignment = timings = boxes = None
        begin = 0
        for name, axis in self._axes.items():
            own = slice(begin, begin + len(axis.labels))
            begin = own.stop
            if axis.grid is not None and attention is not None and boxes is None:
                boxes = self._find_boxes(name, axis, attention[:, own], output, tokens)
            elif self._system.modalities[name].is_timed and timings is None:
                timings = self._find_times(name, axis, None if attention is None else attention[:, own], output, tokens)
        if attention is not None and self._text_names:
            maps = self.text_maps(output, tokens)
            alignment = link_units(choose_map(maps.attention, self._choice), maps.sources, maps.target)
        return replace(output, alignment=alignment, timings=timings, boxes=boxes)

    @cached_property
    def _choice(self) -> AlignmentChoice:
        return self._system.alignment_choice

    def _checked(self, attention: np.ndarray) -> np.ndarray:
        if self._choice.maps and max(self._choice.maps) >= attention.shape[1]:
            path = (self._system.folder or Path()) / ALIGNMENT
            raise damaged_file(path, f"it names a map that this model does not have: {self._choice.maps}", ADVICE)
        return attention

    # ---- texts

    @cached_property
    def _text_names(self) -> list[str]:
        return [name for name, modality in self._system.modalities.items() if modality.tokenizer is not None]

    @cached_property
    def _sources(self) -> list[Units]:
        """The units of the sources that are texts."""
        modalities = [self._system.modalities[name] for name in self._text_names]
        tokenizers = [modality.tokenizer for modality in modalities if modality.tokenizer is not None]
        kind = choose_units(tokenizers, self._system.target, self._unit)[0]
        found = []
        for name, modality in zip(self._text_names, modalities, strict=True):
            spelled = modality.spans(self._arrays[name], self._system.strides[name])
            assert spelled is not None
            found.append(find_units(*spelled, kind, self._prepared.texts[name]))
        return found

    def text_maps(self, output: Output, tokens: Sequence[int]) -> TextMaps:
        """Return the attention of an output to the sources that are texts, and the units of both sides."""
        assert output.attention is not None
        target = self._system.target_for(self._prepared.texts)
        kind = choose_units([], target, self._unit)[1]
        units = find_units(target.decode(tokens), target.spans(tokens), kind, output.text)
        columns: list[int] = []
        begin = 0
        for name, axis in self._axes.items():
            end = begin + len(axis.labels)
            columns += range(begin, end) if name in self._text_names else ()
            begin = end
        return TextMaps(output.attention[..., columns], self._sources, units)

    # ---- files

    def _target_units(self, output: Output, tokens: Sequence[int]) -> Units:
        target = self._system.target_for(self._prepared.texts)
        kind = choose_target_unit(target, self._unit)
        return find_units(target.decode(tokens), target.spans(tokens), kind, output.text)

    def _find_times(
        self, name: str, axis: Axis, attention: np.ndarray | None, output: Output, tokens: Sequence[int]
    ) -> Timings | None:
        units = self._target_units(output, tokens)
        stretches = self._ctc_stretches(tokens)
        made_from: MadeFrom = "ctc"
        if stretches is None:
            if attention is None:
                return None
            made_from = "attention"
            stretches = [None] * len(tokens)
            rows = np.flatnonzero(units.shares[: len(tokens)].sum(1))
            for row, stretch in zip(rows, attention_stretches(attention[rows]), strict=True):
                stretches[row] = stretch
        header = self._probe(self._system.modalities[name], name)
        if axis.seconds is not None:
            found = time_units(units, stretches, axis.seconds, header.seconds)
            return Timings(units.kind, tuple(found), round(header.seconds, 4), self._path(name), made_from)
        step, frames = axis.frames or 1, header.frames
        found = time_units(units, stretches, step, frames)
        return Timings(units.kind, tuple(found), frames, self._path(name), made_from, "frames")

    def _ctc_stretches(self, tokens: Sequence[int]) -> list[Stretch | None] | None:
        """Return the states of each token by CTC; None: the run has none for a single source, or too few states."""
        if self._ctc is None:
            return None
        labels = [token for token in tokens if token >= len(SPECIALS)]
        found = ctc_stretches(self._ctc, labels)
        if found is None:
            return None
        emitted = iter(found)
        return [next(emitted) if token >= len(SPECIALS) else None for token in tokens]

    @cached_property
    def _ctc(self) -> np.ndarray | None:
        engine = self._steps.engine
        if not engine.has_ctc or len(self._axes) != 1:
            return None
        return engine.ctc_log_probs([self._prepared.arrays])[0]

    def _find_boxes(self, name: str, axis: Axis, attention: np.ndarray, output: Output, tokens: Sequence[int]) -> Boxes:
        assert axis.grid is not None
        units = self._target_units(output, tokens)
        header = self._probe(self._system.modalities[name], name)
        height, width = self._arrays[name].shape[:2]
        size, stride = (header.height, header.width), self._system.strides[name]
        return Boxes(
            units.kind, tuple(find_boxes(attention, units, axis.grid, stride, (height, width), size)), name, size
        )

    def _path(self, name: str) -> str:
        return self._prepared.texts[name]

    def _probe(self, modality: Modality, name: str) -> Probe:
        with named(self._path(name)):
            return modality.probe(self._path(name))
