"""Metrics of labels, of logits, and as scorers of scikit-learn, against scikit-learn's own values."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
import torchmetrics
from sklearn import metrics as theirs
from sklearn.base import clone
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.svm import LinearSVC

from metricfit import Counts, MetricLoss, get_metric, metric, metrics, score, scorer

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 4))
NOISE = RNG.normal(size=N)
BINARY = (X[:, 0] + NOISE > 0.4).astype(int)
CLASSES = np.digitize(X[:, 0] + 0.5 * NOISE, [-0.6, 0.5])
WORDS = np.array(["low", "medium", "high"])[CLASSES]
LABELS = (X[:, :3] + NOISE[:, None] > 0.3).astype(int)
WEIGHT = RNG.random(N)


def guesses(labels):
    kept = RNG.random(N) < 0.7
    return np.where(kept if labels.ndim == 1 else kept[:, None], labels, RNG.permutation(labels))


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("f1", theirs.f1_score),
        ("precision", theirs.precision_score),
        ("recall", theirs.recall_score),
        ("jaccard", theirs.jaccard_score),
        ("accuracy", theirs.accuracy_score),
        ("balanced_accuracy", theirs.balanced_accuracy_score),
        ("mcc", theirs.matthews_corrcoef),
        ("kappa", theirs.cohen_kappa_score),
    ],
)
def test_scores_of_labels_are_those_of_scikit_learn(name, function, weight):
    measured = getattr(metrics, name)
    called = guesses(BINARY)
    expected = pytest.approx(function(BINARY, called, sample_weight=weight))
    assert measured.score(BINARY, called, weight=weight) == expected
    assert measured.score(2 * BINARY - 1, 2 * called - 1, weight=weight) == expected
    assert measured.score(BINARY == 1, called == 1, weight=weight) == expected
    assert measured.score(torch.from_numpy(BINARY), torch.from_numpy(called), weight=weight) == expected
    words = np.array(["no", "yes"])
    assert measured.score(words[BINARY], words[called], weight=weight, pos_label="yes") == expected
    assert score(called, BINARY, name, weight=weight) == expected
    several = guesses(WORDS)
    averages = [{}] if measured.whole_matrix else [{"average": average} for average in ("macro", "micro", "weighted")]
    for average in averages:
        expected = pytest.approx(function(WORDS, several, sample_weight=weight, **average))
        assert measured.score(WORDS, several, weight=weight, **average) == expected


def test_several_labels_per_row_are_averaged_over_the_labels():
    called = guesses(LABELS)
    for average in ("macro", "micro", "weighted"):
        expected = theirs.f1_score(LABELS, called, average=average)
        assert metrics.f1.score(LABELS, called, average=average) == pytest.approx(expected)
    np.testing.assert_allclose(
        metrics.f1.score(LABELS, called, average=None), theirs.f1_score(LABELS, called, average=None)
    )


def test_one_class_its_name_and_the_order_of_words():
    called = guesses(WORDS)
    expected = theirs.recall_score(WORDS, called, labels=["low"], average=None)[0]
    assert metrics.recall["low"].score(WORDS, called) == pytest.approx(expected)
    order = ["low", "medium", "high"]
    expected = theirs.cohen_kappa_score(WORDS, called, labels=order, weights="quadratic")
    assert metrics.weighted_kappa(power=2).score(pd.Categorical(WORDS, order, ordered=True), called) == pytest.approx(
        expected
    )
    with pytest.raises(ValueError, match="depends on the order of the classes"):
        metrics.weighted_kappa(power=2).score(WORDS, called)
    with pytest.raises(ValueError, match="there is no class 'huge'"):
        metrics.recall["huge"].score(WORDS, called)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.f1.score(["a", "b"], ["a", "a"]), "say which one with pos_label="),
        (lambda: metrics.f1.score(["a", "b"], ["a", "a"], pos_label="c"), "pos_label is 'c'"),
        (lambda: metrics.f1.score([1, 0], [1]), "target has shape"),
        (lambda: metrics.f1.score([1, 0], [1, 0], average="most"), "average must be"),
        (lambda: metrics.recall.gap(2).score([1, 0], [1, 0]), "counts of each group"),
        (lambda: metrics.cost(fp=1, fn="amount").score([1, 0], [1, 0]), "has a cost for each row"),
        (lambda: score([1, 0], [1, 0], "auroc"), "pass floating-point logits, not labels"),
        (lambda: scorer("f1", average="most"), "average must be"),
        (lambda: get_metric("f1_micro"), "'f1' with average='micro'"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_logits_are_read_as_a_loss_reads_them(kind):
    logits = X[:, 0] - 0.2
    assert score(kind(logits), kind(BINARY), "f1") == pytest.approx(theirs.f1_score(BINARY, logits >= 0))
    assert score(kind(logits), kind(BINARY), "auroc") == pytest.approx(theirs.roc_auc_score(BINARY, logits))
    several = X[:, :3]
    expected = theirs.f1_score(CLASSES, several.argmax(1), average="macro")
    assert score(kind(several), kind(CLASSES), "f1") == pytest.approx(expected)
    assert score(kind(several), kind(CLASSES), metrics.weighted_kappa(power=2)) == pytest.approx(
        theirs.cohen_kappa_score(CLASSES, several.argmax(1), weights="quadratic")
    )
    loss = 1 - MetricLoss("f1").eval()(torch.from_numpy(logits), torch.from_numpy(BINARY)).item()
    assert score(kind(logits), kind(BINARY), "f1") == pytest.approx(loss, abs=0.2)


SCORING = [
    *("accuracy", "balanced_accuracy", "f1", "precision", "recall", "jaccard", "matthews_corrcoef"),
    *("f1_macro", "f1_micro", "f1_weighted", "precision_macro", "recall_weighted", "jaccard_macro"),
    *("roc_auc", "average_precision"),
]


@pytest.mark.parametrize("name", SCORING)
def test_scoring_names_of_scikit_learn_give_its_values(name):
    model = LogisticRegression()
    expected = cross_val_score(model, X, BINARY, scoring=name)
    np.testing.assert_allclose(cross_val_score(model, X, BINARY, scoring=scorer(name)), expected)
    if "_" in name and name not in ("average_precision", "balanced_accuracy"):
        several = f"{name}_ovr" if name == "roc_auc" else name
        expected = cross_val_score(model, X, CLASSES, scoring=several)
        np.testing.assert_allclose(cross_val_score(model, X, CLASSES, scoring=scorer(several)), expected)


def test_metrics_score_estimators_themselves():
    model = LogisticRegression().fit(X, BINARY)
    assert metrics.mcc(model, X, BINARY) == pytest.approx(theirs.matthews_corrcoef(BINARY, model.predict(X)))
    assert metrics.fpr(model, X, BINARY, sample_weight=WEIGHT) < 0  # lower is better
    expected = cross_val_score(model, X, BINARY, scoring="matthews_corrcoef")
    np.testing.assert_allclose(cross_val_score(model, X, BINARY, scoring=metrics.mcc), expected)
    search = GridSearchCV(model, {"C": [1e-6, 1.0]}, scoring=scorer("f1")).fit(X, BINARY)
    assert search.best_params_ == {"C": 1.0}
    importances = permutation_importance(model, X, BINARY, scoring=metrics.mcc, n_repeats=2, random_state=0)
    assert importances.importances_mean.argmax() == 0


def test_scorers_of_scores_of_any_estimator():
    svc = LinearSVC().fit(X, BINARY)
    expected = theirs.roc_auc_score(BINARY, svc.decision_function(X))
    assert scorer("auroc")(svc, X, BINARY) == pytest.approx(expected)
    assert scorer("auroc", pos_label=0)(svc, X, BINARY) == pytest.approx(expected)
    words = LogisticRegression().fit(X, WORDS)
    expected = theirs.roc_auc_score(WORDS, words.predict_proba(X), multi_class="ovo")
    assert scorer("roc_auc_ovo")(words, X, WORDS) == pytest.approx(expected)
    labels = MultiOutputClassifier(LogisticRegression()).fit(X, LABELS)
    scores = np.stack([part[:, 1] for part in labels.predict_proba(X)], 1)
    assert scorer("average_precision")(labels, X, LABELS) == pytest.approx(
        theirs.average_precision_score(LABELS, scores)
    )
    copied = pickle.loads(pickle.dumps(scorer("f1_weighted")))
    assert repr(copied) == "scorer('f1', average='weighted')"
    assert copied(words, X, WORDS) == pytest.approx(theirs.f1_score(WORDS, words.predict(X), average="weighted"))
    assert clone(words) is not words


def test_names_of_scikit_learn_are_names_of_metrics():
    assert get_metric("matthews_corrcoef") is metrics.mcc
    assert get_metric("f1_macro") is metrics.f1
    assert metrics.get_measure("roc_auc") is metrics.auroc


@pytest.mark.parametrize("function", [theirs.f1_score, theirs.make_scorer(theirs.f1_score), theirs.get_scorer("f1")])
def test_functions_of_scikit_learn_are_refused_by_the_name_here(function):
    for use in (get_metric, metric, MetricLoss, scorer):
        with pytest.raises(TypeError, match=r"f1_score of scikit-learn is a function of labels.*use 'f1'"):
            use(function)


def test_a_metric_called_on_labels_or_logits_names_what_to_call():
    for arguments in ((X[:, 0], BINARY), (torch.from_numpy(X[:, 0]), torch.from_numpy(BINARY)), ([1, 0], [1, 1])):
        with pytest.raises(TypeError, match=r"metrics\.f1\.score\(y, predicted\).*metricfit\.score\(logits, y, 'f1'\)"):
            metrics.f1(*arguments)
        with pytest.raises(TypeError, match=r"f1 is called on Counts, got .*metrics\.f1\.score\(y, predicted\)"):
            metrics.f1(arguments[0])
    with pytest.raises(TypeError, match=r"get_metric\('fbeta\(beta=2\)'\)\.score\(y, predicted\)"):
        metrics.fbeta(beta=2)(BINARY, BINARY)
    assert metrics.f1(Counts(1, 1, 1, 1)).item() == 0.5


@pytest.mark.parametrize("other", [0, -1])
def test_two_classes_in_two_writings_are_not_three_classes(other):
    ones, written = np.array([1, 0, 1, 0]), np.array([1, other, 1, other])
    written = np.array([255, 0, 255, 255]) if other == 0 else written
    for predicted, target, name in ((ones, written, "target"), (written, ones, "predicted")):
        with pytest.raises(
            ValueError, match=f"{name} is written with .* which would be three classes: pass {name} > 0"
        ):
            score(predicted, target, "f1")
    assert score(ones, written > 0, "f1") == theirs.f1_score(written > 0, ones)
    assert score(np.array([0, 1, 255]), np.array([0, 1, 255]), "f1") == 1


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", ["accuracy", "f1", "precision", "recall"])
def test_the_class_of_a_row_may_be_among_several(name, k):
    rng = np.random.default_rng(k)
    z, y = rng.normal(size=(200, 5)), rng.integers(0, 5, 200)
    names = {"accuracy": "MulticlassAccuracy", "f1": "MulticlassF1Score"}.get(name, f"Multiclass{name.title()}")
    average = "micro" if name == "accuracy" else "macro"
    expected = getattr(torchmetrics.classification, names)(5, top_k=k, average=average)
    found = score(z, y, name, top_k=k, average=average)
    assert found == pytest.approx(expected(torch.from_numpy(z), torch.from_numpy(y)).item(), abs=1e-6)
    if name == "accuracy":
        assert found == pytest.approx(theirs.top_k_accuracy_score(y, z, k=k))
    assert score(torch.from_numpy(z), torch.from_numpy(y), name, top_k=k, average=average) == found


def test_a_row_has_exactly_k_labels():
    rng = np.random.default_rng(0)
    z, y, weight = rng.normal(size=(60, 6)), rng.integers(0, 2, (60, 6)), rng.random(60)
    top = np.zeros_like(y)
    np.put_along_axis(top, np.argsort(-z, axis=1)[:, :2], 1, axis=1)
    for average in ("macro", "micro"):
        expected = theirs.precision_score(y, top, average=average, sample_weight=weight)
        found = score(z, y, "precision", task="multilabel", average=average, weight=weight, top_k=2)
        assert found == pytest.approx(expected)


def test_ignored_rows_are_no_rows_of_the_largest():
    z = np.eye(3)[[0, 1, 2, 0]]
    assert score(z, np.array([0, 1, 9, 2]), "accuracy", top_k=2, ignore_index=9) == pytest.approx(2 / 3)
    assert score(z, np.array([0, 1, 2, 2]), "weighted_kappa", top_k=3) == 1.0


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ([0, 1, 2], {"top_k": 0}, "from 1 to 3"),
        ([0, 1, 2], {"top_k": 4}, "from 1 to 3"),
        ([0, 1, 5], {"top_k": 2}, "class numbers lie in 0..2"),
        ([0, 1, 2], {"top_k": 2, "threshold": 0.5}, "leave threshold out"),
        (np.eye(3, dtype=int), {"top_k": 2, "ignore_index": 1}, "leave ignore_index out"),
    ],
)
def test_what_top_k_does_not_take(target, settings, message):
    with pytest.raises(ValueError, match=message):
        score(np.eye(3), np.array(target), "f1", task="multilabel" if np.ndim(target) == 2 else None, **settings)
    with pytest.raises(ValueError, match="several classes"):
        score(np.ones(3), np.array([0, 1, 1]), "f1", top_k=1)
    with pytest.raises(ValueError, match="1 of 9 logits are NaN"):
        score(np.where(np.eye(3, k=2), np.nan, 0.0), np.array([0, 1, 2]), "accuracy", top_k=2)
    with pytest.raises(TypeError, match="not labels"):
        score([0, 1, 1], [0, 1, 2], "accuracy", top_k=2)
