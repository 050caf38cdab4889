"""The help of the verbs in plain words: what a value is, and nothing where an option takes none."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

WORDS = {
    "<bool>": "",  # a flag takes no value
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "PATH",
    "<list[path]>": "PATH",
    "<int>": "NUMBER",
    "<float>": "NUMBER",
    "<int range>": "NUMBER",
    "<float range>": "NUMBER",
}


class PlainCommand(TyperCommand):
    """A verb whose help names values in words."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options, with words for their values."""
        return name_values(super().get_params(ctx), ctx)


class PlainGroup(TyperGroup):
    """The program, whose help names values in words."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options before a verb, with words for their values."""
        return name_values(super().get_params(ctx), ctx)


def name_values(parameters: list[Any], ctx: Any) -> list[Any]:
    """Give each option without a word for its value the one of its type."""
    for parameter in parameters:
        if parameter.param_type_name == "option" and parameter.metavar is None:
            parameter.metavar = WORDS.get(parameter.display_type_rich(ctx=ctx) or "")
    return parameters
