"""TunedDecisionClassifier(ensemble=...): new rows are scored by the estimators of the folds, or by one of all rows."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit, softmax
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, TimeSeriesSplit
from sklearn.multiclass import OneVsRestClassifier

from metricfit import TunedDecisionClassifier

LINEAR = LogisticRegression()


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(400, 6, weights=[0.8], flip_y=0.1, random_state=0)
    return X[:300], y[:300], X[300:]


def naive_probabilities(estimators, model, X):
    """Calibrate the mean logits of two classes by hand; the smallest probability of the held-out rows bounds them."""
    low = model.scorer_.smallest_probability
    mean = np.mean([logit(each.predict_proba(X)[:, 1].clip(low, 1 - low)) for each in estimators], axis=0)
    return expit(mean / float(model.scorer_.calibration.temperature) + model.scorer_.calibration.bias.item())


def test_two_classes_are_scored_by_the_mean_of_the_logits_of_the_folds(rows):
    X, y, new = rows
    splits = list(KFold(4, shuffle=True, random_state=1).split(X))
    model = TunedDecisionClassifier(LINEAR, "f1", cv=splits, random_state=0).fit(X, y)
    folds = [clone(LINEAR).fit(X[train], y[train]) for train, _ in splits]
    assert len(model.estimators_) == 4
    p = naive_probabilities(folds, model, new)
    assert model.predict_proba(new)[:, 1] == pytest.approx(p, abs=1e-6)
    assert np.mean((p >= model.threshold_) == model.predict(new)) > 0.98
    assert np.abs(p - naive_probabilities(folds[:1], model, new)).max() > 1e-3


def test_one_estimator_of_all_rows_scores_without_the_ensemble(rows):
    X, y, new = rows
    model = TunedDecisionClassifier(LINEAR, "f1", ensemble=False, random_state=0).fit(X, y)
    alone = clone(LINEAR).fit(X, y)
    assert np.allclose(model.estimator_.coef_, alone.coef_)
    assert len(model.estimators_) == 5
    assert model.predict_proba(new)[:, 1] == pytest.approx(naive_probabilities([alone], model, new), abs=1e-6)
    mean = TunedDecisionClassifier(LINEAR, "f1", random_state=0).fit(X, y)
    assert mean.threshold_ == model.threshold_
    assert np.abs(mean.predict_proba(new) - model.predict_proba(new)).max() > 1e-4


def test_several_classes_and_labels_are_scored_by_the_mean_of_the_logits(rows):
    X, _, new = rows
    y = np.digitize(X[:, 0], [-0.7, 0.7])
    model = TunedDecisionClassifier(LINEAR, "f1", cv=3, random_state=0).fit(X, y)
    logits = np.mean([each.predict_log_proba(new) for each in model.estimators_], axis=0)
    calibrated = logits / float(model.scorer_.calibration.temperature) + model.scorer_.calibration.bias
    assert model.predict_proba(new) == pytest.approx(softmax(calibrated, axis=1), abs=1e-6)
    X, y = make_multilabel_classification(300, 8, n_classes=4, random_state=0)
    X = X / X.max()
    tagger = TunedDecisionClassifier(OneVsRestClassifier(LINEAR), "f1", cv=3, random_state=0).fit(X, y)
    logits = np.mean([logit(each.predict_proba(X)) for each in tagger.estimators_], axis=0)
    calibration = tagger.scorer_.calibration
    calibrated = expit(logits / calibration.temperature + calibration.bias)
    assert tagger.predict_proba(X) == pytest.approx(calibrated, abs=1e-6)


def test_the_one_estimator_is_missing_where_the_folds_decide(rows):
    X, y, _ = rows
    model = TunedDecisionClassifier(LINEAR, cv=2, random_state=0)
    with pytest.raises(NotFittedError):
        _ = model.estimator_
    assert not hasattr(model.fit(X, y), "estimator_")
    with pytest.raises(AttributeError, match="ensemble=False keeps one estimator fitted on all rows"):
        _ = model.estimator_
    model.set_params(ensemble=False)
    assert not hasattr(model, "estimator_")  # parameters are for the next fit
    assert hasattr(model.fit(X, y), "estimator_")
    assert not hasattr(model.set_params(ensemble=True).fit(X, y), "estimator_")


@pytest.mark.parametrize("ensemble", [True, False])
def test_a_fitted_estimator_decides_alone(rows, ensemble):
    X, y, new = rows
    fitted = clone(LINEAR).fit(X[:150], y[:150])
    model = TunedDecisionClassifier(fitted, cv="prefit", ensemble=ensemble, random_state=0).fit(X[150:], y[150:])
    assert model.estimator_ is fitted
    assert model.estimators_ == []
    assert model.predict_proba(new)[:, 1] == pytest.approx(naive_probabilities([fitted], model, new), abs=1e-6)


@pytest.mark.parametrize("ensemble", [True, False])
def test_columns_and_saved_models(rows, ensemble, tmp_path):
    X, y, new = (pd.DataFrame(each, columns=list("abcdef")) if each.ndim == 2 else each for each in rows)
    model = TunedDecisionClassifier(LINEAR, cv=TimeSeriesSplit(3), ensemble=ensemble, random_state=0).fit(X, y)
    assert model.feature_names_in_.tolist() == list("abcdef")
    assert model.n_features_in_ == 6
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "scorer.one.skops").exists() == (not ensemble)
    again = TunedDecisionClassifier.load(tmp_path / "model")
    assert again.ensemble is ensemble
    assert hasattr(again, "estimator_") == (not ensemble)
    assert len(again.estimators_) == 3
    assert np.array_equal(again.predict_proba(new), model.predict_proba(new))
