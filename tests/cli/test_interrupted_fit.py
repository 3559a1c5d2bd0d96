"""``fit`` and Ctrl-C: the families that are complete become the model, and the command that goes on is printed."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier
from metricfit.cli.progress_display import fit_display
from metricfit.tabular.out_of_fold import FitProgress


@pytest.fixture(autouse=True)
def interrupts_arrive():
    """A shell starts commands in the background with interrupts ignored, and so the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_real_interrupt_leaves_a_model_of_the_complete_families(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1500, 2)).round(2), columns=["a", "b"])
    frame.assign(y=(frame["a"] + rng.normal(size=1500) > 1).astype(int)).to_csv(tmp_path / "t.csv", index=False)
    arguments = [
        "fit",
        "t.csv",
        "--target",
        "y",
        "--models",
        "linear,network",
        "--folds",
        "2",
        "--no-insight",
        "--out",
        "m",
    ]
    child = subprocess.Popen(
        [sys.executable, "-c", "from metricfit.cli.app import main; main()", *arguments],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        first = child.stderr.readline()
        assert first.startswith("linear: 0."), first + child.stderr.read()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130, err
    assert "Stopping. The model is made of linear; press Ctrl-C again" in err
    assert "Interrupted: the model does without network." in err
    assert err.rstrip().endswith(f"metricfit {' '.join(arguments)}-2")
    assert f"Model: {os.path.join('m', 'model')}" in out
    model = MetricClassifier.load(tmp_path / "m" / "model")
    assert [row.name for row in model.models_ if row.left_out is None] == ["linear"]
    assert (tmp_path / "m" / "report.html").stat().st_size > 1000
    assert "interrupted" in json.dumps([vars(row) for row in model.models_])


def ended(family, number=1):
    return FitProgress(family, number, 2, 4, 4, ended=True)


def test_the_second_interrupt_ends_the_command(capsys):
    with pytest.raises(KeyboardInterrupt), fit_display(quiet=True) as display:  # noqa: PT012
        display.report(ended("linear"))
        signal.raise_signal(signal.SIGINT)
        assert display.stop.is_set()
        display.notice.join()
        assert "The model is made of linear" in capsys.readouterr().err
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_the_first_family_ends_the_command():
    with pytest.raises(KeyboardInterrupt), fit_display(quiet=True) as display:  # noqa: PT012
        display.report(FitProgress("linear", 1, 2, 2, 4))
        signal.raise_signal(signal.SIGINT)
    assert not display.stop.is_set()


def test_an_interrupt_while_the_model_is_written_changes_nothing(capsys):
    with fit_display(quiet=True) as display:
        display.report(ended("linear"))
        display.report(ended("kernel", 2))
        signal.raise_signal(signal.SIGINT)
    assert "Training is complete" in capsys.readouterr().err
    assert display.interrupted == []
