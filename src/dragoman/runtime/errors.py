"""Mistakes that a person can fix."""

from __future__ import annotations


class UserError(Exception):
    """Something in the input, the config or the call is wrong; the message says what, where and what to do."""

    exit_code = 2


class TooLong(UserError):
    """An input or an output that is longer than the model has positions for."""
