"""TunedDecisionClassifier over classifiers of two and several classes: decisions, folds, weights, wrong use."""

from typing import ClassVar

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import beta
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score, matthews_corrcoef, recall_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RepeatedStratifiedKFold, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from metricfit import TunedDecisionClassifier
from metricfit.curves import best_threshold
from metricfit.errors import InvalidTypeError, InvalidValueError, MetricfitError
from metricfit.metrics.feasibility import InfeasibleError, InfeasibleWarning


@pytest.fixture(scope="module")
def rows():
    return make_classification(300, 6, weights=[0.8], flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def fitted(rows):
    return TunedDecisionClassifier(LogisticRegression(), "f1", random_state=0).fit(*rows)


def probabilities(model):
    """The calibrated probabilities of the held-out rows, and their labels."""
    return 1 / (1 + np.exp(-model.held_out_.logits.squeeze(1))), model.held_out_.y


def test_it_decides_at_its_threshold_and_scores_by_its_metric(fitted, rows):
    X, y = rows
    predicted = fitted.predict(X)
    assert np.array_equal(predicted == 1, fitted.predict_proba(X)[:, 1] >= fitted.threshold_)
    assert np.array_equal(predicted == 1, fitted.decision_function(X) >= 0)
    assert fitted.score(X, y) == pytest.approx(f1_score(y, predicted))
    assert fitted.threshold_interval_[0] <= fitted.threshold_ <= fitted.threshold_interval_[1]
    assert fitted.value_interval_[0] <= fitted.value_ <= fitted.value_interval_[1]
    assert fitted.n_features_in_ == 6


def test_decisions_are_chosen_on_scores_of_rows_that_were_held_out(rows):
    """The naive twin: a clone per fold, calibrated and swept by hand; and labels at random are not learned."""
    X, y = rows
    splits = list(KFold(4, shuffle=True, random_state=1).split(X))
    model = TunedDecisionClassifier(LogisticRegression(), "mcc", cv=splits, decision="empirical").fit(X, y)
    scores = np.concatenate([LogisticRegression().fit(X[a], y[a]).predict_proba(X[b])[:, 1] for a, b in splits])
    labels = np.concatenate([y[b] for _, b in splits])
    best = best_threshold(scores, labels, "mcc")
    assert model.decision_.evidence.value == pytest.approx(best.value)
    p, held_out = probabilities(model)
    assert matthews_corrcoef(held_out, p >= model.threshold_) == pytest.approx(best.value)
    noise = np.random.default_rng(0).integers(0, 2, len(y))
    forest = TunedDecisionClassifier(RandomForestClassifier(20, random_state=0), "mcc", random_state=0).fit(X, noise)
    assert forest.value_ < 0.25


def test_the_plugin_threshold_has_the_best_expected_metric(fitted):
    p, _ = probabilities(fitted)
    expected = [2 * p[p >= t].sum() / ((p >= t).sum() + p.sum()) for t in p]
    here = 2 * p[p >= fitted.threshold_].sum() / ((p >= fitted.threshold_).sum() + p.sum())
    assert here == pytest.approx(max(expected))


@pytest.mark.parametrize(
    "estimator",
    [
        SVC(),
        RidgeClassifier(),
        GaussianNB(),
        KNeighborsClassifier(),
        RandomForestClassifier(15, random_state=0),
        VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], voting="soft"),
        make_pipeline(StandardScaler(), SVC()),
        DummyClassifier(strategy="prior"),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_any_estimator_with_scores(estimator, classes, rows):
    X, _ = rows
    y = np.array(["no", "yes", "maybe"])[np.digitize(X[:, 0] + 0.2 * X[:, 1], [0.5, 1.3][: classes - 1])]
    model = TunedDecisionClassifier(estimator, "f1", cv=3, random_state=0).fit(X, y)
    assert set(model.predict(X)) <= set(y)
    assert model.predict_proba(X).sum(1) == pytest.approx(1)
    assert (model.offsets_ is None) == (classes == 2)
    if not isinstance(estimator, DummyClassifier):
        assert model.score(X, y) > 0.5


def test_the_order_of_the_estimators_classes_does_not_matter(rows):
    """The positive class is the first in sorted order, of probabilities and of a decision function."""
    X, y = rows
    labels = np.array(["z", "a"])[y]
    for estimator in (LogisticRegression(), RidgeClassifier()):
        numbers = TunedDecisionClassifier(estimator, "f1", random_state=0).fit(X, y)
        names = TunedDecisionClassifier(estimator, "f1", random_state=0, pos_label="a").fit(X, labels)
        assert names.pos_label_ == "a"
        assert names.threshold_ == pytest.approx(numbers.threshold_, abs=1e-4)
        assert np.mean((names.predict(X) == "a") == (numbers.predict(X) == 1)) > 0.99
        assert names.score(X, labels) == pytest.approx(f1_score(labels, names.predict(X), pos_label="a"))
        assert np.array_equal(names.predict(X) == "z", names.decision_function(X) > 0)


def test_a_fitted_estimator_is_not_fitted_again(rows):
    X, y = rows
    fitted = LogisticRegression().fit(X[:150], y[:150])
    before = fitted.coef_.copy()
    model = TunedDecisionClassifier(fitted, "f1", cv="prefit", decision="empirical").fit(X[150:], y[150:])
    assert model.estimator_ is fitted
    assert np.array_equal(fitted.coef_, before)
    best = best_threshold(fitted.predict_proba(X[150:])[:, 1], y[150:], "f1")
    assert model.decision_.evidence.value == pytest.approx(best.value)


def test_requirements_and_deciding_anew(rows):
    X, y = rows
    model = TunedDecisionClassifier(LogisticRegression(), "precision", subject_to="recall >= 0.8", random_state=0)
    p, labels = probabilities(model.fit(X, y))
    assert recall_score(labels, p >= model.threshold_) >= 0.8
    assert model.requirements_met_
    strict = model.threshold_
    assert model.rethreshold(subject_to="recall >= 0.95").threshold_ < strict
    free = model.rethreshold(metric="f1", subject_to=None)
    assert free.threshold_ == pytest.approx(
        TunedDecisionClassifier(LogisticRegression(), "f1", random_state=0).fit(X, y).threshold_
    )
    assert free.curve_.value[1:] == pytest.approx([f1_score(labels, p >= t - 1e-12) for t in free.curve_.threshold[1:]])
    assert free.rethreshold(0.5).threshold_ != strict
    with pytest.warns(InfeasibleWarning, match="no threshold gives"):
        model.rethreshold(metric="recall", subject_to=["precision >= 0.99", "recall >= 0.95"])


def test_weights_reach_the_estimator_and_the_decision(rows):
    X, y = rows
    weight = np.where(y == 1, 3.0, 1.0)
    splits = list(KFold(3).split(X))
    model = TunedDecisionClassifier(LogisticRegression(), "f1", cv=splits, decision="empirical", ensemble=False)
    model.fit(X, y, weight)
    for fitted, part in zip(
        (*model.estimators_, model.estimator_), (*(a for a, _ in splits), slice(None)), strict=True
    ):
        assert np.allclose(fitted.coef_, LogisticRegression().fit(X[part], y[part], weight[part]).coef_)
    scores, labels, weights = (
        np.concatenate(parts)
        for parts in zip(
            *(
                (LogisticRegression().fit(X[a], y[a], weight[a]).predict_proba(X[b])[:, 1], y[b], weight[b])
                for a, b in splits
            ),
            strict=True,
        )
    )
    assert model.decision_.evidence.value == pytest.approx(best_threshold(scores, labels, "f1", weight=weights).value)
    with pytest.warns(UserWarning, match="KNeighborsClassifier takes no sample_weight") as warned:
        TunedDecisionClassifier(KNeighborsClassifier(), "f1", cv=3).fit(X, y, weight)
    assert [each.filename for each in warned] == [__file__]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    in_pipeline = TunedDecisionClassifier(pipeline, "f1", cv=3, ensemble=False, random_state=0).fit(X, y, weight)
    scaled = StandardScaler().fit_transform(X)
    assert np.allclose(in_pipeline.estimator_[-1].coef_, LogisticRegression().fit(scaled, y, weight).coef_)


def test_rows_of_weight_0_count_as_absent(rows):
    X, y = rows
    weight = np.ones(len(y))
    weight[::3] = 0
    kept = weight > 0
    model = TunedDecisionClassifier(LogisticRegression(), "f1", random_state=0)
    there, absent = clone(model).fit(X, y, weight), clone(model).fit(X[kept], y[kept], weight[kept])
    assert there.threshold_ == absent.threshold_
    with pytest.raises(InvalidValueError, match="pass the others alone"):
        TunedDecisionClassifier(LogisticRegression(), cv=KFold(3)).fit(X, y, weight)


class Recorder(ClassifierMixin, BaseEstimator):
    """Scores a row by the share of positives in its training rows, and remembers which rows those were."""

    trained_on: ClassVar[list[set[int]]] = []

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        type(self).trained_on.append(set(X[:, 0].astype(int)))
        return self

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-X[:, 1]))
        return np.stack([1 - p, p], axis=1)


