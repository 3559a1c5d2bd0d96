"""A model of several folds still knows the model of each, also after it was saved."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from stored_state import restore, state_of

from metricfit.decide.calibration import Calibration
from metricfit.tabular.ensemble import Ensemble, EnsembleMember
from metricfit.tabular.families.choice import make_families
from metricfit.tabular.families.family import Deadline, choose_candidates
from metricfit.tabular.families.network import Network

KINDS = {
    "boosting": "boosting",
    "extra_trees": "extra_trees",
    "network": Network(epochs=2),
    "user": LogisticRegression(),
    "linear": "linear",
    "kernel": "kernel",
}


def fitted(rows, kind, folds=3):
    from metricfit.metrics import f1

    (family,) = make_families([KINDS[kind]], metric=f1, average="macro", requirements=[], device=torch.device("cpu"))
    splits = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(rows.x, rows.y))
    family = family.prepare(rows)
    models = choose_candidates(family.fit_folds(rows, splits, seed=0, deadline=Deadline()))
    return models, family.combine(models)


def as_ensemble(model, outputs):
    unchanged = Calibration(1.0, np.zeros(outputs))
    return Ensemble((EnsembleMember("model", model, unchanged, 1.0),), unchanged)


@pytest.mark.parametrize("kind", ["boosting", "extra_trees", "network", "user"])
def test_the_model_of_a_fold_gives_its_logits(rows, held_out, kind):
    models, combined = fitted(rows, kind)
    assert combined.folds == 3
    for fold, model in enumerate(models):
        expected = model.logits(held_out.features)
        np.testing.assert_allclose(combined.of_fold(fold).logits(held_out.features), expected, atol=0.02)
    assert not np.allclose(models[0].logits(held_out.features), models[1].logits(held_out.features), atol=0.02)


@pytest.mark.parametrize("kind", ["boosting", "extra_trees"])
def test_saved_models_know_their_folds(rows, held_out, classes, kind):
    _, combined = fitted(rows, kind)
    restored = restore(state_of(combined), rows.x.shape[1], classes)
    for fold in range(3):
        np.testing.assert_allclose(
            restored.of_fold(fold).logits(held_out.features), combined.of_fold(fold).logits(held_out.features)
        )


@pytest.mark.parametrize("kind", ["extra_trees", "user", "linear", "kernel"])
def test_an_ensemble_predicts_each_row_by_a_fold(rows, held_out, kind):
    models, combined = fitted(rows, kind)
    ensemble = as_ensemble(combined, rows.outputs)
    several = combined.folds > 1
    assert ensemble.folds == (3 if several else 1)
    folds = np.arange(len(held_out)) % ensemble.folds
    by_fold = np.stack([model.logits(held_out.features) for model in models])
    expected = by_fold[folds, np.arange(len(held_out))] if several else by_fold.mean(0)
    np.testing.assert_allclose(ensemble.logits_of_folds(held_out.features, folds), expected, atol=1e-3)
