"""Extremely randomised trees by scikit-learn, kept as compact arrays.

A tree is written node by node, each followed by its left branch and then its right one. Which nodes are leaves then
says all about its shape: every sequence that can be read gives a tree, and no stored number points to a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeClassifier
from sklearn.tree._tree import NODE_DTYPE, Tree

from metricfit.errors import InvalidStateError, ModelFileError
from metricfit.tabular.families.boosting import round_down
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
from metricfit.tabular.families.states import Expected, ModelState, predict_in_parts

#: Trees per fold. Trees of large tables are large, and fewer of them suffice.
TREES, TREES_OF_MANY_VALUES, TREES_OF_MANY_ROWS = 200, 100, 50
MANY_VALUES, MANY_ROWS = 250_000, 20_000
#: Leaves hold at least one row, and one more for each of this many rows: full trees of large tables would be huge.
ROWS_PER_LEAF_ROW = 10_000
MOST_FOLDS = 1000
LEAF = -1


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


@dataclass(frozen=True)
class CompactTrees:
    """Trees one after the other.

    Attributes:
        nodes: The number of nodes of each tree.
        feature: The column of each node, and -1 for leaves.
        threshold: One number per node that is no leaf; rows go left where the column is at most this.
        share: For each leaf, its row in ``shares``.
        shares: The distinct rows of class shares; few, because most leaves hold rows of one class.
    """

    nodes: Integers
    feature: NDArray[np.integer]
    threshold: NDArray[np.float32]
    share: NDArray[np.integer]
    shares: Floats

    @classmethod
    def from_scikit_learn(cls, trees: Sequence[Tree], known: Sequence[Integers], classes: int) -> CompactTrees:
        """Take what prediction needs from trees.

        Args:
            trees: The trees.
            known: For each tree, the classes that it knows.
            classes: The number of classes of the whole table.
        """
        features, thresholds, values = [], [], []
        for tree, of_tree in zip(trees, known, strict=True):
            inner = tree.children_left >= 0
            if not np.array_equal(tree.children_left[inner], np.flatnonzero(inner) + 1):
                raise InvalidStateError(
                    "trees of this version of scikit-learn cannot be saved; their nodes are in another order"
                )
            features.append(np.where(inner, tree.feature, LEAF))
            thresholds.append(round_down(tree.threshold[inner]))
            value = np.zeros((int((~inner).sum()), classes))
            value[:, of_tree] = tree.value[~inner, 0, : len(of_tree)]
            values.append(value)
        shares, share = np.unique(np.concatenate(values), axis=0, return_inverse=True)
        return cls(
            np.array([len(feature) for feature in features]),
            _narrow(np.concatenate(features)),
            np.concatenate(thresholds),
            _narrow(share.ravel()),
            shares,
        )

    def to_scikit_learn(self, columns: int) -> list[Tree]:
        """Return trees of scikit-learn.

        Raises:
            ModelFileError: The nodes of a tree do not form one.
        """
        trees = []
        inner_end, leaf_end = 0, 0
        ends = np.cumsum(self.nodes)
        for first, end in zip(ends - self.nodes, ends, strict=True):
            feature = self.feature[first:end].astype(np.int64)
            inner = feature >= 0
            inner_start, inner_end = inner_end, inner_end + int(inner.sum())
            leaf_start, leaf_end = leaf_end, leaf_end + int((~inner).sum())
            nodes = np.zeros(len(feature), dtype=NODE_DTYPE)
            nodes["left_child"], nodes["right_child"] = children_of(inner)
            nodes["feature"] = np.where(inner, feature, -2)
            nodes["threshold"][inner] = self.threshold[inner_start:inner_end]
            nodes["threshold"][~inner] = -2.0
            values = np.zeros((len(feature), 1, self.shares.shape[1]))
            values[~inner, 0] = self.shares[self.share[leaf_start:leaf_end]]
            tree = Tree(columns, np.array([self.shares.shape[1]], dtype=np.intp), 1)
            tree.__setstate__({"max_depth": 0, "node_count": len(nodes), "nodes": nodes, "values": values})
            trees.append(tree)
        return trees

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in ("nodes", "feature", "threshold", "share", "shares")}

    @classmethod
    def restored(cls, state: ModelState, columns: int, classes: int) -> CompactTrees:
        """Return the trees of a state.

        Raises:
            ModelFileError: The arrays do not fit together or do not fit the table.
        """
        nodes = state.indices("nodes", None, 1, 2**31)
        feature = state.indices("feature", int(nodes.sum()), LEAF, columns)
        leaves = int((feature == LEAF).sum())
        shares = state.array("shares", "f", (None, classes)).astype(np.float64)
        if shares.size and not (shares.min() >= 0 and shares.max() <= 1 + 1e-9):
            raise ModelFileError(f"{state.kind}: shares outside of 0 to 1")
        threshold = state.array("threshold", "f", (len(feature) - leaves,)).astype(np.float32)
        return cls(nodes, feature, threshold, state.indices("share", leaves, 0, len(shares)), shares)


def children_of(inner: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """Return the left and right child of each node, -1 for leaves.

    Args:
        inner: For each node in order, whether it has children.

    Raises:
        ModelFileError: The nodes form no tree.
    """
    # The number of branches that are open after each node. The left branch of a node ends with the next leaf that
    # leaves as many as there were before the node; sorted by this number, nodes and such leaves take turns.
    open_branches = np.cumsum(np.where(inner, 1, -1)) + 1
    if open_branches[-1] != 0 or not (open_branches[:-1] > 0).all():
        raise ModelFileError("the nodes form no tree")
    level = np.where(inner, open_branches, open_branches + 1)
    order = np.argsort(level, kind="stable")
    order = order[order != len(inner) - 1]  # the last leaf ends no left branch
    left, right = np.full(len(inner), -1), np.full(len(inner), -1)
    parents, ends = order[::2], order[1::2]
    left[parents], right[parents] = parents + 1, ends + 1
    return left, right


def _narrow(numbers: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return whole numbers in the smallest type of at least 16 bits that holds them."""
    most = int(numbers.max(initial=0))
    return numbers.astype(np.int16 if most < 2**15 else np.int32)
