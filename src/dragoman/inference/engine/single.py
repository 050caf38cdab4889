"""What all engines of one run share: its inputs become arrays, and outputs have the run's length limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dragoman.data.corpus.files import Cache, PendingFile
from dragoman.data.modality import Modality
from dragoman.inference.engine.contract import Engine, Features
from dragoman.runs.lengths import LengthLimits


@dataclass(frozen=True)
class Inputs:
    """All that an engine has to know about the inputs of a run."""

    modalities: Mapping[str, Modality]
    lengths: LengthLimits
    chunk: int  # running text: tokens that are read together where the state grows with what was read
    name: str  # what messages call the run
    caches: Mapping[str, Cache]  # of sources that are files


class SingleEngine(Engine):
    """An engine that computes for one run."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def prepare(self, texts: Mapping[str, str]) -> Features:
        features: dict[str, np.ndarray | PendingFile] = {}
        for name, modality in self.inputs.modalities.items():
            if modality.is_file:
                features[name] = PendingFile(modality, texts[name], self.inputs.caches.get(name))
            else:
                features[name] = modality.array(texts[name])
        return features

    def length_limit(self, features: Features) -> int:
        return self.inputs.lengths.limit(max((len(feature) for feature in features.values()), default=0))

    def describe_members(self) -> str | None:
        return None
