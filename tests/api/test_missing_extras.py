"""Every part that needs an extra says what to install, in one sentence."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
import metricfit
try:
    exec(sys.argv[2])
except ModuleNotFoundError as error:
    print(error)
"""

DATA = [("metricfit.data.read_table", "import metricfit.data; metricfit.data.read_table", "tabular", "pandas")]
TORCH = [
    ("metricfit.MetricLoss", "metricfit.MetricLoss", "torch", "torch"),
    ("metricfit.decide.DecisionModule", "import metricfit.decide; metricfit.decide.DecisionModule", "torch", "torch"),
]
COMPARE = [
    ("metricfit.compare", "metricfit.compare", "tabular", package)
    for package in ("joblib", "pandas", "scipy", "sklearn")
]
RUNS = [("metricfit.runs", "import metricfit.runs", "tabular", "joblib")]


def run_without(package, code, *arguments):
    command = [sys.executable, "-c", code, package, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("part", "code", "extra", "package"), [*DATA, *COMPARE, *RUNS, *TORCH])
def test_a_missing_package_is_explained(part, code, extra, package):
    ended = run_without(package, WITHOUT, code)
    assert ended.returncode == 0, ended.stderr
    expected = f"{part} needs {package}, which is not installed: pip install metricfit[{extra}]"
    assert ended.stdout.strip() == expected


COMMAND = """
import sys
sys.modules[sys.argv.pop(1)] = None
from metricfit.cli import main
main()
"""


@pytest.mark.parametrize(
    ("package", "arguments"), [("typer", ["--help"]), ("pandas", ["predict", ".", "rows.csv", "--out", "labels.csv"])]
)
def test_the_command_says_what_to_install(package, arguments):
    ended = run_without(package, COMMAND, *arguments)
    message = f"the command metricfit needs {package}, which is not installed: pip install metricfit[cli]"
    assert ended.stderr == f"Error: {message}\n"
    assert ended.stdout == ""
    assert ended.returncode == 2


def test_a_mistake_in_an_import_is_not_hidden():
    ended = run_without("metricfit.cli.terminal", COMMAND, "--help")
    assert ended.returncode == 1
    assert "import of metricfit.cli.terminal halted" in ended.stderr


def test_the_command_runs():
    ended = run_without("a_package_that_nothing_needs", COMMAND, "--version")
    assert ended.returncode == 0
    assert ended.stdout.startswith("metricfit ")
