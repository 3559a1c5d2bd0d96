"""How commands end: exit codes, one paragraph, JSON alone on standard output, and whose mistake it was."""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from metricfit._version import __version__
from metricfit.cli.app import COMMANDS, app
from metricfit.cli.terminal import UserError, report_errors
from metricfit.curves import InfeasibleError
from metricfit.errors import is_user_error
from metricfit.metrics import get_metric
from metricfit.runs import Cell, CellError, run


@pytest.fixture(autouse=True)
def tracebacks_go_to(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def ending(error, resumes=False, **environment):
    """A command that fails so."""

    def command():
        raise error if isinstance(error, BaseException) else error()

    failing = typer.Typer()
    failing.command()(report_errors(command, resumes=resumes))
    return CliRunner().invoke(failing, [], env=environment)


def unforeseen():
    return {}["fraud"]


def foreseen():
    return get_metric("f3")


def in_a_cell(work, folder):
    def fail():
        return run([Cell(("t",), {})], lambda cell: work(), folder)

    return fail


def caught(function):
    with pytest.raises((ValueError, LookupError, TypeError, CellError)) as error:
        function()
    return error.value


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UserError("mend\nthis"), 2, "Error: mend this"),
        (FileNotFoundError(2, "No such file", "t.csv"), 2, "Error: t.csv cannot be used: No such file."),
        (foreseen, 2, "Error: there is no metric 'f3'"),
        (InfeasibleError("no threshold\ngives that"), 2, "Error: no threshold gives that"),
        (KeyboardInterrupt(), 130, "Interrupted. Nothing was kept"),
        (unforeseen, 1, "mistake in metricfit, not in your table"),
        (ValueError("from nowhere"), 1, "mistake in metricfit"),
        (lambda: np.zeros(2) + np.zeros(3), 1, "ValueError: operands could not be broadcast.*mistake in metricfit"),
    ],
)
def test_an_error_is_one_paragraph_and_a_code(error, code, says):
    found = ending(error)
    assert found.exit_code == code
    assert re.match(says, found.stderr) or re.search(says, found.stderr)
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""


def test_what_is_kept_is_said_of_commands_that_go_on_alone():
    assert "Finished parts are kept; run the same command again" in ending(KeyboardInterrupt(), resumes=True).stderr
    assert {name for name, entry in COMMANDS.items() if entry.resumes} == {"compare", "reproduce"}


def test_a_mistake_of_ours_leaves_its_traceback_in_a_file():
    found = ending(unforeseen)
    file = Path(re.search(r"traceback in (\S+)\.$", found.stderr.strip()).group(1))
    assert "in unforeseen" in file.read_text()


def test_debugging_shows_the_traceback():
    assert "in unforeseen" in ending(unforeseen, METRICFIT_DEBUG="1").stderr


def test_a_mistake_inside_a_cell_is_told_apart_too(tmp_path):
    assert caught(in_a_cell(foreseen, tmp_path / "a")).details is None
    assert "KeyError: 'fraud'" in caught(in_a_cell(unforeseen, tmp_path / "b")).details
    assert ending(in_a_cell(foreseen, tmp_path / "c")).exit_code == 2
    found = ending(in_a_cell(unforeseen, tmp_path / "d"))
    assert found.exit_code == 1
    file = Path(re.search(r"traceback in (\S+)\.$", found.stderr.strip()).group(1))
    assert "in unforeseen" in file.read_text()


def test_only_errors_of_this_library_can_be_corrected_by_the_user():
    assert is_user_error(caught(foreseen))
    assert not is_user_error(caught(unforeseen))
    assert not is_user_error(caught(lambda: np.zeros(2) + np.zeros(3)))
    assert not is_user_error(ValueError("never raised"))


def test_the_version():
    found = CliRunner().invoke(app, ["--version"])
    assert (found.exit_code, found.stdout) == (0, f"metricfit {__version__}\n")


@pytest.mark.parametrize("arguments", [["fit"], ["nothing"], ["fit", "t.csv", "--folds", "1"]])
def test_wrong_usage_is_code_2(arguments):
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_metrics_have_their_formulas():
    listed = json.loads(CliRunner().invoke(app, ["metrics", "--json"]).stdout)["metrics"]
    found = {each["name"]: each["formula"] for each in listed}
    assert found["f1"].startswith("2 tp / (2 tp + fn + fp)")
    assert found["tversky(alpha, beta)"].startswith("tp / (tp + alpha fp + beta fn)")
    assert {"fbeta(beta)", "cost(fp, fn)", "mcc"} <= set(found)
    assert all(formula and formula != "None" for formula in found.values())
    printed = " ".join(CliRunner().invoke(app, ["metrics"]).stdout.split())
    assert "tversky(alpha, beta) tp / (tp + alpha fp + beta fn)" in printed


@pytest.mark.slow
def test_a_full_disk_is_one_paragraph(tmp_path):
    """A limit on the size of files stands for a full disk: writing fails in the same places."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["a", "b"])
    frame.assign(y=frame["b"] > 0.5).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", "t.csv", "--target", "y", "--out", "out", "--models", "linear", "--folds", "2"]
    found = subprocess.run(
        [sys.executable, "-c", "from metricfit.cli.app import main; main()", *arguments, "--quiet", "--json"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2, found.stderr
    assert re.search(r"(^|\n)Error: .*File too large. Free some disk space", found.stderr)
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
