"""SVMPerf: violations against all 2^n labels, the optimum by its duality gap, error rate against LinearSVC."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from metricfit import Counts, get_metric
from metricfit_papers import SVMPerf
from metricfit_papers.baselines.violations import WorstPairs, WorstTable

CONCAVE = ["accuracy", "f1", "fbeta(beta=2)", "precision", "recall", "specificity", "jaccard", "cost(fp=1, fn=5)"]
OTHERS = ["mcc", "gmean", "kappa", "p4", "markedness"]


def some_rows(n, seed=0, columns=2, share=0.4):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < share
    positive[:2] = True, False
    return rng.normal(size=(n, columns)) + 0.7 * positive[:, None], positive


def all_labels(positive, metric):
    """Each of the 2^n labellings: its loss, and its samples' shares y_i / n where it is wrong."""
    labels = np.array(list(itertools.product([False, True], repeat=len(positive))))
    cells = labels & positive, labels & ~positive, ~labels & positive, ~labels & ~positive
    counts = Counts(*(torch.from_numpy(cell.sum(1, keepdims=True).astype(float)) for cell in cells))
    value = metric(counts).numpy().ravel()
    loss = value if metric.minimize else 1 - value
    shares = np.where(labels != positive, np.where(positive, 1.0, -1.0), 0.0) / len(positive)
    return list(zip(loss, shares, strict=True))


def all_orders(positive):
    """Each choice of pairs in the wrong order: their share, and each sample's part in them."""
    high, low = np.flatnonzero(positive), np.flatnonzero(~positive)
    pairs = list(itertools.product(high, low))
    for chosen in itertools.product([0, 1], repeat=len(pairs)):
        shares = np.zeros(len(positive))
        for (i, j), wrong in zip(pairs, chosen, strict=True):
            shares[i] += wrong / len(pairs)
            shares[j] -= wrong / len(pairs)
        yield sum(chosen) / len(pairs), shares


def price(violation, scores):
    return violation.loss - violation.shares @ scores


@pytest.mark.parametrize("name", CONCAVE + OTHERS)
def test_the_worst_violation_equals_a_search_over_all_labels(name):
    metric = get_metric(name)
    for seed in range(4):
        _, positive = some_rows(8, seed)
        scores = 2 * np.random.default_rng(seed).normal(size=8)
        found = WorstTable(metric, positive).worst(scores)
        best = max(loss - shares @ scores for loss, shares in all_labels(positive, metric))
        assert price(found, scores) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("name", CONCAVE)
def test_binary_search_equals_a_search_over_all_tables(name):
    _, positive = some_rows(300, share=0.2)
    table = WorstTable(get_metric(name), positive)
    assert table.concave
    for scale in (0.1, 1.0, 10.0):
        scores = scale * np.random.default_rng(1).normal(size=300)
        searched = price(table.worst(scores), scores)
        table.concave = False
        assert searched == pytest.approx(price(table.worst(scores), scores), abs=1e-12)
        table.concave = True


def test_tables_in_blocks_equal_all_at_once(monkeypatch):
    _, positive = some_rows(60)
    table, scores = WorstTable(get_metric("mcc"), positive), np.random.default_rng(2).normal(size=60)
    assert not table.concave
    whole = table.worst(scores)
    monkeypatch.setattr("metricfit_papers.baselines.violations.BLOCK", 50)
    assert price(table.worst(scores), scores) == price(whole, scores)


def test_the_worst_order_of_pairs():
    _, positive = some_rows(7)
    scores = np.random.default_rng(3).normal(size=7)
    found = WorstPairs(positive).worst(scores)
    assert price(found, scores) == pytest.approx(max(loss - s @ scores for loss, s in all_orders(positive)))
    hinge = np.maximum(0, 1 - (scores[positive][:, None] - scores[~positive]))
    assert price(found, scores) == pytest.approx(hinge.mean())


def primal(weights, X, constraints, strength):
    return weights @ weights / 2 + strength * max(loss - shares @ (X @ weights) for loss, shares in constraints)


def lower_bound(weights, X, constraints, strength):
    """A value that the minimum of ``primal`` cannot be below, from the dual problem.

    The dual is max a l - |a G|^2 / 2 over a >= 0 that sum to the strength; by weak duality each such a gives a bound,
    however it was found. At the optimum a G is the weights and a is 0 where a constraint does not bind.
    """
    losses = np.array([loss for loss, _ in constraints])
    gradients = np.array([shares @ X for _, shares in constraints])
    slacks = losses - gradients @ weights
    binding = slacks > slacks.max() - 1e-3
    equations = np.vstack([gradients[binding].T, np.ones(binding.sum())])
    multipliers, _ = nnls(equations, np.append(weights, strength))
    multipliers *= strength / multipliers.sum()
    return multipliers @ losses[binding] - np.sum((multipliers @ gradients[binding]) ** 2) / 2


