"""What every record is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(Record):
    """The body of every answer that is not 2xx."""

    error: str  # a sentence: what is wrong, where, what to do
