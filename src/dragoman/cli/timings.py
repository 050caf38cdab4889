"""``predict --timings``: when each word is heard, in the format that was asked for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.inference.predictions import Prediction
    from dragoman.inference.system import System

SUFFIXES = {"srt": ".srt", "textgrid": ".TextGrid"}  # of formats in which a recording has a file of its own
FORMATS = ("json", "ctm", *SUFFIXES)


def check_timings(name: str, system: System, out: Path | None, refused: dict[str, bool]) -> None:
    """Refuse a format that there is none of, a run without recordings, and options that do not go together."""
    if name not in FORMATS:
        raise UserError(f"--timings {name}: there is no such format; choose from: {', '.join(FORMATS)}")
    if not any(modality.is_timed for modality in system.modalities.values()):
        raise UserError(f"--timings: {system.name} reads no recordings, so its outputs have no times")
    for option, given in refused.items():
        if given:
            raise UserError(f"--timings writes the times of the best output and nothing else; leave out {option}")
    if out is not None and name in SUFFIXES and out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: the file is there already; delete it, or name another")


def write_timings(prediction: Prediction, name: str) -> str:
    """Return the times of an output as text; nothing for an input without output in all formats but JSON."""
    found = prediction.outputs[0].timings
    if name == "json":
        plain = {"source": prediction.source, "text": prediction.text}
        problem = {"error": prediction.error} if prediction.error is not None else {}
        times = {} if found is None else found.to_json()
        return json.dumps({**plain, **times, **problem}, ensure_ascii=False) + "\n"
    if found is None:
        return ""
    return {"ctm": found.to_ctm, "srt": found.to_srt, "textgrid": found.to_textgrid}[name]()


@dataclass
class TimingFiles:
    """Writes a file for each recording: into a folder, or for a single recording the file itself."""

    name: str  # of the format
    out: Path | None  # None: standard output, for a single recording
    written: set[str] = field(default_factory=set)  # names of files, in lower case

    @property
    def is_single(self) -> bool:
        """Whether there is room for one recording only."""
        return self.out is None or self.out.suffix.lower() == SUFFIXES[self.name].lower()

    def check_count(self, count: int) -> None:
        """Refuse several recordings where there is room for one."""
        if count > 1 and self.is_single:
            raise UserError(
                f"--timings {self.name}: each recording has a file of its own; name a folder for them with --out"
            )

    def path_of(self, prediction: Prediction) -> Path:
        """Return where the times of a recording are written: under its name, with a number if that is taken."""
        assert self.out is not None
        suffix = SUFFIXES[self.name]
        if self.is_single:
            return self.out
        found = prediction.outputs[0].timings
        stem = re.sub(r"[^\w.+-]", "_", Path(found.path).stem if found is not None else "")[:200].lstrip(".") or "_"
        name, number = stem + suffix, 1
        while name.lower() in self.written:
            number += 1
            name = f"{stem}-{number}{suffix}"
        self.written.add(name.lower())
        return self.out / name

    def write(self, prediction: Prediction) -> None:
        """Write the file of one recording. A file that is there already is not overwritten."""
        text = write_timings(prediction, self.name)
        if not text:
            return
        path = self.path_of(prediction)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except FileExistsError:
            raise UserError(f"--out {path}: the file is there already; delete it, or name another folder") from None
