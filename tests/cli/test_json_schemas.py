"""The schemas of --json: every command has one, and jsonschema tells right from wrong by them.

Beside these, the tests of each command validate what it prints.
"""

import copy
import json

import jsonschema
import pytest
import typer
from json_validation import validate
from typer.testing import CliRunner

from metricfit.cli.app import OPTIONS, app
from metricfit.cli.schemas import SCHEMA_VERSION, schema_of


def test_every_command_of_this_package_has_the_option():
    group = typer.main.get_command(app)
    for name in OPTIONS:
        options = [option for parameter in group.commands[name].params for option in parameter.opts]
        assert "--json" in options, name


@pytest.mark.parametrize("command", OPTIONS)
def test_schemas_are_json_and_describe_every_field(command):
    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert next(iter(schema["properties"])) == "schema_version"
    assert all(field["description"].endswith((".", ")")) for field in schema["properties"].values())


def test_the_list_of_metrics_is_valid():
    printed = json.loads(CliRunner().invoke(app, ["metrics", "--json"]).stdout)
    validate("metrics", printed)
    assert printed["schema_version"] == SCHEMA_VERSION == 1


PREDICTED = {
    "schema_version": 1,
    "rows": 3,
    "file": "p.csv",
    "predicted": {"no": 2, "yes": 1},
    "new_categories": {},
    "threshold": 0.5,
    "referred": None,
}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["rows"], "3"),
        (["rows"], -1),
        (["rows"], True),
        (["rows"], None),
        (["schema_version"], 2),
        (["predicted", "no"], 2.5),
        (["threshold"], [0.5]),
        (["more"], 1),
    ],
)
def test_what_is_wrong_is_not_valid(place, value):
    validate("predict", PREDICTED)
    wrong = copy.deepcopy(PREDICTED)
    at = wrong
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate("predict", wrong)
    with pytest.raises(jsonschema.ValidationError, match="'file' is a required property"):
        validate("predict", {name: entry for name, entry in PREDICTED.items() if name != "file"})


def test_intervals_and_choices_are_checked():
    interval = jsonschema.Draft202012Validator(schema_of("fit")["properties"]["value_interval"])
    for right in (None, [0.1, 0.2], [0, 1]):
        interval.validate(right)
    for wrong in ([0.1], [0.1, 0.2, 0.3], ["a", "b"], 0.1):
        assert not interval.is_valid(wrong)
    verdict = jsonschema.Draft202012Validator(schema_of("evaluate")["properties"]["training"]["properties"]["verdict"])
    assert not verdict.is_valid("bad")
