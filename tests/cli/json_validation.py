"""What commands print with --json, checked against metricfit's schemas by jsonschema."""

import jsonschema

from metricfit.cli.schemas import schema_of


def validate(command, printed):
    """Raise a ValidationError that names the place, unless the output of a command is valid."""
    jsonschema.validate(printed, schema_of(command), cls=jsonschema.Draft202012Validator)
    return printed