def test_rows_of_a_group_are_held_out_together():
    rng = np.random.default_rng(0)
    X = np.stack([np.arange(120), rng.normal(size=120)], axis=1)
    y = (X[:, 1] + rng.normal(size=120) > 0.5).astype(int)
    groups = np.arange(120) // 4
    for cv in (4, GroupKFold(4)):
        Recorder.trained_on.clear()
        model = TunedDecisionClassifier(Recorder(), "f1", cv=cv, random_state=0).fit(X, y, groups=groups)
        assert len(Recorder.trained_on) == 4
        for trained in Recorder.trained_on:
            held_out = set(range(120)) - trained
            assert not {row // 4 for row in trained} & {row // 4 for row in held_out}
        assert len(np.unique(model.held_out_.groups)) == 30


def test_rows_that_are_held_out_several_times_are_one_unit_of_the_bootstrap(rows):
    X, y = rows
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    model = TunedDecisionClassifier(LogisticRegression(), "f1", cv=cv, random_state=0).fit(X, y)
    assert len(model.held_out_.y) == 2 * len(y)
    assert len(np.unique(model.held_out_.groups)) == len(y)
    forward = TunedDecisionClassifier(LogisticRegression(), "f1", cv=TimeSeriesSplit(4)).fit(X, y)
    assert len(forward.held_out_.y) < len(y)


def test_few_rows_of_a_class_give_fewer_folds(rows, caplog):
    X, y = rows
    y = np.zeros_like(y)
    y[:3] = 1
    caplog.set_level("INFO", logger="metricfit")
    TunedDecisionClassifier(LogisticRegression(), random_state=0).fit(X, y)
    assert "3 folds in place of 5" in caplog.text


def test_a_pipeline_gets_the_table_as_it_is(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(colour=np.where(y + X[:, 0] > 0.5, "red", "blue"))
    columns = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    model = TunedDecisionClassifier(make_pipeline(columns, LogisticRegression()), "f1", random_state=0).fit(frame, y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.predict(frame).shape == y.shape


def test_folds_that_are_fitted_side_by_side_give_the_same_model(fitted, rows):
    with joblib.parallel_backend("threading"):
        parallel = TunedDecisionClassifier(LogisticRegression(), "f1", n_jobs=2, random_state=0).fit(*rows)
    assert parallel.threshold_ == fitted.threshold_


def test_requirements_with_a_guarantee(rows):
    """The oracle: Clopper and Pearson's lower bound of the recall on the held-out rows."""
    X, y = rows
    model = TunedDecisionClassifier(
        LogisticRegression(), "precision", subject_to="recall >= 0.7", confidence=0.9, random_state=0
    ).fit(X, y)
    assert model.confidence_ == 0.9
    p, labels = probabilities(model)
    found, positives = int((p[labels == 1] >= model.threshold_).sum()), int(labels.sum())
    assert beta.ppf(0.1, found, positives - found + 1) >= 0.7
    Recorder.trained_on.clear()
    with pytest.raises(InfeasibleError, match="positives"):
        TunedDecisionClassifier(Recorder(), "precision", subject_to="recall >= 0.999", confidence=0.99).fit(X, y)
    assert not Recorder.trained_on  # the rows are too few, which is reported before training


def test_a_search_over_the_estimators_parameters(rows):
    model = TunedDecisionClassifier(LogisticRegression(), "mcc", cv=2, random_state=0)
    search = GridSearchCV(model, {"estimator__C": [0.01, 1.0], "metric": ["f1", "mcc"]}, cv=2).fit(*rows)
    assert {fold.C for fold in search.best_estimator_.estimators_} == {search.best_params_["estimator__C"]}


def test_metadata_is_routed_to_the_estimator(rows):
    X, y = rows
    weight = np.where(y == 1, 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        settings = {"cv": list(KFold(3).split(X)), "ensemble": False, "random_state": 0}
        asked = TunedDecisionClassifier(LogisticRegression().set_fit_request(sample_weight=True), **settings)
        ignored = TunedDecisionClassifier(LogisticRegression().set_fit_request(sample_weight=False), **settings)
        asked.fit(X, y, sample_weight=weight)
        ignored.fit(X, y, sample_weight=weight)
    part, _ = settings["cv"][0]
    for model, used in ((asked, weight), (ignored, np.ones(len(y)))):
        assert np.allclose(model.estimator_.coef_, LogisticRegression().fit(X, y, used).coef_)
        of_fold = LogisticRegression().fit(X[part], y[part], used[part])
        assert np.allclose(model.estimators_[0].coef_, of_fold.coef_)
    assert ignored.held_out_.weight is not None


@pytest.mark.parametrize(
    ("estimator", "settings", "error", "message"),
    [
        (VotingClassifier([("a", GaussianNB())]), {}, InvalidTypeError, "neither predict_proba nor decision_function"),
        (LogisticRegression, {}, InvalidTypeError, "pass an object, LogisticRegression"),
        ("lightgbm", {}, InvalidTypeError, "with fit; got str"),
        (LogisticRegression(), {"cv": "five"}, InvalidValueError, "'prefit' or a splitter"),
        (LogisticRegression(), {"cv": 1}, InvalidValueError, "at least 2"),
        (LogisticRegression(), {"cv": 2.5}, MetricfitError, "cv"),
        (LogisticRegression(), {"decision": "best"}, InvalidValueError, "decision is one of"),
        (LogisticRegression(), {"average": "samples"}, InvalidValueError, "for several labels"),
        (LogisticRegression(), {"average": None}, InvalidValueError, "average is one of"),
        (LogisticRegression(), {"metric": "f_one"}, InvalidValueError, "no metric"),
        (LogisticRegression(), {"pos_label": 7}, InvalidValueError, "none of the classes"),
        (LogisticRegression(), {"subject_to": 0.9}, InvalidTypeError, "subject_to is a requirement"),
        (LogisticRegression(), {"n_jobs": 0}, InvalidValueError, "n_jobs"),
        (LogisticRegression(), {"ensemble": "mean"}, InvalidTypeError, "ensemble is True or False"),
    ],
)
def test_parameters_that_cannot_be_used(estimator, settings, error, message, rows):
    with pytest.raises(error, match=message):
        TunedDecisionClassifier(estimator, **settings).fit(*rows)


def test_rows_that_cannot_be_used(rows):
    X, y = rows
    model = TunedDecisionClassifier(LogisticRegression(), random_state=0)
    with pytest.raises(InvalidValueError, match="all rows are of one class"):
        model.fit(X, np.ones(len(y)))
    with pytest.raises(InvalidValueError, match="has a single row"):
        model.fit(X, np.arange(len(y)) == 3)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.where(y == 1, np.nan, 0.0))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X[:-1], y)
    with pytest.raises(InvalidValueError, match="no row of class"):
        TunedDecisionClassifier(LogisticRegression(), cv=KFold(2)).fit(X[np.argsort(y)], np.sort(y))
    everything = np.arange(len(y))
    with pytest.raises(InvalidValueError, match="trains on rows that it holds out"):
        TunedDecisionClassifier(LogisticRegression(), cv=[(everything, everything)]).fit(X, y)
    assert not hasattr(model, "decision_")
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_fitted_estimator_of_other_classes_is_refused(rows):
    X, y = rows
    fitted = LogisticRegression().fit(X, y)
    prefit = TunedDecisionClassifier(fitted, cv="prefit")
    with pytest.raises(InvalidValueError, match=r"labels that the estimator does not know: 2"):
        prefit.fit(X, y + 1)
    three = TunedDecisionClassifier(LogisticRegression().fit(X, np.digitize(X[:, 0], [-1, 1])), cv="prefit")
    with pytest.raises(InvalidValueError, match=r"no rows of: 2"):
        three.fit(X, y)
    with pytest.raises(NotFittedError, match="FrozenEstimator"):
        clone(prefit).fit(X, y)


class NoScores(Recorder):
    """Its scores are NaN."""

    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


def test_scores_that_are_no_numbers_are_refused(rows):
    with pytest.raises(InvalidValueError, match=r"NoScores gives .* scores that are NaN"):
        TunedDecisionClassifier(NoScores(), cv=2).fit(*rows)
    X, _ = rows
    with pytest.raises(InvalidValueError, match="decision_function_shape='ovr'"):
        TunedDecisionClassifier(SVC(decision_function_shape="ovo"), cv=2).fit(X, np.digitize(X[:, 0], [-1, 1]))


def test_a_refit_that_fails_changes_nothing(rows):
    X, y = rows
    model = TunedDecisionClassifier(LogisticRegression(), random_state=0).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.zeros(len(y)))
    assert vars(model) == before
