"""What estimators share: decisions chosen anew, and the curve of every threshold."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, f1_score, fbeta_score, matthews_corrcoef, precision_recall_curve

from metricfit import MetricClassifier, metrics
from metricfit.decide.calibration import sigmoid
from metricfit.errors import InvalidValueError


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    return X, (X[:, 0] + 0.7 * rng.normal(size=240) > 1).astype(int)


@pytest.fixture
def model(rows):
    return MetricClassifier("f1", models="linear", members=3, time_budget=None, n_jobs=1, random_state=0).fit(*rows)


def held_out_probabilities(model):
    return sigmoid((model.held_out_.logits + model.shift_).squeeze(1)), model.held_out_.y


def test_the_curve_has_the_counts_of_scikit_learn_at_every_threshold(model):
    p, y = held_out_probabilities(model)
    curve = model.curve_
    assert len(curve.threshold) == len(np.unique(p)) + 1
    for place in (0, 1, 17, 100, len(curve.threshold) - 1):
        called = p >= curve.threshold[place]
        tn, fp, fn, tp = confusion_matrix(y, called, labels=[0, 1]).ravel()
        cells = [getattr(curve, cell)[place] for cell in ("tp", "fp", "fn", "tn")]
        assert cells == [tp, fp, fn, tn]
        assert curve.value[place] == pytest.approx(f1_score(y, called))
        assert curve.value_of("mcc")[place] == pytest.approx(matthews_corrcoef(y, called))
    precision, recall, _ = precision_recall_curve(y, p, drop_intermediate=False)
    assert curve.recall[::-1] == pytest.approx(recall)
    assert curve.precision[:0:-1] == pytest.approx(precision[:-1])
    assert pd.DataFrame(vars(curve)).shape == (len(curve.threshold), 8)


def test_another_metric_decides_as_a_model_of_that_metric_would_with_the_same_logits(model, rows):
    before = model.threshold_
    model.rethreshold(metric="fbeta(beta=3)")
    assert model.metric == "fbeta(beta=3)"
    assert model.threshold_ < before
    p, _ = held_out_probabilities(model)
    expected = [(10 * p[p >= t].sum()) / (9 * p.sum() + (p >= t).sum()) for t in p]
    here = 10 * p[p >= model.threshold_].sum() / (9 * p.sum() + (p >= model.threshold_).sum())
    assert here == pytest.approx(max(expected))
    at_threshold = model.curve_.value[sum(p >= model.threshold_)]
    assert model.decision_.evidence.value == pytest.approx(at_threshold)
    assert model.score(*rows) == pytest.approx(fbeta_score(rows[1], model.predict(rows[0]), beta=3))
    assert model.rethreshold(metric=metrics.f1).threshold_ == before


def test_the_curve_follows_another_class_balance(model):
    p, y = held_out_probabilities(model.rethreshold(0.5))
    weight = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    curve = model.curve_
    place = 40
    called = p >= curve.threshold[place] - 1e-12
    assert curve.value[place] == pytest.approx(f1_score(y, called, sample_weight=weight))
    assert curve.tp[place] + curve.fn[place] == pytest.approx(curve.fp[place] + curve.tn[place])


def test_a_metric_that_does_not_exist_leaves_the_model_as_it_was(model):
    threshold = model.threshold_
    with pytest.raises(InvalidValueError, match="no metric"):
        model.rethreshold(metric="f_one")
    assert (model.metric, model.threshold_) == ("f1", threshold)


def test_several_classes_have_no_curve(rows):
    X, _ = rows
    model = MetricClassifier(models="linear", members=2, time_budget=None, n_jobs=1, random_state=0)
    assert not hasattr(model, "curve_")
    assert model.fit(X, np.digitize(X[:, 0], [-0.5, 0.5])).curve_ is None
    value = model.value_
    assert model.rethreshold(metric="mcc").value_ != value
