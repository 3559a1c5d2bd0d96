"""How the command line starts: a command's libraries are loaded when it is called, and not for help."""

import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from metricfit.cli.app import COMMANDS, app

HEAVY = (
    *("baycomp", "joblib", "lightgbm", "lightning_fabric", "matplotlib", "numpy", "pandas", "pyarrow"),
    *("scipy", "skops", "sklearn", "skrub", "torch"),
)
LOADED = f"""
import sys
from metricfit.cli.app import app
try:
    app(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
OURS = [name for name, entry in COMMANDS.items() if entry.package == "metricfit"]


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in OURS)])
def test_help_loads_none_of_the_libraries(arguments):
    ended = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    assert ended.stdout
    assert ended.stderr == "[]\n"


def test_the_metrics_are_listed_with_numpy_alone():
    ended = subprocess.run([sys.executable, "-c", LOADED, "metrics"], capture_output=True, text=True, check=True)
    assert ended.stderr == "['numpy']\n"


@pytest.mark.parametrize("name", OURS)
def test_the_list_of_commands_has_whole_summaries(name):
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert COMMANDS[name].summary in " ".join(listed.split())
    assert typer.main.get_command(app).commands[name].help.startswith(COMMANDS[name].summary)


@pytest.mark.parametrize("arguments", [[], ["btg-1", "--data", "folder"], ["--list"], ["--help"]])
def test_a_command_of_a_package_that_is_not_installed_names_it(arguments, monkeypatch):
    monkeypatch.setattr("metricfit.cli.app.entry_points", lambda **_: ())
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "Error: metricfit reproduce needs metricfit_papers: pip install ./papers, in a copy of metricfit's repository\n"
    )


def test_a_command_of_another_package_is_listed_whether_it_is_installed_or_not(monkeypatch):
    monkeypatch.setattr("metricfit.cli.app.entry_points", lambda **_: ())
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0
    assert COMMANDS["reproduce"].summary in " ".join(listed.stdout.split())


def test_a_misspelt_command_is_told_its_neighbour():
    assert "Did you mean 'evaluate'?" in CliRunner().invoke(app, ["evalute"]).stderr


@pytest.mark.parametrize("name", OURS)
def test_the_help_lists_every_option_once_in_a_group_and_an_example(name):
    command = typer.main.get_command(app).commands[name]
    text = CliRunner().invoke(app, [name, "--help"], terminal_width=200).stdout
    assert f"Example: metricfit {name}" in text
    for option in command.params:
        for spelling in option.opts if option.param_type_name == "option" else ():
            assert len(re.findall(rf"^  {spelling}\b(?!-)", text, re.MULTILINE)) == 1
    assert "\nOptions:" not in text


def test_the_commands_are_listed_in_the_order_of_their_use():
    assert list(COMMANDS)[:5] == ["compare", "fit", "evaluate", "predict", "doctor"]
