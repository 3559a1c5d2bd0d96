"""A requirement that cannot be met: the trained model is kept, says what is reachable, and chooses again."""

import warnings

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.curves import InfeasibleError, InfeasibleWarning
from metricfit.decide import choose

NEVER = ["precision >= 0.999", "recall >= 0.999"]


@pytest.fixture(scope="module")
def settings(quick_settings):
    return {**quick_settings, "models": ["linear"], "members": 2}


@pytest.fixture(scope="module")
def unmet(settings, blobs):
    """A model whose requirements no threshold meets, and the warning it gave."""
    with pytest.warns(InfeasibleWarning) as caught:
        model = MetricClassifier("f1", subject_to=NEVER, **settings).fit(*blobs)
    return model, str(caught[0].message)


def test_the_model_is_kept_and_decides(unmet, settings, blobs):
    X, y = blobs
    model, _ = unmet
    free = MetricClassifier("f1", **settings).fit(X, y)
    assert np.array_equal(model.predict_proba(X), free.predict_proba(X))
    assert np.array_equal(model.predict(X) == 1, model.predict_proba(X)[:, 1] >= model.threshold_)
    assert model.score(X, y) > 0.6


def test_the_threshold_is_the_one_with_the_smallest_violation(unmet):
    """The naive twin: every out-of-fold probability is tried as a threshold."""
    model, _ = unmet
    held_out = model.held_out_
    scores, labels = 1 / (1 + np.exp(-held_out.logits.squeeze(1))), held_out.y == 1

    def values(threshold):
        called = scores >= threshold
        hits = (called & labels).sum()
        return hits / called.sum(), hits / labels.sum()

    smallest = min(0.999 - min(values(each)) for each in scores)
    assert 0.999 - min(values(model.threshold_)) == pytest.approx(smallest)
    precision, recall = (model.requirements_[text] for text in NEVER)
    assert (precision.value, recall.value) == pytest.approx(values(model.threshold_))
    assert (precision.met, recall.met, model.requirements_met_) == (False, False, False)
    assert precision.reachable == pytest.approx(max(values(each)[0] for each in scores))
    assert recall.reachable == 1.0


def test_the_warning_says_what_is_reachable_in_probabilities(unmet):
    model, message = unmet
    assert message.startswith("no threshold gives precision >= 0.999 and recall >= 0.999 together; each alone, ")
    assert f"the nearest threshold is {model.threshold_:.6g}, with precision = " in message
    assert "rethreshold(subject_to=...)" in message


def test_other_requirements_are_chosen_without_training(unmet, blobs, tmp_path):
    X, _ = blobs
    unmet[0].save(tmp_path / "model")
    model = MetricClassifier.load(tmp_path / "model")
    before = model.predict_proba(X)
    assert not model.requirements_met_
    assert model.requirements_ == unmet[0].requirements_
    with warnings.catch_warnings():
        warnings.simplefilter("error", InfeasibleWarning)
        model.rethreshold(subject_to="recall >= 0.8")
    assert model.requirements_met_
    assert list(model.requirements_) == ["recall >= 0.8"]
    assert model.requirements_["recall >= 0.8"].value >= 0.8
    assert np.array_equal(model.predict_proba(X), before)
    model.save(tmp_path / "again")
    assert MetricClassifier.load(tmp_path / "again").requirements_ == model.requirements_
    free = model.rethreshold(subject_to=None)
    assert (free.requirements_, free.requirements_met_, free.subject_to) == ({}, True, None)


def test_another_balance_may_make_requirements_unreachable_and_back(settings, blobs):
    X, y = blobs
    asked = ["precision >= 0.3", "recall >= 0.5"]
    model = MetricClassifier("f1", subject_to=asked, **settings).fit(X, y)
    threshold = model.threshold_
    with pytest.warns(InfeasibleWarning, match="no threshold gives"):
        model.rethreshold(0.001)
    assert not model.requirements_met_
    assert model.rethreshold().threshold_ == threshold
    assert model.requirements_met_


def test_a_class_that_there_is_not_is_refused_again(settings, blobs):
    X, _ = blobs
    model = MetricClassifier("f1", **settings).fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    with pytest.raises(ValueError, match=r"recall\[3\]: there are 3 classes, 0 to 2"):
        model.rethreshold(subject_to="recall[3] >= 0.5")
    assert model.subject_to is None


def test_requirements_that_no_resample_meets_are_no_error(settings, blobs, monkeypatch):
    """The rows may meet a requirement just so, and no resample of them: then the threshold has no interval."""
    model = MetricClassifier("f1", decision="empirical", **settings).fit(*blobs)
    real = choose.bootstrap

    def strict(*given, subject_to=None, **settings):
        if subject_to:
            raise InfeasibleError("no resample gave a value")
        return real(*given, **settings)

    monkeypatch.setattr(choose, "bootstrap", strict)
    model.rethreshold(subject_to="recall >= 0.5")
    assert model.requirements_met_
    assert model.threshold_interval_ is None
    assert model.value_interval_[0] <= model.value_ <= model.value_interval_[1]
