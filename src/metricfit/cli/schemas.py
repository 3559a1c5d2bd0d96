"""The schemas of what commands print with ``--json``, made from the classes of their results.

They are JSON Schemas (draft 2020-12). The type hints of a class are its fields, and the list of attributes in its
docstring describes them. Fields may be added within a version; a field that is renamed, removed or changes its meaning
makes a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from metricfit.cli.options import describe_fields

Schema = dict[str, Any]
#: The version of all schemas, the first field of every output.
SCHEMA_VERSION = 1
#: A whole number counts something. Any value is the label of a class, which has the type that it has in the table.
PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    Any: {"type": ["string", "number", "boolean", "null"]},
}


def schema_of(command: str) -> Schema:
    """Return the JSON Schema of a command's output.

    Args:
        command: Name of the command.

    Returns:
        The schema, an object with all fields and their descriptions.

    Example:
        >>> schema_of("predict")["properties"]["rows"]["type"]
        'integer'
    """
    return output_schema(command, import_module(f"metricfit.cli.{command}").Result)


def output_schema(command: str, result: type) -> Schema:
    """Return the schema of a command whose output is a class of results, after the version."""
    version = {"const": SCHEMA_VERSION, "description": "The version of this schema."}
    fields = _schema(result, "")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"metricfit {command} --json",
        **fields,
        "properties": {"schema_version": version, **fields["properties"]},
        "required": ["schema_version", *fields["required"]],
    }


def _schema(kind: Any, description: str) -> Schema:
    """Return the schema of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind] | {"description": description}
    if origin in (Union, UnionType):  # null where the field does not apply
        (other,) = (part for part in inner if part is not NoneType)
        schema = _schema(other, description)
        return schema | {"type": [schema["type"], "null"]}
    if origin is Literal:
        return {"type": "string", "description": description, "enum": list(inner)}
    if origin in (list, tuple):
        ends = {"minItems": 2, "maxItems": 2} if inner == (float, float) else {}
        return {"type": "array", "description": description, "items": _schema(inner[0], ""), **ends}
    if origin is not None:  # by the names of classes, metrics or requirements
        entries = {} if inner[1] is Any else {"additionalProperties": _schema(inner[1], "")}
        return {"type": "object", "description": description} | entries
    texts = {name: text.replace("None", "null").replace("``", "`") for name, text in describe_fields(kind).items()}
    fields = {name: _schema(hint, texts[name]) for name, hint in get_type_hints(kind).items()}
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
