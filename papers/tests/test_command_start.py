"""How ``metricfit reproduce`` starts: found through its entry point, and light until something is trained."""

import subprocess
import sys
from importlib.metadata import entry_points

import typer

from metricfit.cli.app import COMMANDS, GROUP, app
from metricfit_papers import command

LIST = """
import sys
from metricfit.cli.app import app
app(["reproduce", "--list"], standalone_mode=False)
assert "lightning_fabric" not in sys.modules
"""


def test_the_entry_point_is_the_command():
    """It needs the package to be installed, as ``make test`` does with ``pip install -e papers``."""
    (point,) = entry_points(group=GROUP, name="reproduce")
    assert point.load() is command.reproduce


def test_the_list_of_commands_has_the_summary_of_the_command():
    assert command.reproduce.__doc__.split("\n\n")[0] == COMMANDS["reproduce"].summary
    assert typer.main.get_command(app).commands["reproduce"].help == COMMANDS["reproduce"].summary


def test_tables_are_listed_without_the_trainer():
    finished = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "btg-1" in finished.stdout
