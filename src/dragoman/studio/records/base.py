"""The base of all records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen value that crosses to the browser.

    The docstring below a field describes it in both languages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Problem(Record):
    """The body of every answer whose status is not 2xx."""

    error: str
    """What is wrong, where, and what to do about it, in a sentence."""
