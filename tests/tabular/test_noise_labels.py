"""Labels that are pure noise: a setting that is chosen on the rows that it judges would look better than chance."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from metricfit.metrics import f1
from metricfit.tabular import Network
from metricfit.tabular.families import make_families
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
