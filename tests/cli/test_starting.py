"""How the command line starts: a command's libraries are loaded when it is called, and not for help."""

import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from metricfit.cli.app import COMMANDS, app

HEAVY = ("lightning_fabric", "matplotlib", "skrub", "sklearn", "pandas", "joblib")
LOADED = f"""
import sys
from metricfit.cli.app import app
app(sys.argv[1:], standalone_mode=False)
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["metrics"]])
def test_little_is_loaded_to_say_what_there_is(arguments):
    found = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    assert found.stdout
    assert found.stderr == "[]\n"


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if entry.module is not None])
def test_the_list_says_of_a_command_what_the_command_says(name):
    function = getattr(import_module(f"metricfit.cli.{COMMANDS[name].module}"), name)
    assert function.__doc__.split("\n\n")[0] == COMMANDS[name].summary
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert COMMANDS[name].summary in " ".join(listed.split())
    assert typer.main.get_command(app).commands[name].help == COMMANDS[name].summary


@pytest.mark.parametrize("arguments", [[], ["btg-1", "--data", "folder"], ["--list"], ["--help"]])
def test_a_command_of_a_package_that_is_not_installed_names_it(arguments, monkeypatch):
    monkeypatch.setattr("metricfit.cli.app.entry_points", lambda **_: ())
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "Error: metricfit reproduce needs metricfit_papers: pip install metricfit-papers\n"


def test_a_command_of_another_package_is_listed_whether_it_is_installed_or_not(monkeypatch):
    monkeypatch.setattr("metricfit.cli.app.entry_points", lambda **_: ())
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0
    assert COMMANDS["reproduce"].summary in " ".join(listed.stdout.split())


def test_a_misspelt_command_is_told_its_neighbour():
    assert "Did you mean 'evaluate'?" in CliRunner().invoke(app, ["evalute"]).stderr
