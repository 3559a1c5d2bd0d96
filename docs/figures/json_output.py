"""Write the schemas of --json into docs/json-output.md, one table per command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from page import fill

from metricfit.cli.app import OPTIONS
from metricfit.cli.schemas import schema_of
from metricfit_papers.reproduce_schema import datasets_schema, reproduce_schema

PAGE, MARK = "json-output.md", "schemas"


def json_output() -> str:
    """A heading and a table of fields for each command."""
    schemas = {name: schema_of(name) for name in OPTIONS}
    schemas |= {"datasets": datasets_schema(), "reproduce": reproduce_schema()}
    return "\n\n".join(_command(name, schema) for name, schema in schemas.items())


def _command(name: str, schema: dict[str, Any]) -> str:
    rows = ["| field | type | what it is |", "|---|---|---|"]
    rows += [f"| `{place}` | {kind} | {text} |" for place, kind, text in _fields(schema, "")]
    return f"## {name}\n\n" + "\n".join(rows)


def _fields(schema: dict[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    """The fields of an object, and those inside them: ``a.b``, ``a[].b`` of a list, ``a.NAME.b`` of what has names."""
    for name, field in schema.get("properties", {}).items():
        yield from _field(field, f"{place}.{name}".lstrip("."))


def _field(field: dict[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    yield place, _type(field), field["description"].replace("|", "\\|")
    entries = field.get("items") or {}
    by_name = field.get("additionalProperties") or {}
    yield from _fields(field, place)
    yield from _fields(entries, f"{place}[]")
    if by_name.get("properties") or by_name.get("additionalProperties"):
        yield from _fields(by_name, f"{place}.NAME")


def _type(field: dict[str, Any]) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f'`"{each}"`' for each in field["enum"])
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    if len(kinds) > 2:
        return "label or null" if "null" in kinds else "label"
    names = {"array": "list", "integer": "whole number", "string": "text", "boolean": "true or false"}
    written = [names.get(kind, kind) for kind in kinds]
    if field.get("maxItems") == 2:
        written[0] = "two numbers"
    elif "items" in field:
        written[0] = f"list of {_type(field['items'])}s" if "properties" not in field["items"] else "list of objects"
    elif field.get("additionalProperties"):
        inner = field["additionalProperties"]
        written[0] = "objects by name" if inner["type"] == "object" else f"{_type(inner)}s by name"
    return " or ".join(written)


if __name__ == "__main__":
    fill(PAGE, MARK, json_output())
