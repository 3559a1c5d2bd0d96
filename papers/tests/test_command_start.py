"""How the commands of this package start: found through entry points, and light until something is trained."""

import json
import subprocess
import sys
from importlib.metadata import entry_points

import jsonschema
import pytest
import typer
from click.testing import CliRunner

from metricfit.cli.app import COMMANDS, GROUP, app, load_command
from metricfit_papers import command
from metricfit_papers.reproduce_schema import datasets_schema

LIST = """
import sys
from metricfit.cli.app import app
app(["reproduce", "--list"], standalone_mode=False)
assert "lightning_fabric" not in sys.modules
"""


@pytest.mark.parametrize("name", ["reproduce", "datasets"])
def test_the_entry_point_is_the_command(name):
    """It needs the package to be installed, as ``make test`` does with ``pip install -e papers``."""
    (point,) = entry_points(group=GROUP, name=name)
    assert point.load() is getattr(command, name)


@pytest.mark.parametrize("name", ["reproduce", "datasets"])
def test_the_list_of_commands_has_the_summary_of_the_command(name):
    assert getattr(command, name).__doc__.split("\n\n")[0] == COMMANDS[name].summary
    assert typer.main.get_command(app).commands[name].help == COMMANDS[name].summary


def test_datasets_have_their_sizes_and_sources():
    finished = CliRunner().invoke(load_command("datasets"), ["--json"])
    printed = json.loads(finished.stdout)
    jsonschema.validate(printed, datasets_schema(), cls=jsonschema.Draft202012Validator)
    mammography = {each["name"]: each for each in printed["datasets"]}["mammography"]
    assert (mammography["rows"], mammography["positives"], mammography["fetch"]) == (11183, 260, True)
    assert mammography["source"].startswith("https://")


def test_tables_are_listed_without_the_trainer():
    finished = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "btg-1" in finished.stdout
