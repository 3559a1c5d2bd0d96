"""Extremely randomised trees by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeClassifier
from sklearn.tree._tree import Tree

from metricfit.tabular.families.family import (
    Deadline,
    Family,
    Features,
    FittedModel,
    Floats,
    Integers,
    TrainingRows,
    to_logits,
)
from metricfit.tabular.families.forest_trees import CompactTrees
from metricfit.tabular.families.model_state import Expected, ModelState
from metricfit.tabular.families.row_parts import predict_in_parts

#: Trees per fold. Trees of large tables are large, and fewer of them suffice.
TREES, TREES_OF_MANY_VALUES, TREES_OF_MANY_ROWS = 200, 100, 50
MANY_VALUES, MANY_ROWS = 250_000, 20_000
#: Leaves hold at least one row, and one more for each of this many rows: full trees of large tables would be huge.
ROWS_PER_LEAF_ROW = 10_000
MOST_FOLDS = 1000


@dataclass(frozen=True)
class Forests:
    """The trees of one or several folds, which vote together.

    Attributes:
        trees: The trees of all folds.
        known: For each tree, the classes that it knows.
        classes: The number of classes of the whole table.
        folds: The number of folds.
    """

    trees: tuple[Tree, ...]
    known: tuple[Integers, ...]
    classes: int
    folds: int

    def of_fold(self, fold: int) -> Forests:
        """Return the trees of one fold; all folds have equally many."""
        trees = len(self.trees) // self.folds
        part = slice(fold * trees, (fold + 1) * trees)
        return Forests(self.trees[part], self.known[part], self.classes, folds=1)

    def logits(self, features: Features) -> Floats:
        """Return the logits of the mean vote; half a vote for every class keeps them finite."""
        votes = predict_in_parts(self._votes, features.encoded) / self.folds + 0.5
        return to_logits(votes / votes.sum(axis=1, keepdims=True), self.classes)

    def _votes(self, x: NDArray[np.float32]) -> Floats:
        x = np.ascontiguousarray(x, dtype=np.float32)
        total = np.zeros((len(x), self.classes))
        for tree, known in zip(self.trees, self.known, strict=True):
            total[:, known] += tree.predict(x)
        return total

    def state(self) -> ModelState:
        """Return the trees as arrays."""
        trees = CompactTrees.from_scikit_learn(self.trees, self.known, self.classes)
        return ModelState("forests", {"folds": self.folds}, trees.arrays())

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> Forests:
        """Return the trees of a state.

        Raises:
            ModelFileError: The arrays are no trees for this table.
        """
        trees = CompactTrees.restored(state, expected.columns, expected.classes).to_scikit_learn(expected.columns)
        every = np.arange(expected.classes)
        return cls(tuple(trees), (every,) * len(trees), expected.classes, state.whole_number("folds", 1, MOST_FOLDS))


class ExtraTrees(Family):
    """Forests of trees with random cuts: fully grown on small tables, with larger leaves on large ones.

    Args:
        trees: Trees per fold; None for 200, for 100 above 250,000 values (rows times columns) and for 50 above 20,000
            rows.
    """

    name = "extra_trees"

    def __init__(self, trees: int | None = None) -> None:
        self.trees = trees
        #: Trees that are grown at a time.
        self.jobs = 1

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Grow the trees of scikit-learn's ExtraTreesClassifier.

        They are grown one by one. The forest of scikit-learn sets and resets Python's warning filters around each tree,
        which other folds, in threads of their own, answer with warnings.
        """
        generator, x = np.random.RandomState(seed % 2**31), np.ascontiguousarray(train.x, dtype=np.float32)
        trees = [
            ExtraTreeClassifier(
                max_features=0.5,
                min_samples_leaf=1 + len(train) // ROWS_PER_LEAF_ROW,
                random_state=generator.randint(np.iinfo(np.int32).max),
            )
            for _ in range(self.trees or _usual_number_of_trees(train))
        ]

        def grow(tree: ExtraTreeClassifier) -> Tree:
            deadline.check()
            return tree.fit(x, train.y, sample_weight=train.weight, check_input=False).tree_

        members = tuple(joblib.Parallel(self.jobs, backend="threading")(joblib.delayed(grow)(tree) for tree in trees))
        known = np.asarray(trees[0].classes_, dtype=np.int64)
        return Forests(members, (known,) * len(members), train.classes, folds=1)

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Let the trees of all folds vote together."""
        forests = [model for model in models if isinstance(model, Forests)]
        return Forests(
            tuple(tree for forest in forests for tree in forest.trees),
            tuple(known for forest in forests for known in forest.known),
            forests[0].classes,
            sum(forest.folds for forest in forests),
        )


def _usual_number_of_trees(train: TrainingRows) -> int:
    if len(train) > MANY_ROWS:
        return TREES_OF_MANY_ROWS
    return TREES if train.x.size <= MANY_VALUES else TREES_OF_MANY_VALUES
