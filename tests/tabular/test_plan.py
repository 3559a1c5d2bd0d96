"""plan: what fit would choose, said without training; given back, fit repeats itself whatever the time."""

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.tabular import member_training as training


@pytest.fixture
def rows():
    X = np.random.default_rng(0).normal(size=(120, 3))
    return X, (X[:, 0] > 1).astype(int)


def test_a_plan_is_what_fit_takes(rows, monkeypatch):
    monkeypatch.setattr(training, "seconds_per_step", lambda *given: 0.01)
    model = MetricClassifier("f1", members=6, time_budget=2.0, random_state=0)
    plan = model.plan(*rows)
    model.fit(*rows)
    assert plan == {"network": model.network_.name, "epochs": 33, "members": len(model.members_)}
    assert max(row["epoch"] for row in model.history_) <= 33


def test_a_plan_changes_nothing(rows):
    model = MetricClassifier("f1", network="mlp", members=2, random_state=np.random.RandomState(3))
    drawn = model.random_state.get_state()[1].copy()
    model.plan(*rows)
    assert not [name for name in vars(model) if name.endswith("_")]
    assert (model.random_state.get_state()[1] == drawn).all()


def test_with_a_plan_the_machines_speed_does_not_matter(rows, monkeypatch):
    plan = MetricClassifier("f1", network="mlp", members=3, time_budget=0.05, random_state=0).plan(*rows)
    found = []
    for seconds in (1e-6, 1e3):
        monkeypatch.setattr(training, "seconds_per_step", lambda *given, of=seconds: of)
        model = MetricClassifier("f1", **plan, time_budget=None, random_state=0).fit(*rows)
        found.append(model.predict_proba(rows[0]))
    np.testing.assert_array_equal(*found)
