"""The settings of the data: which columns are read, and how many rows are held out."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from dragoman.config import Section
from dragoman.data.augment.options import AugmentConfig
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.reading.columns import ColumnSelection

ColumnNumber = Annotated[int, Field(strict=True, ge=1)]
ColumnSetting: TypeAlias = ColumnNumber | Annotated[str, Field(min_length=1)]


class DataConfig(Section):
    """How files are read and what is held out.

    ``source`` and ``target`` are a column's name or number from 1, or a JSON key. Several sources
    are a list, or a mapping from the name of each source. An empty list means that there is none (a
    language model): then a file is plain text, one sequence per line, unless its name or content
    says that it is a table or a column is named as the target. ``running`` says that the lines are one
    text, read from the first to the last. ``root`` is the folder that paths in a source column
    start from; without it, the folder of the file that they are in.
    """

    format: Literal["auto", "tsv", "csv", "jsonl", "json", "parquet", "arrow", "xlsx", "parallel", "text"] = "auto"
    header: Literal["auto", "yes", "no"] = "auto"
    source: ColumnSetting | list[ColumnSetting] | dict[str, ColumnSetting] | None = None
    target: ColumnSetting | None = None
    root: Annotated[str, Field(min_length=1)] | None = None
    running: bool = False
    """Language models: the lines are one running text, not one sequence per line."""
    cache: Literal["auto", "none", "memory", "disk"] = "auto"
    """Where decoded files are cached. auto: in memory, up to 512 MB."""
    store: Literal["auto", "memory", "disk"] = "auto"
    """Where the rows are held. auto: in memory, and above 500,000 rows on disk."""
    max_characters: int = Field(default=5000, ge=1)
    """Most characters of either side. Longer rows are dropped."""
    dev_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the distinct sources held out for dev, if no dev file is given."""
    test_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the distinct sources held out for test, if no dev or test file is given."""
    held_out_limit: int = Field(default=1000, ge=1)
    """About the most distinct sources held out for each of dev and test."""
    augment: AugmentConfig = AugmentConfig()
    """More training rows from the same ones."""

    @field_validator("source")
    @classmethod
    def _named_apart(cls, value: object) -> object:
        names = value if isinstance(value, (list, dict)) else []
        if TARGET in names and isinstance(value, dict):
            raise ValueError(f"a source cannot be called {TARGET!r}")
        if isinstance(value, list) and len(set(map(str, value))) < len(value):
            raise ValueError("a column is listed twice")
        return value

    @model_validator(mode="after")
    def _leave_some(self) -> DataConfig:
        if self.dev_share + self.test_share >= 1:
            raise ValueError("dev_share and test_share leave nothing for training; their sum must be below 1")
        return self

    @model_validator(mode="after")
    def _running_is_plain(self) -> DataConfig:
        if self.running and self.source:
            raise ValueError("running text has no source column; leave out data.source or data.running")
        return self

    @property
    def is_plain(self) -> bool:
        """Whether there is no source, as for a language model."""
        return self.running or (self.source is not None and not self.source)

    def column_selection(self) -> ColumnSelection:
        """Return the columns that are selected."""
        if self.is_plain:
            return ColumnSelection({}, self.target)
        source = self.source
        if isinstance(source, dict):
            return ColumnSelection(source, self.target)
        if isinstance(source, list) and len(source) != 1:
            names = [column if isinstance(column, str) else f"{SOURCE}{column}" for column in source]
            return ColumnSelection(dict(zip(names, source, strict=True)), self.target)
        if isinstance(source, list):
            source = source[0]
        return ColumnSelection(None if source is None else {SOURCE: source}, self.target)
