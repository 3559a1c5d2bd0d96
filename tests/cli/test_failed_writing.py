"""Commands on a disk that is full, or interrupted while they write: nothing is left, and the next attempt works."""

import errno
import json
import os
import resource
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli import fit as fit_command
from metricfit.cli.app import app

SMALL = ("--models", "linear", "--folds", "2", "--quiet", "--json")


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@contextmanager
def full_disk(bytes_left):
    """A limit on the size of files stands for a full disk: writing fails in the same places."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def data(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["a", "b"])
    frame.assign(y=(frame["b"] > 0.5).astype(int)).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fit(data):
    return call("fit", data, "--target", "y", "--out", data.with_name("out"), *SMALL)


def test_a_full_disk_leaves_no_partial_model_and_no_partial_predictions(data):
    with full_disk(bytes_left=1000):
        failed = fit(data)
    assert failed.exit_code == 2, failed.output
    assert f"{data.with_name('out')}" in "".join(failed.stderr.split())
    assert "unfinished" not in failed.stderr
    assert "Free some disk space" in failed.stderr
    assert names(data.parent) == ["t.csv"]

    fitted = fit(data)
    assert fitted.exit_code == 0, fitted.output
    assert names(data.parent) == ["out", "t.csv"]
    assert names(data.with_name("out")) == ["model", "report.html"]
    assert json.loads(fitted.stdout)["report"] == str(data.with_name("out") / "report.html")

    for name in ("p.csv", "p.parquet"):
        arguments = ("predict", data.with_name("out"), data, "--out", data.with_name(name), "--quiet")
        with full_disk(bytes_left=1000):
            failed = call(*arguments)
        assert failed.exit_code == 2, failed.output
        assert str(data.with_name(name)) in "".join(failed.stderr.split())
        assert "unfinished" not in failed.stderr
        assert "Free some disk space" in failed.stderr
        assert names(data.parent) == ["out", "t.csv"]
    assert call(*arguments).exit_code == 0
    assert names(data.parent) == ["out", "p.parquet", "t.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="everything may be written by root")
def test_a_folder_that_cannot_be_written_is_named_before_the_work(data):
    (data.parent / "closed").mkdir(mode=0o500)
    result = call("fit", data, "--target", "y", "--out", data.parent / "closed" / "out", *SMALL)
    assert result.exit_code == 2
    assert f"{data.parent / 'closed' / 'out'} cannot be used" in " ".join(result.stderr.split())


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("failure", "code"), [(KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, "No space left on device"), 2)]
)
def test_a_fit_that_fails_after_its_model_leaves_nothing_that_blocks_the_next(data, monkeypatch, failure, code, exists):
    def fail(*arguments, **settings):
        raise failure

    if exists:
        data.with_name("out").mkdir()
    before = sorted(data.parent.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(fit_command, "write_model_page", fail)
        assert fit(data).exit_code == code
    assert sorted(data.parent.rglob("*")) == before
    assert fit(data).exit_code == 0
