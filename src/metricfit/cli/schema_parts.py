"""The words in which the schemas of ``--json`` are written: objects, lists, texts, numbers and what may be null."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def an_object(description: str, /, **fields: Schema) -> Schema:
    """Describe an object with these fields; all of them are present."""
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def by_name(description: str, entry: Schema) -> Schema:
    """Describe an object whose names are those of classes, metrics or requirements."""
    return {"type": "object", "description": description, "additionalProperties": entry}


def list_of(description: str, entry: Schema) -> Schema:
    """Describe a list of such entries."""
    return {"type": "array", "description": description, "items": entry}


def of_type(kind: str, description: str, **more: Any) -> Schema:
    """Describe a field of a type."""
    return {"type": kind, "description": description} | more


def or_null(schema: Schema) -> Schema:
    """Describe a field that is null where it does not apply."""
    return schema | {"type": [schema["type"], "null"]}


def text(description: str, **more: Any) -> Schema:
    """Describe a text."""
    return of_type("string", description, **more)


def whole_number(description: str) -> Schema:
    """Describe a whole number from 0 on."""
    return of_type("integer", description, minimum=0)


def number(description: str) -> Schema:
    """Describe a number."""
    return of_type("number", description)


def flag(description: str) -> Schema:
    """Describe what is true or false."""
    return of_type("boolean", description)


def interval_of(description: str) -> Schema:
    """Describe an interval, or null."""
    return {
        "type": ["array", "null"],
        "description": description,
        "items": {"type": "number"},
        "minItems": 2,
        "maxItems": 2,
    }


def label(description: str) -> Schema:
    """Describe a label of a class, which has the type that it has in the table."""
    return {"type": ["string", "number", "boolean", "null"], "description": description}
