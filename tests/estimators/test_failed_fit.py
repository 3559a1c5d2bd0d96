"""A fit or a rethreshold that fails leaves the model as it was, whatever it was."""

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier
from metricfit.curves import InfeasibleError
from metricfit.estimators import classifier

NEVER = ["precision >= 0.999", "recall >= 0.999"]


@pytest.fixture
def fitted(quick, blobs):
    X, y = blobs
    model = MetricClassifier(**{**quick, "members": 2, "epochs": 15})
    return model.set_params(subject_to=["precision >= 0.3", "recall >= 0.5"]).fit(X, y)


def learned(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_") or name.startswith("_")}


def same(one, other):
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def test_a_balance_that_cannot_meet_the_requirements_changes_nothing(fitted, blobs):
    X, _ = blobs
    before, probabilities = learned(fitted), fitted.predict_proba(X)
    with pytest.raises(InfeasibleError):
        fitted.rethreshold(0.001)
    assert same(learned(fitted), before)
    assert np.array_equal(fitted.predict_proba(X), probabilities)


@pytest.mark.parametrize("what", ["other labels", "other columns", "interrupted"])
def test_a_refit_that_fails_changes_nothing(fitted, blobs, what, monkeypatch):
    X, y = blobs
    before, labels = learned(fitted), fitted.predict(X)
    if what == "interrupted":

        def interrupted(*given, **settings):
            raise KeyboardInterrupt

        monkeypatch.setattr(classifier, "calibrated", interrupted)
    else:
        fitted.set_params(subject_to=NEVER)
    other = pd.DataFrame(X[:, :3], columns=list("abc")) if what == "other columns" else X
    with pytest.raises(KeyboardInterrupt if what == "interrupted" else InfeasibleError):
        fitted.fit(other, np.where(y == 1, "cat", "dog"))
    assert same(learned(fitted), before)
    assert np.array_equal(fitted.predict(X), labels)


def test_a_first_fit_that_fails_leaves_nothing(quick, blobs):
    X, y = blobs
    model = MetricClassifier(**{**quick, "members": 2, "epochs": 2}, subject_to=NEVER)
    with pytest.raises(InfeasibleError):
        model.fit(X, y)
    assert not learned(model)


def test_what_is_reachable_is_said_in_probabilities(fitted, blobs):
    X, y = blobs
    with pytest.raises(InfeasibleError) as caught:
        MetricClassifier(**{**fitted.get_params(), "subject_to": NEVER}).fit(X, y)
    text = str(caught.value)
    threshold = float(text.partition("nearest at threshold ")[2].partition(":")[0])
    assert 0 < threshold < 1
    # The naive twin: the same model without requirements, whose out-of-fold probabilities are searched one by one.
    held_out = MetricClassifier(**{**fitted.get_params(), "subject_to": None}).fit(X, y).held_out_
    scores, labels = 1 / (1 + np.exp(-held_out.logits.squeeze(1).numpy())), held_out.y.numpy() == 1
    worst = {}
    for each in scores:
        called = scores >= each
        hits = (called & labels).sum()
        worst[each] = 0.999 - min(hits / called.sum(), hits / labels.sum())
    assert worst[min(worst, key=lambda each: abs(each - threshold))] == pytest.approx(min(worst.values()))
