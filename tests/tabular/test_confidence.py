"""MetricClassifier with requirements that must hold on new rows."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, RepeatedStratifiedKFold
from sklearn.multiclass import OneVsRestClassifier

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.decide import best_decision
from metricfit.decide.evidence import APPROXIMATE, GUARANTEED
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError, InfeasibleWarning
from metricfit.report.model_page import verdict_of_fit
from metricfit.tabular.facts import model_card

SETTINGS = {"models": ["linear"], "random_state": 0, "n_jobs": 1}


def table(n=500, seed=0, separation=1.5):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.25
    X = rng.normal(size=(n, 4))
    X[:, 0] += separation * y
    return X, y


@pytest.fixture(scope="module")
def model():
    return MetricClassifier("precision", subject_to="recall >= 0.8", confidence=0.95, **SETTINGS).fit(*table())


def test_a_confidence_asks_for_more_than_the_rows_alone(model):
    plain = MetricClassifier("precision", subject_to="recall >= 0.8", **SETTINGS).fit(*table())
    assert model.confidence_ == 0.95
    assert plain.confidence_ is None
    assert model.requirements_met_
    assert model.threshold_ < plain.threshold_
    assert model.requirements_["recall >= 0.8"].value > plain.requirements_["recall >= 0.8"].value


def test_the_report_says_what_is_guaranteed(model):
    certified = "Certified on cross-validated scores (approximate) at 95 % confidence: recall >= 0.8 ("
    assert certified in verdict_of_fit(model)
    plain = MetricClassifier("precision", subject_to="recall >= 0.8", **SETTINGS).fit(*table())
    assert "Met on held-out rows only: recall >= 0.8 (" in verdict_of_fit(plain)


def test_only_rows_apart_are_called_guaranteed(model):
    X, y = table(900)
    assert model.certificate_ == APPROXIMATE
    assert "guaranteed" not in model_card(model)
    assert f"Requirement recall &gt;= 0.8: {APPROXIMATE} at 95 % confidence" in model_card(model).replace("\\", "")
    settings = {"metric": "precision", "subject_to": "recall >= 0.8", "confidence": 0.9, "random_state": 0}
    assert TunedDecisionClassifier(LogisticRegression(), **settings).fit(X, y).certificate_ == APPROXIMATE
    fitted = LogisticRegression().fit(X[:400], y[:400])
    apart = TunedDecisionClassifier(fitted, cv="prefit", **settings).fit(X[400:], y[400:])
    assert apart.certificate_ == GUARANTEED
    assert apart.rethreshold(confidence=None).certificate_ is None
    several = np.stack([y, X[:, 1] > 0], axis=1).astype(int)
    of_labels = TunedDecisionClassifier(OneVsRestClassifier(LogisticRegression()), **settings).fit(X, several)
    assert of_labels.certificate_ == APPROXIMATE
    grades = (X[:, 1] > 0) + (X[:, 1] > 0.8).astype(int)
    settings["subject_to"] = "recall[1] >= 0.5"
    assert TunedDecisionClassifier(LogisticRegression(), **settings).fit(X, grades).certificate_ == APPROXIMATE


def test_parameters_that_are_set_after_fit_do_not_make_it_guaranteed(tmp_path):
    X, y = table(700)
    settings = {"metric": "precision", "subject_to": "recall >= 0.8", "confidence": 0.9, "random_state": 0}
    model = MetricClassifier(models=["linear"], n_jobs=1, **settings).fit(X, y).set_params(calibration=0.3)
    tuned = TunedDecisionClassifier(LogisticRegression(), **settings).fit(X, y).set_params(cv="prefit")
    for name, fitted in {"model": model, "tuned": tuned}.items():
        assert fitted.rethreshold(confidence=0.8).certificate_ == APPROXIMATE
        fitted.save(tmp_path / name)
        assert type(fitted).load(tmp_path / name).rethreshold(confidence=0.9).certificate_ == APPROXIMATE
    resampled = [(np.repeat(train, 2), held_out) for train, held_out in KFold(2).split(X)]
    with pytest.raises(InvalidValueError, match="trains on 50% of the rows"):
        TunedDecisionClassifier(LogisticRegression(), cv=resampled, **settings).fit(X, y)


def test_it_is_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = MetricClassifier.load(tmp_path / "model")
    assert loaded.confidence == loaded.confidence_ == 0.95
    assert loaded.threshold_ == model.threshold_
    assert loaded.certificate_ == model.certificate_ == APPROXIMATE


def test_rethreshold_changes_and_removes_it(model):
    copy = MetricClassifier("precision", subject_to="recall >= 0.8", confidence=0.95, **SETTINGS).fit(*table())
    first = copy.threshold_
    assert copy.rethreshold(confidence=None).confidence_ is None
    assert copy.threshold_ > first
    assert copy.rethreshold(confidence=0.8).confidence_ == 0.8
    assert copy.rethreshold(prevalence=0.1).confidence_ == 0.8  # recall does not depend on the class shares
    assert copy.rethreshold(subject_to=None).confidence is None
    with pytest.raises(InvalidValueError, match="confidence= is about requirements"):
        copy.rethreshold(confidence=0.9)
    assert copy.confidence is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subject_to": "recall >= 0.99"}, r"needs at least 299 positives; there are \d+; the highest recall"),
        ({"subject_to": "f1 >= 0.5"}, "f1 >= 0.5 cannot be guaranteed: .* recall, fnr"),
        ({}, "give subject_to="),
        ({"subject_to": "recall >= 0.8", "confidence": 95}, "did you mean 0.95"),
    ],
)
def test_what_cannot_be_guaranteed_is_refused_before_training(settings, message, monkeypatch):
    monkeypatch.setattr("metricfit.tabular.classifier.fit_ensemble", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(ValueError, match=message):
        MetricClassifier(**({"confidence": 0.95} | settings), **SETTINGS).fit(*table())


def test_groups_are_certified_by_one_row_of_each():
    X, y = table(1200)
    groups = np.arange(len(y)) // 2
    model = MetricClassifier(subject_to="recall >= 0.7", confidence=0.9, **SETTINGS).fit(X, y, groups=groups)
    assert model.certificate_ == APPROXIMATE
    apart = MetricClassifier(subject_to="recall >= 0.7", confidence=0.9, calibration=0.4, **SETTINGS)
    assert apart.fit(X, y, groups=groups).certificate_ == GUARANTEED
    for in_groups in (model, apart):
        for said in (verdict_of_fit(in_groups), model_card(in_groups)):
            assert f"{in_groups.certificate_[1:]} at 90 % confidence for a row drawn at random from a new group" in said
    repeated = RepeatedStratifiedKFold(n_splits=4, n_repeats=2, random_state=0)
    tuned = TunedDecisionClassifier(LogisticRegression(), subject_to="recall >= 0.7", confidence=0.9, cv=repeated)
    assert tuned.fit(X, y).certificate_ == APPROXIMATE  # of the two scores of a row, one counts
    assert "group" not in verdict_of_fit(tuned)
    assert "from a new group" not in model_card(tuned)


def test_weights_are_refused_before_training(monkeypatch):
    monkeypatch.setattr("metricfit.tabular.classifier.fit_ensemble", lambda *_: pytest.fail("it was trained"))
    X, y = table()
    model = MetricClassifier(subject_to="recall >= 0.8", confidence=0.9, **SETTINGS)
    with pytest.raises(InvalidValueError, match="weights void"):
        model.fit(X, y, sample_weight=np.linspace(1, 2, len(y)))


def test_a_precision_that_the_model_cannot_promise_is_a_warning():
    model = MetricClassifier("recall", subject_to="precision >= 0.9", confidence=0.95, **SETTINGS)
    with pytest.warns(InfeasibleWarning, match="no threshold can be promised to give precision >= 0.9 at 95 %"):
        model.fit(*table(separation=0.3))
    assert not model.requirements_met_
    assert model.confidence_ is None


def test_too_few_rows_are_an_infeasible_error():
    X, y = table(60)
    with pytest.raises(InfeasibleError, match="can be promised, with no miss among them, is"):
        MetricClassifier(subject_to="recall >= 0.95", confidence=0.95, **SETTINGS).fit(X, y)


def test_a_wrapped_model_is_certified_on_calibration_rows_apart(monkeypatch):
    X, y = table(900)
    fitted = LogisticRegression().fit(X[:400], y[:400])
    wrapped = TunedDecisionClassifier(fitted, "precision", subject_to="recall >= 0.8", confidence=0.95, cv="prefit")
    wrapped.fit(X[400:], y[400:])
    assert wrapped.confidence_ == 0.95
    logits = torch.as_tensor(fitted.decision_function(X[400:]))
    direct = best_decision(logits, y[400:].astype(int), "precision", subject_to="recall >= 0.8", confidence=0.95)
    decided = wrapped.predict(X[400:])
    np.testing.assert_array_equal(decided, direct.decide(logits).numpy() == 1)
    positives = int(y[400:].sum())
    found = int((decided & y[400:]).sum())
    assert binomtest(found, positives, 0.8, alternative="greater").pvalue <= 0.05
    monkeypatch.setattr(LogisticRegression, "fit", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(InfeasibleError, match="needs at least 299 positives"):
        TunedDecisionClassifier(LogisticRegression(), subject_to="recall >= 0.99", confidence=0.95).fit(X, y)


def test_folds_that_train_on_half_of_the_rows_certify_nothing(tmp_path):
    X, y = table()
    model = TunedDecisionClassifier(LogisticRegression(), "precision", subject_to="recall >= 0.8", cv=2)
    with pytest.raises(InvalidValueError, match="trains on 50% of the rows"):
        clone(model).set_params(confidence=0.9).fit(X, y)
    model.fit(X, y)
    model.save(tmp_path / "model")
    for each in (model, TunedDecisionClassifier.load(tmp_path / "model")):
        with pytest.raises(InvalidValueError, match="trains on 50% of the rows"):
            each.rethreshold(confidence=0.9)
        assert each.confidence is None
    of_tables = MetricClassifier(subject_to="recall >= 0.8", confidence=0.9, members=2, **SETTINGS)
    with pytest.raises(InvalidValueError, match=r"trains on 50% of the rows.*members=5"):
        of_tables.fit(X, y)


def test_another_class_balance_leaves_only_rates_within_a_class(model):
    with pytest.raises(InvalidValueError, match=r"precision >= 0.5 depends on the class shares.*require recall, fnr"):
        model.rethreshold(prevalence=0.1, subject_to="precision >= 0.5")


def test_a_row_with_many_copies_does_not_make_a_fold_small():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 3)), (np.arange(600) % 5 == 0).astype(int)
    X[y == 1] += 1.5
    X, y = np.concatenate([X, np.tile(X[y == 0][:1], (500, 1))]), np.concatenate([y, np.zeros(500, dtype=int)])
    settings = {"subject_to": "recall >= 0.6", "confidence": 0.9, "models": ["linear"], "random_state": 0}
    model = MetricClassifier("precision", **settings).fit(X, y)  # copies are in one fold, which holds out half the rows
    assert model.certificate_ == APPROXIMATE
