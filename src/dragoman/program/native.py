"""Run a program with the native library (``native/``), without a file. The binding is that of ``dragoman.runtime``."""

from __future__ import annotations

from pathlib import Path

from dragoman.program.file import write_program
from dragoman.program.table import Program
from dragoman.runtime.library import available_kernels, find_library, load_library
from dragoman.runtime.opened import AdvancedBatch, EncodedBatch, OpenedModel

__all__ = ["AdvancedBatch", "EncodedBatch", "NativeProgram", "available_kernels", "find_library"]


class NativeProgram(OpenedModel):
    """A program in the native library."""

    def __init__(self, program: Program, *, int8: bool = False, kernels: str = "", path: Path | None = None) -> None:
        """Open a program. ``kernels`` names an instruction set; by default the best is taken."""
        self.program = program
        super().__init__(write_program(program, int8=int8), kernels=kernels, library=load_library(path))
