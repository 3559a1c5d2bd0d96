"""Families and folds on a cluster: the model of one process, the time budget, stopping."""

import json
import time

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.runs import executor
from metricfit.tabular import out_of_fold
from metricfit.tabular.families.linear import Linear
from metricfit.tabular.out_of_fold import FitWatcher, watch_fit

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the clusters


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 3)).round(3), columns=list("abc"))
    return X, np.where(X["a"] + X["b"] * X["c"] + rng.normal(size=150) > 1, "yes", "no")


@pytest.fixture(scope="module")
def dask():
    """A cluster of Dask with its scheduler and two workers in this process, where starting takes no seconds."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None):
        yield


@pytest.fixture
def on_dask(dask):
    with joblib.parallel_config(backend="dask"):
        yield


def classifier(**settings):
    models = ["linear", ("tree", DecisionTreeClassifier(max_depth=3)), "boosting"]
    return MetricClassifier(**{"models": models, "members": 3, "random_state": 0, "pos_label": "yes"} | settings)


def facts(model):
    return [(row.name, row.weight, row.value, row.log_loss, row.left_out) for row in model.models_]


class Recorder(FitWatcher):
    """Records what it is told, and stops training at a place."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.seen, self.stop_at = [], stop_at

    def report(self, progress):
        self.seen.append(progress)
        if self.stop_at == (progress.family, progress.ended):
            self.stop.set()


@pytest.mark.parametrize("settings", [{}, {"cv": "forward"}])
def test_the_model_is_that_of_one_process(rows, dask, settings):
    X, y = rows
    weight = np.linspace(0.5, 2, len(y)) if settings else None
    alone = classifier(n_jobs=1, **settings).fit(X, y, weight)
    watcher = Recorder()
    with joblib.parallel_config(backend="dask"), watch_fit(watcher):
        assert executor.runs_on_cluster()
        on_cluster = classifier(**settings).fit(X, y, weight)
    assert not executor.runs_on_cluster()
    assert facts(on_cluster) == facts(alone)
    assert np.array_equal(on_cluster.predict_proba(X), alone.predict_proba(X))
    assert on_cluster.threshold_ == alone.threshold_
    ended = [progress.family for progress in watcher.seen if progress.ended]
    assert ended == ["linear", "boosting", "tree"]
    folds = [progress.folds_done for progress in watcher.seen if progress.family == "linear"]
    assert folds == sorted(folds)
    assert folds[-1] == 3


@pytest.mark.usefixtures("on_dask")
def test_the_first_family_is_fitted_whatever_the_budget(rows):
    model = classifier(models=["linear", "boosting"], time_budget=1e-6).fit(*rows)
    first, second = model.models_
    assert (first.name, first.left_out) == ("linear", None)
    assert second.name == "boosting"
    assert second.left_out == "the time budget was used up before it"


def test_a_fold_that_begins_after_the_deadline_ends_at_once(rows):
    X, _ = rows
    family, split = Linear(), (np.arange(100), np.arange(100, 150))
    y = (X["a"] > 0).to_numpy().astype(np.int64)
    arguments = (family, X.to_numpy(np.float32), None, y, None, 2, 0, [split], 0)
    late, in_time = (out_of_fold.fit_by_worker(*arguments, time.time() + s, 1) for s in (-1, 60))
    assert late is None
    assert list(in_time) == [0]


@pytest.mark.usefixtures("on_dask")
def test_a_stopped_fit_keeps_the_complete_families(rows):
    with watch_fit(Recorder(("linear", True))):
        model = classifier(models=["linear", "boosting", "extra_trees"]).fit(*rows)
    left_out = {row.name for row in model.models_ if row.left_out is not None}
    assert "linear" not in left_out
    assert "extra_trees" in left_out
    assert all("interrupted" in row.left_out for row in model.models_ if row.left_out is not None)


@pytest.mark.usefixtures("on_dask")
def test_a_fit_that_is_stopped_at_once_ends(rows):
    with pytest.raises(KeyboardInterrupt), watch_fit(Recorder(("linear", False))):
        classifier(models=["linear", "extra_trees"], members=8).fit(*rows)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_the_command_on_a_cluster_of_processes(rows, tmp_path, backend, package):
    pytest.importorskip(package)
    X, y = rows
    X.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    small = ["--models", "linear,boosting", "--folds", "2", "--jobs", "2", "--quiet", "--json"]
    results = []
    for name, options in (("alone", []), ("cluster", ["--backend", backend])):
        arguments = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / name), *small, *options]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        results.append(json.loads(result.stdout))
    alone, on_cluster = results
    for key in ("value", "value_interval", "threshold", "threshold_interval", "out_of_fold"):
        assert on_cluster[key] == alone[key]


def test_an_unknown_backend_is_refused(tmp_path):
    result = CliRunner().invoke(
        app, ["fit", "t.csv", "--target", "y", "--out", str(tmp_path / "m"), "--backend", "spark"]
    )
    assert result.exit_code == 2
    assert "--backend is threads, ray or dask; got 'spark'" in " ".join(result.stderr.split())
