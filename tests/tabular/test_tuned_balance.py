"""TunedDecisionClassifier.rethreshold(prevalence="estimate", X=...): out of fold, prefit, several classes, saved."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from metricfit import TunedDecisionClassifier
from metricfit.decide.shift import DriftWarning, detect_drift


def table(n, shares, seed, move=0.0):
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), size=n, p=shares)
    X = rng.normal(size=(n, 4)) + move
    X[:, 0] += 2.0 * (y == 1)
    X[:, 1] += 2.5 * (y == 2)
    return X, y


def test_the_models_of_the_folds_score_new_rows_because_a_model_of_all_rows_would_look_like_drift():
    X, y = table(3400, (0.7, 0.3), seed=0)
    forest = RandomForestClassifier(10, random_state=0)
    model = TunedDecisionClassifier(forest, "f1", cv=3, random_state=0).fit(X[:400], y[:400])
    assert len(model.estimators_) == 3
    rows, logits = model._comparable_rows(X[400:])
    scorers = [(each, model.scorer_.calibration) for each in model.estimators_]
    by_fold = np.stack([model._logits_by(scorer, X[400:]) for scorer in scorers])
    assert (by_fold == logits).any(0).all()
    assert all((each != logits).any() for each in by_fold)
    assert detect_drift(rows, logits).p_value > 0.02
    model.rethreshold(prevalence="estimate", X=X[400:])
    assert model.prevalence_ == pytest.approx(y[400:].mean(), abs=0.06)


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.5, 0.3, 0.2)], ids=["two", "three"])
def test_a_prefit_estimator_scores_new_rows_itself(shares):
    X, y = table(1500, shares, seed=0)
    estimator = LogisticRegression().fit(X[:500], y[:500])
    model = TunedDecisionClassifier(estimator, "f1", cv="prefit", random_state=0).fit(X[500:], y[500:])
    assert model.estimators_ == []
    new, truth = table(1500, shares[::-1], seed=1)
    model.rethreshold(prevalence="estimate", X=new)
    estimated = [1 - model.prevalence_, model.prevalence_] if len(shares) == 2 else list(model.prevalence_.values())
    assert estimated == pytest.approx(np.bincount(truth) / 1500, abs=0.06)
    assert not model.drift_.found
    with pytest.warns(DriftWarning):
        model.rethreshold(prevalence="estimate", X=new + 1.0)


def test_a_saved_model_estimates_the_same(tmp_path):
    X, y = table(300, (0.7, 0.3), seed=0)
    model = TunedDecisionClassifier(LogisticRegression(), "f1", cv=2, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    loaded = TunedDecisionClassifier.load(tmp_path / "model")
    new, _ = table(300, (0.4, 0.6), seed=1)
    for each in (model, loaded):
        each.rethreshold(prevalence="estimate", X=new)
    assert loaded.prevalence_ == pytest.approx(model.prevalence_, abs=1e-9)
    assert loaded.drift_ == model.drift_


def test_labels_have_no_class_balance():
    X, y = table(200, (0.6, 0.4), seed=0)
    model = TunedDecisionClassifier(RandomForestClassifier(5, random_state=0), "f1", cv=2, random_state=0)
    model.fit(X, np.stack([y, X[:, 1] > 0], 1).astype(int))
    with pytest.raises(ValueError, match="prevalence is for classes"):
        model.rethreshold(prevalence="estimate", X=X)
