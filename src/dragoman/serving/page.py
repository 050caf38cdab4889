"""The page that describes the endpoints: plain HTML made of the OpenAPI description, without any script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; } h3 { font-size: 1rem; }
code { font: 0.9em ui-monospace, monospace; background: #f2f2f4; padding: 0.1em 0.3em; border-radius: 3px; }
table { border-collapse: collapse; width: 100%; } th { font-weight: 600; }
td, th { text-align: left; vertical-align: top; padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; }
@media (prefers-color-scheme: dark) { body { background: #18181b; color: #ddd; } code { background: #2a2a2e; }
td, th { border-color: #444; } a { color: #9bf; } }
"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_page(described: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI description."""
    title = escape(f"{described['info']['title']} {described['info']['version']}")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>{title}</h1>',
        f"<p>{_prose(described['info']['description'])}</p>",
        '<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts += _describe_operation(path, method, operation)
    parts.append("<h2>Records</h2>")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += _describe_record(name, schema)
    return "".join([*parts, "</body></html>"])


def _describe_operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{_prose(operation['summary'])}"
    if operation.get("security"):
        yield " Needs a key."
    yield "</p><table><tr><th>body or status</th><th>content</th></tr>"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        yield f"<tr><td>{escape(kind)}</td><td>{_type(schema)} {_prose(schema.get('description', ''))}</td></tr>"
    for status, response in operation["responses"].items():
        kinds = ", ".join(
            f"{_type(content['schema'])} {_prose(content['schema'].get('description', ''))}"
            for content in response["content"].values()
        )
        text = kinds if status == "200" else _prose(response["description"])
        yield f"<tr><td>{escape(status)}</td><td>{text}</td></tr>"
    yield "</table>"


def _describe_record(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>'
    yield f"<p>{_prose(schema.get('description', ''))}</p><table>"
    required = schema.get("required", ())
    for field, about in schema.get("properties", {}).items():
        mark = " (required)" if field in required else ""
        yield f"<tr><td><code>{escape(field)}</code>{mark}</td><td>{_type(about)}</td>"
        yield f"<td>{_prose(about.get('description', ''))}</td></tr>"
    yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words, with links to records."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(_type(each) for each in schema[union])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), Mapping) and "properties" not in schema:
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "value")))


def _prose(text: str) -> str:
    """Return a description as HTML; what stands between backquotes is code."""
    parts = escape(" ".join(text.replace("``", "`").split())).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
