"""compare's networks train alike whatever the clock says; groups and copies of rows stay on one side of a split."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from metricfit.tabular import member_training as training
from metricfit.tabular.compare import comparison, fold_cells
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.effort import shared_effort
from metricfit.tabular.compare.methods import methods


def table(n=120):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    return X, (X["b"] + 0.5 * rng.normal(size=n) > 0.3).to_numpy().astype(np.int64)


@pytest.fixture
def clock(monkeypatch):
    """Seconds a step, by the stage's name: what the machine would have measured."""
    seconds = {}
    monkeypatch.setattr(training, "seconds_per_step", lambda model, stage, *rest: seconds.get(stage.name, 0.01))
    return seconds


def test_all_networks_get_what_the_slowest_can_afford(clock):
    X, y = table()
    clock["focal"] = 0.04
    found = shared_effort(methods(False), X, y, "f1", [], network="mlp", members=4, time_budget=8.0)
    assert found == {"network": "mlp", "epochs": 50, "members": 4}  # 8 s / (0.04 s x 4 members), one step an epoch


def test_one_network_for_all(clock):
    X, y = table()
    plain = shared_effort(methods(False), X, y, "f1", [], network="auto", members=2, epochs=3, time_budget=None)
    required = shared_effort(
        methods(True), X, y, "f1", ["recall >= 0.3"], network="auto", members=2, epochs=3, time_budget=None
    )
    assert plain["network"] != "embedded" == required["network"]  # which every method can train


class Constant:
    """A method's fitted model that scores every row alike."""

    threshold, model, not_reachable = 0.5, SimpleNamespace(history_=[]), None

    def scores(self, X):
        return np.zeros(len(X))


@pytest.fixture
def trained_on(monkeypatch):
    """The rows and groups that methods are given, in place of training."""
    given = []

    def train(method, X, y, *, groups, **how):
        given.append((X, groups, how))
        return Constant()

    monkeypatch.setattr(fold_cells, "train", train)
    monkeypatch.setattr(comparison, "load_training", lambda: None)
    return given


def test_the_effort_is_kept_and_the_clock_asked_once(tmp_path, clock, trained_on):
    X, y = table()
    settings = {"folds": 2, "network": "mlp", "members": 2, "time_budget": 4.0}
    first = compare(X, y, "f1", folder=tmp_path, **settings)
    for path in list(tmp_path.rglob("finished"))[::2]:
        if path.parent.name != "effort":
            path.unlink()
    clock["mix"] = 1.0
    again = compare(X, y, "f1", folder=tmp_path, **settings)
    assert again.effort == first.effort == {"network": "mlp", "epochs": 200, "members": 2}
    for _, _, how in trained_on:
        assert {key: how[key] for key in ("network", "epochs", "members", "time_budget")} == {
            **first.effort,
            "time_budget": None,
        }
    specs = [json.loads(path.read_text()) for path in Path(tmp_path).rglob("fold*/spec.json")]
    assert len(specs) == 14
    assert len({json.dumps(spec) for spec in specs}) == 1


def test_groups_and_copies_stay_on_one_side(tmp_path, trained_on):
    X, y = table()
    X = pd.concat([X, X.iloc[:40]], ignore_index=True)
    y = np.concatenate([y, 1 - y[:40]])  # copies, though their labels differ
    groups = np.resize(np.repeat(np.arange(40), 3), 160)
    compare(X, y, "f1", folder=tmp_path, folds=3, groups=groups, network="mlp", members=2, epochs=1, time_budget=None)
    assert len(trained_on) == 21
    for rows, of_rows, _ in trained_on:
        held_out = X.index.difference(rows.index)
        assert 0 < len(held_out) < 160
        assert not set(groups[held_out]) & set(of_rows)
        np.testing.assert_array_equal(groups[rows.index], of_rows)
        assert not set(map(tuple, X.loc[held_out].to_numpy())) & set(map(tuple, rows.to_numpy()))
