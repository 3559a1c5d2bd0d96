"""A validator of the part of JSON Schema that metricfit's schemas use; jsonschema is no dependency."""

from metricfit.cli.json_schemas import schema_of

TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip
KNOWN = {
    "$schema", "title", "description", "type", "properties", "required", "additionalProperties", "items", "minItems",
    "maxItems", "minimum", "enum", "const",
}  # fmt: skip


def validate(command, printed):
    """Raise an AssertionError that names the place, unless the output of a command is valid."""
    check(printed, schema_of(command), command)
    return printed


def check(value, schema, place):
    assert set(schema) <= KNOWN, f"{place}: {set(schema) - KNOWN}"
    if "const" in schema:
        assert value == schema["const"], f"{place} is {value!r}, not {schema['const']!r}"
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(is_of(value, kind) for kind in kinds), f"{place} is {value!r}, not {kinds}"
    if "enum" in schema:
        assert value in schema["enum"], f"{place} is {value!r}, not one of {schema['enum']}"
    if isinstance(value, dict):
        check_object(value, schema, place)
    elif isinstance(value, list):
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), f"{place}: {value!r}"
        for index, entry in enumerate(value):
            check(entry, schema["items"], f"{place}[{index}]")
    elif "minimum" in schema and value is not None:
        assert value >= schema["minimum"], f"{place} is {value!r}"


def check_object(value, schema, place):
    fields, others = schema.get("properties", {}), schema["additionalProperties"]
    missing = set(schema.get("required", ())) - set(value)
    assert not missing, f"{place} lacks {sorted(missing)}"
    for name, entry in value.items():
        assert name in fields or others is not False, (
            f"{place} has {name!r}, which cli/json_schemas.py does not describe"
        )
        check(entry, fields.get(name, others), f"{place}.{name}")


def is_of(value, kind):
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
