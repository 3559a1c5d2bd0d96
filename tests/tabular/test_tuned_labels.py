"""TunedDecisionClassifier over classifiers of several labels, in every shape of scikit-learn's probabilities."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score, recall_score
from sklearn.model_selection import GroupKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from metricfit import TunedDecisionClassifier
from metricfit.errors import InvalidValueError

LINEAR = OneVsRestClassifier(LogisticRegression())


@pytest.fixture(scope="module")
def rows():
    X, y = make_multilabel_classification(300, 8, n_classes=4, random_state=0)
    return X / X.max(), y


@pytest.mark.parametrize(
    "estimator",
    [
        LINEAR,
        OneVsRestClassifier(LinearSVC()),
        ClassifierChain(LogisticRegression()),
        MultiOutputClassifier(LogisticRegression()),
        RandomForestClassifier(10, random_state=0),
        KNeighborsClassifier(),
        RidgeClassifier(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_estimator_of_labels(estimator, rows):
    X, y = rows
    model = TunedDecisionClassifier(estimator, "f1", cv=3, random_state=0).fit(X, y)
    predicted, probability = model.predict(X), model.predict_proba(X)
    assert model.threshold_ is None
    assert model.thresholds_.shape == (4,)
    assert np.array_equal(predicted, probability >= model.thresholds_)
    assert np.array_equal(predicted, model.decision_function(X) >= 0)
    assert model.score(X, y) == pytest.approx(f1_score(y, predicted, average="macro"))
    assert model.score(X, y) > 0.55
    low, high = model.threshold_interval_.T
    assert (low <= model.thresholds_).all()
    assert (model.thresholds_ <= high).all()


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "samples"])
@pytest.mark.parametrize("decision", ["plugin", "empirical"])
def test_averages_are_better_than_the_estimators_own_decisions(average, decision, rows):
    X, y = rows
    model = TunedDecisionClassifier(LINEAR, "f1", average=average, decision=decision, cv=3, random_state=0).fit(X, y)
    settings = {"average": average, "zero_division": 0}
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), **settings))
    held_out = model.held_out_
    decided = model.decision_.decide(held_out.logits).astype(bool)
    assert model.decision_.evidence.value == pytest.approx(f1_score(held_out.y, decided, **settings))
    assert model.decision_.evidence.value > f1_score(held_out.y, held_out.logits >= 0, **settings)
    assert model.value_ <= model.decision_.evidence.value
    assert model.value_interval_[0] <= model.value_ <= model.value_interval_[1]


def test_the_curve_of_each_label(rows):
    X, y = rows
    model = TunedDecisionClassifier(LINEAR, "f1", cv=3, random_state=0).fit(X, y)
    assert len(model.curve_) == 4
    for label, curve in enumerate(model.curve_):
        assert set(curve.tp + curve.fn) == {y[:, label].sum()}
    assert model.rethreshold(metric="fbeta(beta=3)").thresholds_.max() < 0.4


def test_prefit_sparse_labels_groups_and_weights(rows):
    X, y = rows
    fitted = MultiOutputClassifier(LogisticRegression()).fit(X[:150], y[:150])
    prefit = TunedDecisionClassifier(fitted, cv="prefit", random_state=0).fit(X[150:], y[150:])
    assert prefit.estimator_ is fitted
    dense, from_sparse = (
        TunedDecisionClassifier(LINEAR, cv=3, random_state=0).fit(X, labels) for labels in (y, sparse.csr_matrix(y))
    )
    assert np.array_equal(dense.thresholds_, from_sparse.thresholds_)
    model = TunedDecisionClassifier(RandomForestClassifier(5, random_state=0), cv=GroupKFold(3), random_state=0)
    model.fit(X, y, sample_weight=np.linspace(1, 2, len(y)), groups=np.arange(len(y)) // 5)
    assert len(np.unique(model.held_out_.groups)) == 60


def test_a_label_that_is_never_there_in_a_fold(rows):
    X, y = rows
    y = y.copy()
    y[:, 3] = 0
    y[7, 3] = 1
    model = TunedDecisionClassifier(RandomForestClassifier(5, random_state=0), cv=3, random_state=0).fit(X, y)
    assert np.isfinite(model.thresholds_).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_wrong_use(rows):
    X, y = rows
    with pytest.raises(InvalidValueError, match="pos_label is for two classes"):
        TunedDecisionClassifier(LINEAR, pos_label=1).fit(X, y)
    with pytest.raises(InvalidValueError, match=r"recall\[4\]: there are 4 classes, 0 to 3"):
        TunedDecisionClassifier(LINEAR, subject_to="recall[4] >= 0.9").fit(X, y)
    model = TunedDecisionClassifier(LINEAR, cv=3, random_state=0).fit(X, y)
    with pytest.raises(InvalidValueError, match="prevalence is for classes"):
        model.rethreshold(0.5)
    with pytest.raises(InvalidValueError, match="names a class, and classes have numbers here"):
        model.rethreshold(subject_to="recall['red'] >= 0.9")
    with pytest.raises(InvalidValueError, match="y has 3 labels, the model 4"):
        model.score(X, y[:, :3])
    with pytest.raises(InvalidValueError, match="a matrix of 0 and 1"):
        model.score(X, y[:, 0])
    with pytest.raises(InvalidValueError, match=r"a matrix of 0 and 1.* such as '0', '1', '2'"):
        TunedDecisionClassifier(LINEAR).fit(X, y + np.arange(4))
    with pytest.raises(InvalidValueError, match="MultiLabelBinarizer"):
        TunedDecisionClassifier(LINEAR).fit(X, [list(np.flatnonzero(row)) for row in y])
    with pytest.raises(InvalidValueError, match="a matrix of 0 and 1"):
        TunedDecisionClassifier(LINEAR).fit(X, np.where(y == 1, np.nan, 0.0))


def test_each_label_meets_its_requirements(rows):
    X, y = rows
    model = TunedDecisionClassifier(LINEAR, cv=3, random_state=0).fit(X, y[:, :2])
    free = model.thresholds_
    model.rethreshold(subject_to=["recall >= 0.8", "precision[1] >= 0.3"])
    assert list(model.requirements_) == ["recall[0] >= 0.8", "recall[1] >= 0.8", "precision[1] >= 0.3"]
    decided = model.decision_.decide(model.held_out_.logits)
    for label in range(2):
        found = recall_score(model.held_out_.y[:, label], decided[:, label])
        assert found == pytest.approx(model.requirements_[f"recall[{label}] >= 0.8"].value)
        assert found >= 0.8
    assert model.requirements_met_
    sure = model.rethreshold(subject_to="recall[0] >= 0.8", confidence=0.9)
    assert sure.confidence_ == 0.9
    assert model.rethreshold(subject_to=None).thresholds_ == pytest.approx(free)
