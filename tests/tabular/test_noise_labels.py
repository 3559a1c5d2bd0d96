"""Labels that are pure noise: a setting that is chosen on the rows that it judges would look better than chance."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.metrics import f1
from metricfit.tabular import Network
from metricfit.tabular.cross_fit import judging_parts
from metricfit.tabular.ensemble import OutOfFold, cross_fit
from metricfit.tabular.ensemble_fit import fit_ensemble, prepare_rows
from metricfit.tabular.families.choice import make_families
from metricfit.tabular.families.family import Deadline, Features, TrainingRows
from metricfit.tabular.families.forest import ExtraTrees
from metricfit.tabular.out_of_fold import fit_family
from metricfit.tabular.row_folds import stratified_folds

ROWS, POSITIVES, COLUMNS, DRAWS = 120, 10, 4, 24
PRIOR = log_loss([1] * POSITIVES + [0] * (ROWS - POSITIVES), [POSITIVES / ROWS] * ROWS)
MODELS = {
    "linear": "linear",
    "kernel": "kernel",
    "boosting": "boosting",
    "boosting_small": "boosting_small",
    "boosting_metric": "boosting_metric",
    "network": Network("mlp", epochs=6),
    "user model": LogisticRegression(),
}


def family_of(name):
    if name == "extra_trees":
        return ExtraTrees(15)
    settings = {"metric": f1, "average": "macro", "requirements": (), "device": "cpu"}
    return make_families([("it", MODELS[name])], **settings)[0]


def noise(seed):
    rng = np.random.default_rng(seed)
    y = np.zeros(ROWS, dtype=np.int64)
    y[rng.permutation(ROWS)[:POSITIVES]] = 1
    return TrainingRows(Features(rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)), y, None, 2)


def judged(family, rows, splits):
    """Return the AUROC out of fold, and by how much the cross-entropy is above the entropy of the class shares."""
    result = fit_family(family, rows, splits, seed=0, jobs=1, deadline=Deadline())
    there = ~np.isnan(result.logits[:, 0])
    y, logits = rows.y[there], result.logits[there, 0]
    prior = PRIOR if there.all() else log_loss(y, np.full(len(y), POSITIVES / ROWS))
    return roc_auc_score(y, logits), float(np.mean(np.logaddexp(0.0, logits) - y * logits)) - prior


def check_no_better_than_chance(judgements):
    auroc, excess = np.array(judgements).T
    errors = np.std(judgements, axis=0, ddof=1) / np.sqrt(len(judgements))
    assert auroc.mean() < 0.5 + 3 * errors[0]
    assert excess.mean() > -2 * errors[1]


@pytest.mark.parametrize("name", [*MODELS, "extra_trees"])
def test_no_family_looks_better_than_chance_out_of_fold(name):
    results = []
    for seed in range(DRAWS):
        rows = noise(seed)
        results.append(judged(family_of(name), rows, stratified_folds(rows, 4, None, seed)))
    check_no_better_than_chance(results)


@pytest.mark.parametrize("name", ["linear", "boosting", "boosting_small", "network"])
def test_no_family_looks_better_than_chance_on_the_only_fold(name):
    results = []
    for seed in range(2 * DRAWS):
        rows = noise(seed)
        results.append(judged(family_of(name), rows, stratified_folds(rows, 2, None, seed)[:1]))
    check_no_better_than_chance(results)


QUICK_MODELS = [
    ("bayes", GaussianNB()),
    ("smooth", GaussianNB(var_smoothing=0.3)),
    ("smoother", GaussianNB(var_smoothing=3)),
    ("linear", LinearDiscriminantAnalysis()),
    ("tree", DecisionTreeClassifier(max_depth=2)),
    ("near", KNeighborsClassifier(5)),
    ("far", KNeighborsClassifier(15)),
]


def judged_ensemble(seed, **settings):
    """Return the AUROC and the excess cross-entropy of an ensemble's held-out logits."""
    rows = noise(seed)
    model = MetricClassifier("f1", models=QUICK_MODELS, n_jobs=1, random_state=seed, time_budget=None, **settings)
    held_out = fit_ensemble(model, prepare_rows(model, rows.features.encoded, rows.y, None, None)).basis.held_out
    y, logits = np.asarray(held_out.y), np.asarray(held_out.logits)[:, 0]
    prior = log_loss(y, np.full(len(y), y.mean()))
    return roc_auc_score(y, logits), float(np.mean(np.logaddexp(0.0, logits) - y * logits)) - prior


@pytest.mark.parametrize("folds", [2, 4])
def test_no_ensemble_looks_better_than_chance_out_of_fold(folds):
    """Weights and calibrations that are chosen on the judged rows give an excess of -0.012 with an error of 0.003."""
    check_no_better_than_chance([judged_ensemble(seed, members=folds) for seed in range(40)])


def test_no_ensemble_looks_better_than_chance_on_the_only_fold():
    rng = np.random.default_rng(0)
    results = []
    for seed in range(40):
        held_out = PredefinedSplit(np.where(rng.permutation(ROWS) < ROWS // 2, 0, -1))
        positives = noise(seed).y[held_out.test_fold == 0].sum()
        if 4 <= positives <= POSITIVES - 2:
            results.append(judged_ensemble(seed, cv=held_out))
    assert len(results) > 20
    check_no_better_than_chance(results)


class KnownScores(ClassifierMixin, BaseEstimator):
    """Its scores are the columns, whatever labels it is fitted to."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0] if X.shape[1] == 1 else X


@pytest.mark.parametrize("labels", [1, 3])
def test_the_calibration_of_held_out_rows_does_not_depend_on_their_labels(labels):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, labels)), rng.integers(0, 2, (90, labels))
    splits = list(KFold(4).split(X))
    held_out, changed = splits[1][1], y.copy()
    changed[held_out] = 1 - changed[held_out]
    before, after = (
        np.asarray(TunedDecisionClassifier(KnownScores(), "f1", cv=splits).fit(X, target).held_out_.logits)
        for target in (y.squeeze(), changed.squeeze())
    )
    assert np.array_equal(before[held_out], after[held_out])
    assert not np.allclose(np.delete(before, held_out, 0), np.delete(after, held_out, 0))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_held_out_logits_of_a_part_do_not_depend_on_its_labels(classes):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 60, 1 if classes == 2 else classes))
    y = np.arange(60) % classes
    parts = judging_parts(np.repeat(np.arange(4), 15), y)
    before, after = (
        cross_fit(OutOfFold(logits, labels, None), parts, f1, "macro", ()).logits(logits)
        for labels in (y, np.where(parts == 2, (y + 1) % classes, y))
    )
    assert np.array_equal(before[parts == 2], after[parts == 2])
    assert not np.array_equal(before[parts != 2], after[parts != 2])


def test_copies_of_a_row_and_groups_are_in_one_part_of_a_single_fold():
    y, groups = np.arange(90) % 3, np.repeat(np.arange(30), 3)
    parts = judging_parts(np.zeros(90, dtype=int), y, groups)
    assert len(np.unique(parts)) == 4
    assert all(len(np.unique(parts[groups == group])) == 1 for group in range(30))
