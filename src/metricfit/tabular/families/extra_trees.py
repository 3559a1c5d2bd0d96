"""Extremely randomised trees by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

from metricfit.tabular.families.family import Deadline, Family, Features, FittedModel, Floats, TrainingRows, to_logits

TREES_AT_A_TIME = 10


@dataclass(frozen=True)
class Forests:
    """Forests whose trees vote together."""

    forests: tuple[ExtraTreesClassifier, ...]
    classes: int
    trees_per_fold: int

    def logits(self, features: Features) -> Floats:
        """Return the logits of the mean vote; half a vote for every class keeps them finite."""
        total = np.zeros((len(features), self.classes))
        for forest in self.forests:
            total[:, forest.classes_] += forest.predict_proba(features.encoded)
        votes = total * (self.trees_per_fold / len(self.forests)) + 0.5
        return to_logits(votes / votes.sum(axis=1, keepdims=True), self.classes)


class ExtraTrees(Family):
    """Forests of fully grown trees with random cuts.

    Args:
        trees: Trees per fold.
        min_samples_leaf: Smallest number of rows of a leaf.
    """

    name = "extra_trees"

    def __init__(self, trees: int = 100, min_samples_leaf: int = 1) -> None:
        self.trees, self.min_samples_leaf = trees, min_samples_leaf

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Grow the forest, ten trees at a time."""
        forest = ExtraTreesClassifier(
            max_features=0.5,
            min_samples_leaf=self.min_samples_leaf,
            warm_start=True,
            n_jobs=1,
            random_state=seed % 2**31,
        )
        for trees in range(TREES_AT_A_TIME, self.trees + 1, TREES_AT_A_TIME):
            deadline.check()
            forest.set_params(n_estimators=trees).fit(train.x, train.y, sample_weight=train.weight)
        return Forests((forest,), train.classes, self.trees)

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Let the trees of all folds vote together."""
        forests = [model for model in models if isinstance(model, Forests)]
        return Forests(
            tuple(forest for model in forests for forest in model.forests),
            forests[0].classes,
            forests[0].trees_per_fold,
        )
