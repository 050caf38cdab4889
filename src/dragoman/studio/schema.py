"""The records as TypeScript: ``python -m dragoman.studio.schema > studio/src/records.ts``."""

from __future__ import annotations

import inspect
import types
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin

from dragoman.studio import records
from dragoman.studio.records import Record

MODULES = (
    "base", "runs", "training", "audit", "predictions", "examples", "errors", "comparison", "representation_map",
    "overview", "requests", "pages",
)  # fmt: skip
SCALARS = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def write_typescript() -> str:
    """Return one interface per record, in the order of the modules."""
    interfaces = []
    for name in MODULES:
        module = import_module(f"{records.__name__}.{name}")
        for value in vars(module).values():
            is_own = inspect.isclass(value) and issubclass(value, Record) and value.__module__ == module.__name__
            if is_own and value.model_fields:
                interfaces.append(write_interface(value))
    head = "// Generated from src/dragoman/studio/records/ by `python -m dragoman.studio.schema`; do not edit."
    return "\n\n".join([head, *interfaces]) + "\n"


def write_interface(record: type[Record]) -> str:
    """Return the interface of a record.

    A field with a default, which only requests have, may be left out.
    """
    lines = [f"export interface {record.__name__} {{"]
    for name, field in record.model_fields.items():
        comment = f" // {' '.join(field.description.split())}" if field.description else ""
        lines.append(f"  {name}{'' if field.is_required() else '?'}: {_write_type(field.annotation)};{comment}")
    docstring = inspect.cleandoc(record.__doc__ or "")
    return "\n".join([*([f"/** {docstring} */"] if docstring else []), *lines, "}"])


def _write_type(annotation: Any) -> str:
    """Return the TypeScript of an annotation. An annotation without an equivalent is an error."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if inspect.isclass(annotation) and issubclass(annotation, Record):
        return annotation.__name__
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        element = _write_type(arguments[0])
        return f"({element})[]" if " | " in element else f"{element}[]"
    if origin is tuple:
        return f"[{', '.join(map(_write_type, arguments))}]"
    if origin is dict and arguments[0] is str:
        return f"Record<string, {_write_type(arguments[1])}>"
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(map(_write_type, arguments))
    raise TypeError(f"no TypeScript for {annotation!r}")


if __name__ == "__main__":
    print(write_typescript(), end="")
