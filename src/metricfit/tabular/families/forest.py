"""Extremely randomised trees by scikit-learn, stored as compact arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.tree import ExtraTreeClassifier, ExtraTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, Tree

from metricfit.core.arrays import Floats, Integers
from metricfit.errors import ModelFileError
from metricfit.tabular.families.arithmetic import check_indices, check_shape, predict_in_parts, to_logits
from metricfit.tabular.families.family import Deadline, Family, Features, FittedModel, TrainingRows

if TYPE_CHECKING:
    from metricfit.tabular.storage import Folder

#: Trees per fold. Trees of large tables are large, and fewer of them suffice.
TREES, TREES_OF_MANY_VALUES, TREES_OF_MANY_ROWS = 200, 100, 50
MANY_VALUES, MANY_ROWS = 250_000, 20_000
#: Leaves hold at least one row, and one more for each of this many rows: full trees of large tables would be huge.
ROWS_PER_LEAF_ROW = 10_000
MOST_FOLDS = 1000


@dataclass(frozen=True)
class Forests(FittedModel):
    """The trees of one or several folds, which vote together.

    Attributes:
        trees: The trees of all folds.
        known: For each tree, the classes that it knows.
        classes: The number of classes of the whole table.
        forests: The number of folds.
    """

    trees: tuple[Tree, ...]
    known: tuple[Integers, ...]
    classes: int
    forests: int

    @property
    def folds(self) -> int:
        """The number of folds."""
        return self.forests

    def of_fold(self, fold: int) -> Forests:
        """Return the trees of one fold; all folds have equally many."""
        trees = len(self.trees) // self.folds
        part = slice(fold * trees, (fold + 1) * trees)
        return Forests(self.trees[part], self.known[part], self.classes, 1)

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

    def stored(self) -> StoredForests:
        """Return the nodes of all trees, one tree after the other."""
        values = []
        for tree, known in zip(self.trees, self.known, strict=True):
            value = np.zeros((tree.node_count, self.classes))
            value[:, known] = tree.value[:, 0, : len(known)]
            values.append(value)
        feature, left, right, threshold = (
            np.concatenate([getattr(tree, name) for tree in self.trees])
            for name in ("feature", "children_left", "children_right", "threshold")
        )
        inner = left >= 0
        shares, share = np.unique(np.concatenate(values)[~inner], axis=0, return_inverse=True)
        return StoredForests(
            self.folds,
            np.array([tree.node_count for tree in self.trees]),
            _narrow(np.where(inner, feature, -1)),
            _narrow(left[inner]),
            _narrow(right[inner]),
            _round_down(threshold[inner]),
            _narrow(share.ravel()),
            shares,
        )


@dataclass(frozen=True)
class StoredForests:
    """Forests in a folder.

    Attributes:
        folds: The number of folds.
        nodes: The number of nodes of each tree.
        feature: The column of each node, -1 for leaves.
        left: For each split the number of a node of its tree, where rows with at most the threshold go.
        right: The same for the other rows.
        threshold: The threshold of each split.
        share: For each leaf a row of ``shares``, of which few differ.
        shares: Shares of the classes.
    """

    folds: int
    nodes: Integers
    feature: Integers
    left: Integers
    right: Integers
    threshold: NDArray[np.float32]
    share: Integers
    shares: Floats

    def restored(self, folder: Folder) -> Forests:
        """Return the trees.

        Raises:
            ModelFileError: The arrays are no trees for this table.
        """
        check_indices("nodes", self.nodes, None, 1, 2**31)
        count = int(self.nodes.sum())
        check_indices("feature", self.feature, count, -1, folder.columns)
        inner = self.feature >= 0
        splits, shares = int(inner.sum()), self.shares
        check_shape("shares", shares, (None, folder.classes))
        if shares.size and not (shares.min() >= 0 and shares.max() <= 1 + 1e-9):
            raise ModelFileError("shares outside of 0 to 1")
        check_shape("threshold", self.threshold, (splits,))
        check_indices("left", self.left, splits, 1, 2**31)
        check_indices("right", self.right, splits, 1, 2**31)
        check_indices("share", self.share, count - splits, 0, len(shares))
        if not 1 <= self.folds <= MOST_FOLDS:
            raise ModelFileError(f"folds must be a whole number from 1 to {MOST_FOLDS}, got {self.folds}")
        nodes = np.zeros(count, dtype=NODE_DTYPE)
        nodes["feature"], nodes["threshold"] = np.where(inner, self.feature, -2), -2.0
        nodes["left_child"] = nodes["right_child"] = -1
        nodes["threshold"][inner] = self.threshold
        nodes["left_child"][inner], nodes["right_child"][inner] = self.left, self.right
        values = np.zeros((count, 1, folder.classes))
        values[~inner, 0] = shares[self.share]
        trees = []
        for end, size in zip(np.cumsum(self.nodes), self.nodes, strict=True):
            part = nodes[end - size : end].copy()
            _check_tree(part)
            trees.append(_tree_of(part, values[end - size : end].copy(), folder.columns))
        return Forests(tuple(trees), (np.arange(folder.classes),) * len(trees), folder.classes, self.folds)


def _tree_of(nodes: NDArray[Any], values: Floats, columns: int) -> Tree:
    """Return the tree that has these nodes and, for each of them, the shares of the classes ``(nodes, 1, classes)``."""
    tree = Tree(columns, np.array([values.shape[2]], dtype=np.intp), 1)
    tree.__setstate__({"max_depth": 0, "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def _with_shares(tree: Tree) -> Tree:
    """Return a tree that predicts the share of the later of two classes, with the shares of both."""
    later = np.clip(tree.value, 0.0, 1.0)
    return _tree_of(tree.__getstate__()["nodes"], np.concatenate([1.0 - later, later], axis=2), tree.n_features)


def _check_tree(nodes: NDArray[Any]) -> None:
    """Refuse nodes that are not each, but the first, a child of one earlier node."""
    inner = np.flatnonzero(nodes["left_child"] >= 0)
    children = np.concatenate([nodes["left_child"][inner], nodes["right_child"][inner]])
    later = children > np.tile(inner, 2)
    if not later.all() or not np.array_equal(np.sort(children), np.arange(1, len(nodes))):
        raise ModelFileError("the nodes form no tree")


class ExtraTrees(Family):
    """Forests of trees with random cuts: fully grown on small tables, with larger leaves on large ones.

    Args:
        trees: Trees per fold; None for 200, for 100 above 250,000 values (rows times columns) and for 50 above 20,000
            rows.
    """

    name = "extra_trees"

    def __init__(self, trees: int | None = None) -> None:
        self.trees = trees

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Grow the trees of scikit-learn's ExtraTreesClassifier.

        They are grown one by one, which takes two thirds of the time of scikit-learn's forest on small tables. The
        forest also sets Python's warning filters around each tree, which causes warnings in the threads of other folds.
        """
        generator, x = np.random.RandomState(seed % 2**31), np.ascontiguousarray(train.x, dtype=np.float32)
        known, numbers = np.unique(train.y, return_inverse=True)
        # For two classes the Gini impurity is twice the variance, of which scikit-learn grows trees in less time.
        kind = ExtraTreeRegressor if len(known) == 2 else ExtraTreeClassifier
        target = numbers.astype(np.float64)
        seeds = generator.randint(np.iinfo(np.int32).max, size=self.trees or _usual_number_of_trees(train))

        def grow(seed_of_tree: int) -> Tree:
            deadline.check()
            leaf = 1 + len(train) // ROWS_PER_LEAF_ROW
            tree = kind(splitter="random", max_features=0.5, min_samples_leaf=leaf, random_state=seed_of_tree)
            with config_context(skip_parameter_validation=True):  # a third of the time of a small tree
                grown = tree.fit(x, target, sample_weight=train.weight, check_input=False).tree_
            return _with_shares(grown) if len(known) == 2 else grown

        members = tuple(joblib.Parallel(self.jobs, backend="threading")(joblib.delayed(grow)(each) for each in seeds))
        return Forests(members, (known,) * len(members), train.classes, 1)

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


def _narrow(numbers: NDArray[np.integer]) -> Any:
    """Return whole numbers in the smallest type of at least 16 bits that holds them."""
    most = int(numbers.max(initial=0))
    return numbers.astype(np.int16 if most < 2**15 else np.int32)


def _round_down(thresholds: Floats) -> NDArray[np.float32]:
    """Return the largest numbers in single precision that are not above the thresholds.

    Columns are in single precision, so rows go the same way at both.

    >>> _round_down(np.array([0.1, -0.1])).astype(float) <= [0.1, -0.1]
    array([ True,  True])
    """
    with np.errstate(over="ignore"):  # rounded down to the largest number
        rounded = thresholds.astype(np.float32)
    above = rounded > thresholds
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)
