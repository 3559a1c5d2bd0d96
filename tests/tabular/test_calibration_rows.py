"""MetricClassifier with rows that are kept apart, on which the tests of a confidence are exact."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TimeSeriesSplit

from metricfit import MetricClassifier
from metricfit.decide.evidence import APPROXIMATE, GUARANTEED
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.report.model_page import screen_of_fit
from metricfit.tabular.facts import model_card

SETTINGS = {"models": ["linear"], "random_state": 0, "n_jobs": 1, "members": 4}
REQUIRED = {"metric": "precision", "subject_to": "recall >= 0.8", "confidence": 0.9}


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    X["a"] += 1.5 * y
    return X, pd.Series(np.where(y, "ill", "well"))


@pytest.fixture(scope="module")
def model():
    return MetricClassifier(calibration=0.4, **REQUIRED, **SETTINGS).fit(*table())


def test_no_model_was_trained_on_the_rows_apart(model, monkeypatch):
    X, y = table()
    apart = model.chosen_.basis.places.rows
    assert len(apart) == 240
    assert not model.chosen_.basis.places.folds.any()
    np.testing.assert_array_equal(model.held_out_.logits, model._logits(X.iloc[apart]))
    seen = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda *args, **named: seen.append(args[1]) or fit(*args, **named))
    marked = X.assign(a=np.where(np.isin(np.arange(600), apart), 1e6, X["a"]))
    MetricClassifier(calibration=0.4, **REQUIRED, **SETTINGS).fit(marked, y)
    assert seen
    assert max(part.max() for part in seen) < 11  # a column that held 1e6 would be scaled to the largest value


def test_it_is_guaranteed_and_remembered(model, tmp_path):
    assert model.certificate_ == GUARANTEED
    assert f"- Requirement recall &gt;= 0.8: {GUARANTEED}" in model_card(model)
    assert "- Rows that were kept apart from training, and judged: 240 of 600" in model_card(model)
    model.save(tmp_path / "model")
    loaded = MetricClassifier.load(tmp_path / "model")
    assert loaded.certificate_ == GUARANTEED
    assert loaded.rethreshold(confidence=0.8).certificate_ == GUARANTEED
    plain = MetricClassifier(**REQUIRED, **SETTINGS).fit(*table())
    assert plain.certificate_ == APPROXIMATE
    assert "rows that were kept apart from training" in screen_of_fit(model, "y").note
    assert "rows that were kept apart" not in screen_of_fit(plain, "y").note
    X, y = table()
    with pytest.raises(InvalidValueError, match=r"a fold trains on .*, or rows that are kept apart \(calibration=0.3"):
        MetricClassifier(cv=TimeSeriesSplit(3), **REQUIRED, **SETTINGS).fit(X, y)
    in_order = MetricClassifier(cv=TimeSeriesSplit(3), calibration=0.4, **REQUIRED, **SETTINGS).fit(X, y)
    assert in_order.certificate_ == GUARANTEED


def test_the_bound_is_that_of_the_rows_apart(model):
    held_out = model.held_out_
    decided = model.decision_.decide(held_out.logits)
    positives = held_out.y == 1
    found = int(decided[positives].sum())
    assert binomtest(found, int(positives.sum()), 0.8, alternative="greater").pvalue <= 0.1


def test_whole_groups_and_the_last_rows_are_kept_apart():
    X, y = table()
    groups = np.arange(600) // 3
    model = MetricClassifier(calibration=0.3, **SETTINGS).fit(X, y, groups=groups)
    apart = np.isin(groups, groups[model.chosen_.basis.places.rows])
    assert apart.sum() == len(model.chosen_.basis.places.rows) == 180
    later = MetricClassifier(calibration=0.25, cv="forward", **SETTINGS).fit(X, y)
    np.testing.assert_array_equal(later.chosen_.basis.places.rows, np.arange(450, 600))


def test_rows_of_weight_0_are_in_neither_part():
    X, y = table()
    weight = (np.arange(600) % 2).astype(float)
    model = MetricClassifier(calibration=0.3, **SETTINGS).fit(X, y, sample_weight=weight)
    assert len(model.chosen_.basis.places.rows) == 90
    assert (model.chosen_.basis.places.rows % 2 == 1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calibration": 1.0}, "a share of the rows below 1"),
        ({"calibration": 0.3, "cv": [(np.arange(300), np.arange(300, 600))]}, "cv= counts all rows"),
        ({"calibration": 0.001}, "leaves no calibration row of class"),
        ({"calibration": 0.0005}, "leaves no rows in one of the parts"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_training(settings, message, monkeypatch):
    monkeypatch.setattr("metricfit.tabular.classifier.fit_ensemble", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(InvalidValueError, match=message):
        MetricClassifier(**{**SETTINGS, **settings}).fit(*table())


def test_too_few_rows_apart_are_told_before_training(monkeypatch):
    monkeypatch.setattr("metricfit.tabular.classifier.fit_ensemble", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(InfeasibleError, match="needs at least 59 positives"):
        MetricClassifier("precision", subject_to="recall >= 0.95", confidence=0.95, calibration=0.1).fit(*table())


def test_the_rows_apart_are_looked_into(model):
    X, y = table()
    assert model.importance(X, y, out_of_fold=True).table["column"].tolist()[0] == "a"
