"""The records as TypeScript: ``python -m dragoman.studio.schema > studio/src/records.ts``."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin

from dragoman.studio import records
from dragoman.studio.records import Record

FILES = ("base", "runs", "training", "audit", "predictions", "comparing", "mapping", "requests", "pages")
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def typescript() -> str:
    """One interface a record, in the order of the files; a request's fields that have a default may be left out."""
    every = [
        value
        for file in FILES
        for value in vars(import_module(f"{records.__name__}.{file}")).values()
        if inspect.isclass(value) and issubclass(value, Record) and value.__module__ == f"{records.__name__}.{file}"
    ]
    head = "// Made from src/dragoman/studio/records/ by `python -m dragoman.studio.schema`; do not edit."
    return "\n\n".join([head, *(interface(one) for one in every if one.model_fields)]) + "\n"


def interface(record: type[Record]) -> str:
    lines = [f"export interface {record.__name__} {{"]
    remarks = _remarks(record)
    for name, field in record.model_fields.items():
        remark = f" // {remarks[name]}" if name in remarks else ""
        lines.append(f"  {name}{'' if field.is_required() else '?'}: {_type(field.annotation)};{remark}")
    told = inspect.cleandoc(record.__doc__ or "")
    comment = [f"/** {told} */"] if told else []
    return "\n".join([*comment, *lines, "}"])


def _remarks(record: type[Record]) -> dict[str, str]:
    """What is said behind each field in the Python file."""
    return dict(re.findall(r"^    (\w+):.*?  # (.*)$", textwrap.dedent(inspect.getsource(record)), re.MULTILINE))


def _type(kind: Any) -> str:
    """Of an annotation; what this does not know is refused, so that no record crosses untyped."""
    if kind in PLAIN:
        return PLAIN[kind]
    if inspect.isclass(kind) and issubclass(kind, Record):
        return kind.__name__
    origin, inside = get_origin(kind), get_args(kind)
    if origin is list:
        element = _type(inside[0])
        return f"({element})[]" if " | " in element else f"{element}[]"
    if origin is tuple:
        return f"[{', '.join(map(_type, inside))}]"
    if origin is dict and inside[0] is str:
        return f"Record<string, {_type(inside[1])}>"
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in inside)
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type, inside))
    raise TypeError(f"no TypeScript for {kind!r}")


if __name__ == "__main__":
    print(typescript(), end="")
