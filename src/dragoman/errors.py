"""Mistakes that a person can fix. The command line prints the sentence and exits with the code, without a traceback."""

from __future__ import annotations

from dragoman.runtime.errors import TooLong as TooLong  # the runtime is also shipped alone, so they are its own
from dragoman.runtime.errors import UserError as UserError


class MissingExtra(UserError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}: pip install 'dragoman[{extra}]'")


class ReportedError(UserError):
    """Another process of the same training reports what is wrong; this one only has to stop."""


class UnfinishedRun(UserWarning):
    """A run answers although its training was stopped before the end."""


class Unverified(UserWarning):
    """A file carries no checksum, so that damage to it cannot be noticed."""


class OtherSearch(UserWarning):
    """The confidence of outputs was fitted with other search settings than those they were found with."""