@pytest.mark.parametrize("C", [0.05, 1.0])
@pytest.mark.parametrize("name", ["f1", "error_rate", "auroc", "mcc"])
def test_the_duality_gap_is_closed(name, C):
    """All constraints written out: min |w|^2 / 2 + C n xi subject to xi >= loss - w g for each of them.

    The objective is strongly convex, so a gap of e also puts the weights within sqrt(2 e) of the optimum.
    """
    X, positive = some_rows(7 if name != "auroc" else 6, seed=5)
    if name == "auroc":
        constraints = list(all_orders(positive))
        columns = X
    else:
        constraints = all_labels(positive, get_metric("accuracy" if name == "error_rate" else name))
        columns = np.hstack([X, np.ones((len(X), 1))])
    strength = C * len(X)
    tol = 1e-7
    model = SVMPerf(name, C=C, tol=tol).fit(X, positive)
    ours = np.append(model.coef_, model.intercept_[0] if name != "auroc" else [])
    gap = primal(ours, columns, constraints, strength) - lower_bound(ours, columns, constraints, strength)
    assert -1e-12 <= gap <= 2 * strength * tol


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_error_rate_is_the_hinge_svm(C):
    X, positive = some_rows(200, columns=3)
    ours = SVMPerf("error_rate", C=C, tol=1e-6).fit(X, positive)
    theirs = LinearSVC(loss="hinge", C=C, tol=1e-8, max_iter=1_000_000, random_state=0).fit(X, positive)

    def objective(model):
        w = np.append(model.coef_, model.intercept_)
        margin = np.where(positive, 1, -1) * model.decision_function(X)
        return w @ w / 2 + C * np.maximum(0, 1 - margin).sum()

    assert objective(ours) == pytest.approx(objective(theirs), rel=1e-4)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.01)
    assert SVMPerf("accuracy", C=C, tol=1e-6).fit(X, positive).coef_ == pytest.approx(ours.coef_)


def test_f1_is_higher_than_that_of_the_error_rate_where_positives_are_rare():
    X, positive = some_rows(2000, share=0.05, columns=3)
    by_f1, by_error = (SVMPerf(name, C=1.0).fit(X, positive) for name in ("f1", "error_rate"))
    assert by_f1.score(X, positive) == pytest.approx(f1_score(positive, by_f1.predict(X)))
    assert by_f1.score(X, positive) > f1_score(positive, by_error.predict(X)) + 0.05
    by_pairs = SVMPerf("auroc").fit(X, positive)
    assert by_pairs.score(X, positive) == pytest.approx(roc_auc_score(positive, by_pairs.decision_function(X)))
    assert by_pairs.intercept_ == 0


def test_a_metric_where_lower_is_better():
    X, positive = some_rows(150)
    by_cost, by_error = SVMPerf("cost(fp=1, fn=20)").fit(X, positive), SVMPerf("error_rate").fit(X, positive)
    cost_of_errors = get_metric("cost(fp=1, fn=20)")(
        Counts.from_labels(torch.from_numpy(by_error.predict(X)), torch.from_numpy(positive))
    )
    assert -float(cost_of_errors) < by_cost.score(X, positive) < 0


def test_positive_label_and_sparse_rows():
    X, positive = some_rows(150, share=0.2)
    labels = np.where(positive, "bad", "good")
    usual, named = SVMPerf("f1").fit(X, positive), SVMPerf("f1", pos_label="bad").fit(X, labels)
    np.testing.assert_array_equal(named.predict(X) == "bad", usual.predict(X))
    np.testing.assert_allclose(named.decision_function(X), -usual.decision_function(X))
    assert named.score(X, labels) == usual.score(X, positive)
    sparse = SVMPerf("f1").fit(csr_array(X), positive)
    np.testing.assert_allclose(sparse.decision_function(csr_array(X)), usual.decision_function(X), atol=1e-6)


def test_the_positive_class_by_default_is_the_rarer_or_1():
    X, positive = some_rows(150, share=0.2)
    rare = SVMPerf("f1").fit(X, np.where(positive, "bad", "good"))
    assert rare.pos_label_ == "bad"
    assert rare.score(X, np.where(positive, "bad", "good")) == SVMPerf("f1").fit(X, positive).score(X, positive)
    assert SVMPerf("f1").fit(X, np.where(positive, 0, 1)).pos_label_ == 1


def test_too_few_planes_raise_a_warning():
    X, positive = some_rows(100)
    with pytest.warns(ConvergenceWarning, match=r"added 2 planes, .* raise max_iter"):
        assert SVMPerf("f1", max_iter=2).fit(X, positive).n_iter_ == 2


@pytest.mark.parametrize("value", [0, math.inf, math.nan, "a", None])
@pytest.mark.parametrize("setting", ["C", "tol", "intercept_scaling", "max_iter"])
def test_settings_must_be_numbers_above_0(setting, value):
    with pytest.raises(ValueError, match=f"SVMPerf needs {setting} above 0, a .* number, got {value!r}"):
        SVMPerf(**{setting: value}).fit(*some_rows(10))


def test_a_refit_that_fails_changes_nothing():
    X, positive = some_rows(100, columns=4)
    model = SVMPerf().fit(X, positive)
    coef, intercept = model.coef_.copy(), model.intercept_.copy()
    with pytest.raises(ValueError, match="binary"):
        model.fit(X[:, :3], np.arange(len(positive)) % 3)
    assert np.array_equal(model.coef_, coef)
    assert np.array_equal(model.intercept_, intercept)
    assert model.n_features_in_ == 4
    assert model.predict(X).shape == positive.shape


def test_a_missing_solver_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ModuleNotFoundError, match=r"SVMPerf needs clarabel, .*: pip install clarabel"):
        SVMPerf().fit(*some_rows(10))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([SVMPerf(), SVMPerf("auroc")])
def test_scikit_learn_check_of_svm_perf(estimator, check):
    check(estimator)
