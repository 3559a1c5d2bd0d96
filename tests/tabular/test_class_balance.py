"""rethreshold(prevalence="estimate", X=...): the class balance of new rows, and drift, of whole models."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from metricfit import MetricClassifier
from metricfit._schema import Content, read
from metricfit.decide.shift import DriftWarning, PriorShift, detect_drift
from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric


def table(n, shares, seed, move=0.0):
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), size=n, p=shares)
    X = rng.normal(size=(n, 4)) + move
    X[:, 0] += 2.0 * (y == 1)
    X[:, 1] += 2.5 * (y == 2)
    return X, y


@pytest.fixture(scope="module")
def model():
    X, y = table(800, (0.8, 0.2), seed=0)
    return MetricClassifier("f1", models=["linear"], random_state=0).fit(X, np.array(["no", "yes"])[y])


@pytest.fixture(autouse=True)
def rethreshold_for_training(model):
    yield
    model.rethreshold()


def test_the_balance_of_new_rows_is_estimated_and_decided_for(model):
    X, y = table(3000, (0.4, 0.6), seed=1)
    before = model.predict(X)
    assert model.prevalence_ == pytest.approx(0.2, abs=0.05)
    assert model.prevalence_interval_ is None
    assert model.drift_ is None
    assert model.rethreshold(prevalence="estimate", X=X) is model
    low, high = model.prevalence_interval_
    assert low < y.mean() < high
    assert low < model.prevalence_ < high
    assert not model.drift_.found
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.04)
    estimated = model.predict(X)
    model.rethreshold(prevalence=float(y.mean()))
    assert (model.predict(X) == estimated).mean() > 0.97
    assert (estimated == "yes").sum() > (before == "yes").sum()


def test_the_estimate_is_saved_with_the_model(model, tmp_path):
    model.rethreshold(prevalence="estimate", X=table(300, (0.4, 0.6), seed=1)[0])
    model.save(tmp_path / "model")
    loaded = MetricClassifier.load(tmp_path / "model")
    assert loaded.prevalence_interval_ == model.prevalence_interval_
    assert loaded.drift_ == model.drift_
    assert loaded.rethreshold().drift_ is None


@pytest.mark.parametrize("damage", [{"rows": -1}, {"drift": None}, {"drift": {"p_value": "low", "found": True}}])
def test_a_damaged_estimate_is_refused(model, damage):
    content = Content({"prior_shift.shares": np.full(2, 0.5), "prior_shift.intervals": np.zeros((3, 2))})
    description = {"rows": 300, "drift": {"p_value": 0.5, "distance": 0.1, "found": False}}
    estimate = read(PriorShift, description, "prior_shift", content)
    with pytest.raises(InvalidValueError, match="prior_shift"):
        read(PriorShift, description | damage, "prior_shift", content)
    chosen = replace(model.chosen_, prior_shift=estimate)
    assert chosen.faults(get_metric("f1"), None) == ["class balance: another number of estimates than of classes"]


def test_another_call_forgets_the_estimate(model):
    model.rethreshold(prevalence="estimate", X=table(300, (0.4, 0.6), seed=1)[0])
    model.rethreshold(prevalence=0.3)
    assert model.prevalence_ == pytest.approx(0.3)
    assert model.prevalence_interval_ is None
    assert model.drift_ is None


def test_the_positive_class_is_the_one_that_is_estimated():
    X, y = table(800, (0.8, 0.2), seed=0)
    model = MetricClassifier("f1", models=["linear"], pos_label=0, random_state=0).fit(X, y)
    model.rethreshold(prevalence="estimate", X=table(2000, (0.4, 0.6), seed=1)[0])
    assert model.prevalence_ == pytest.approx(0.4, abs=0.05)


def test_drift_is_a_warning_and_the_model_decides_all_the_same(model):
    X, _ = table(1000, (0.8, 0.2), seed=1, move=1.0)
    with pytest.warns(DriftWarning, match="does not explain"):
        model.rethreshold(prevalence="estimate", X=X)
    assert model.drift_.found
    assert len(model.predict(X)) == 1000


def test_several_classes():
    X, y = table(900, (0.6, 0.25, 0.15), seed=0)
    names = np.array(["a", "b", "c"])
    model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, names[y])
    new, truth = table(2000, (0.2, 0.4, 0.4), seed=1)
    model.rethreshold(prevalence="estimate", X=new)
    assert sum(model.prevalence_.values()) == pytest.approx(1)
    for number, name in enumerate(names):
        assert model.prevalence_[name] == pytest.approx((truth == number).mean(), abs=0.06)
        low, high = model.prevalence_interval_[name]
        assert low <= model.prevalence_[name] <= high
    assert not model.drift_.found


def test_scores_of_new_rows_come_from_models_of_folds_because_their_mean_would_look_like_drift():
    X, y = table(3300, (0.7, 0.3), seed=0)
    forest = RandomForestClassifier(10, random_state=0)
    model = MetricClassifier("f1", models=[forest], members=3, random_state=0).fit(X[:300], y[:300])
    assert not detect_drift(*model._comparable_rows(X[300:])).found
    assert detect_drift(model.held_out_, model._calibrated_logits(X[300:])).found


def test_copies_of_a_row_are_not_taken_for_drift():
    X, y = table(4000, (0.7, 0.3), seed=0)
    X[y == 0] = np.where(np.arange((y == 0).sum())[:, None] % 2, X[y == 0], X[y == 0][0])  # a third of the rows
    trees = RandomForestClassifier(10, min_samples_leaf=10, random_state=0)
    model = MetricClassifier("f1", models=[trees], members=3, random_state=0).fit(X[:1000], y[:1000])
    rows, logits = model._comparable_rows(X[1000:])
    assert detect_drift(rows, logits).p_value > 0.1
    assert detect_drift(model.held_out_, logits).p_value < 0.05  # as if copies were independent


def test_a_saved_model_estimates_the_same(tmp_path):
    X, y = table(200, (0.7, 0.3), seed=0)
    trees = MetricClassifier("f1", models=["boosting_small"], members=2, random_state=0).fit(X, y)
    trees.save(tmp_path / "model")
    loaded = MetricClassifier.load(tmp_path / "model")
    new, _ = table(400, (0.4, 0.6), seed=1)
    for each in (trees, loaded):
        each.rethreshold(prevalence="estimate", X=new)
    assert loaded.prevalence_ == pytest.approx(trees.prevalence_, abs=1e-6)
    assert loaded.drift_.p_value == trees.drift_.p_value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prevalence": "estimate"}, "needs new rows"),
        ({"prevalence": 0.3, "X": np.zeros((3, 4))}, "X is for prevalence='estimate'"),
        ({"X": np.zeros((3, 4))}, "X is for prevalence='estimate'"),
        ({"prevalence": "guess", "X": np.zeros((3, 4))}, "'estimate'; got 'guess'"),
        ({"prevalence": "estimate", "X": np.zeros((3, 5))}, "5 features"),
        ({"prevalence": "estimate", "X": np.zeros((0, 4))}, "0 sample|at least one row|minimum of 1"),
    ],
)
def test_wrong_use_is_refused_and_leaves_the_model(model, arguments, message):
    threshold = model.threshold_
    with pytest.raises(ValueError, match=message):
        model.rethreshold(**arguments)
    assert model.threshold_ == threshold
