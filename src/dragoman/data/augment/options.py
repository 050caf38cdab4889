"""The settings of made-up rows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dragoman.config import Section


class AugmentConfig(Section):
    """More training rows from the same ones. Dev and test never have any of them."""

    hallucinate: int = Field(default=0, ge=0, le=1_000_000)
    """Number of rows with made-up words: what source and target share is replaced by random letters."""
    copy_targets: bool = False
    """Also learn to copy: each distinct target is a source too, marked as one to copy."""
    both_ways: bool = False
    """Also learn to go back: each row is turned round, its source marked as a target."""
    rows: Annotated[str, Field(min_length=1)] | None = None
    """A file with more pairs, such as one of `dragoman augment`, for training only."""
    targets: Annotated[str, Field(min_length=1)] | None = None
    """A text file with more targets, one on each line, which are learnt by copying."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Seed for the made-up words."""

    @property
    def is_on(self) -> bool:
        """Whether any rows are made or read."""
        return bool(self.hallucinate or self.copy_targets or self.both_ways or self.rows or self.targets)
