"""Trees as one TreeEnsemble node in double precision.

Converters write boosted trees in single precision and refuse those with a custom objective. The encoded columns and the
thresholds are numbers of single precision already, so that in double precision every split decides as in Python, and
the values of leaves are added up without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.export.graph import Graph
from metricfit.tabular.families.boosted_trees import BoostedTrees
from metricfit.tabular.families.extra_trees import Forests
from metricfit.tabular.families.family import Floats, Integers
from metricfit.tabular.families.forest_trees import CompactTrees, children_of

SUM, NO_TRANSFORM, AT_MOST = 1, 0, 0


@dataclass(frozen=True)
class Trees:
    """Trees whose splits and leaves are numbered through all of them.

    Attributes:
        roots: The first split of each tree.
        feature: The column of each split.
        threshold: Rows go left where the column is at most this.
        left: The split, or the leaf, that follows on the left.
        right: The same on the right.
        left_is_leaf: Whether ``left`` is a leaf.
        right_is_leaf: Whether ``right`` is a leaf.
        value: The value of each leaf.
        target: The output that each leaf adds to.
        constant: What trees without a split add to each output.
        missing_left: Whether rows go left where the column is NaN; None if no column is.
    """

    roots: Integers
    feature: Integers
    threshold: NDArray[np.floating[Any]]
    left: Integers
    right: Integers
    left_is_leaf: NDArray[np.bool_]
    right_is_leaf: NDArray[np.bool_]
    value: Floats
    target: Integers
    constant: Floats
    missing_left: NDArray[np.bool_] | None = None

    def sums(self, graph: Graph, x: str) -> str:
        """Add the trees; returns the sums of their leaves ``(rows, outputs)``.

        Args:
            graph: The graph.
            x: The encoded columns, in double precision.
        """
        if not len(self.roots):  # zero times the first column has the right number of rows
            zeros = graph.node("Mul", graph.columns(x, np.array([0])), graph.constant(np.float64(0)))
            return graph.node("Add", zeros, graph.constant(self.constant[None]))
        missing = (
            {} if self.missing_left is None else {"nodes_missing_value_tracks_true": self.missing_left.astype(np.int64)}
        )
        total = graph.tree_node(
            x,
            {
                **missing,
                "aggregate_function": SUM,
                "post_transform": NO_TRANSFORM,
                "n_targets": len(self.constant),
                "tree_roots": self.roots,
                "nodes_featureids": self.feature,
                "nodes_splits": self.threshold.astype(np.float64),
                "nodes_modes": np.full(len(self.feature), AT_MOST, dtype=np.uint8),
                "nodes_truenodeids": self.left,
                "nodes_falsenodeids": self.right,
                "nodes_trueleafs": self.left_is_leaf.astype(np.int64),
                "nodes_falseleafs": self.right_is_leaf.astype(np.int64),
                "leaf_targetids": self.target,
                "leaf_weights": self.value,
            },
        )
        return graph.node("Add", total, graph.constant(self.constant[None])) if self.constant.any() else total


def boosted_trees(model: BoostedTrees) -> Trees:
    """Return the trees of a boosted model; tree t adds to output t modulo their number."""
    outputs = len(model.start)
    splits = model.leaves - 1
    first_split, first_leaf = np.cumsum(splits) - splits, np.cumsum(model.leaves) - model.leaves
    of_split, of_leaf = np.repeat(first_split, splits), np.repeat(first_leaf, splits)
    target = np.repeat(np.arange(len(model.leaves)) % outputs, model.leaves)
    alone = np.repeat(splits == 0, model.leaves)
    left, right = (np.where(child < 0, of_leaf + ~child, of_split + child) for child in (model.left, model.right))
    kept = np.cumsum(~alone) - 1  # leaves of trees without a split are left out
    left_is_leaf, right_is_leaf = model.left < 0, model.right < 0
    return Trees(
        first_split[splits > 0],
        model.feature,
        model.threshold,
        np.where(left_is_leaf, kept[left * left_is_leaf], left),
        np.where(right_is_leaf, kept[right * right_is_leaf], right),
        left_is_leaf,
        right_is_leaf,
        model.value[~alone],
        target[~alone],
        np.bincount(target[alone], weights=model.value[alone], minlength=outputs).astype(np.float64),
    )


def forest_trees(model: Forests, *, may_be_missing: bool = False) -> Trees:
    """Return the trees of a forest, whose leaves vote for class 1 of two, or for all classes but the first of several.

    The votes for the first class are what is left of one vote per tree. A tree is written once per class, without the
    branches whose leaves all have the same share of that class.

    Args:
        model: The forest.
        may_be_missing: Whether columns may be NaN. Those of metricfit's own encoding never are.
    """
    compact = CompactTrees.from_scikit_learn(model.trees, model.known, model.classes)
    inner = compact.feature >= 0
    ends = np.cumsum(compact.nodes)
    left, right = np.full(len(inner), -1), np.full(len(inner), -1)
    for first, end in zip(ends - compact.nodes, ends, strict=True):
        of_left, of_right = children_of(inner[first:end])
        has_children = of_left >= 0
        left[first:end][has_children] = first + of_left[has_children]
        right[first:end][has_children] = first + of_right[has_children]
    roots = ends - compact.nodes
    threshold = np.zeros(len(inner), dtype=np.float32)
    threshold[inner] = compact.threshold
    shares = compact.shares[compact.share]
    missing_left = None
    if may_be_missing:
        missing_left = np.concatenate([np.asarray(tree.missing_go_to_left, dtype=bool) for tree in model.trees])
    feature = compact.feature.astype(np.int64)
    parts = [
        _of_class(roots, feature, threshold, left, right, shares[:, each], each - 1, missing_left)
        for each in range(1, model.classes)
    ]
    return _joined(parts)


def _of_class(
    roots: Integers,
    feature: Integers,
    threshold: NDArray[np.float32],
    left: Integers,
    right: Integers,
    share: Floats,
    target: int,
    missing_left: NDArray[np.bool_] | None,
) -> Trees:
    """Return the trees with one value per leaf, without splits between leaves of the same value."""
    is_leaf = left < 0
    place: Integers = np.cumsum(is_leaf) - is_leaf  # the number of leaves before each node
    changes = np.concatenate([[0], np.cumsum(share[1:] != share[:-1])])
    last_leaf = _last_leaves(roots, left, right, is_leaf, place)
    same = changes[last_leaf] == changes[place]  # all leaves below the node have one value
    below_same = np.zeros(len(left), dtype=bool)
    below_same[left[same & ~is_leaf]] = below_same[right[same & ~is_leaf]] = True
    split, leaf = ~same & ~below_same, same & ~below_same
    split_number, leaf_number = np.cumsum(split) - 1, np.cumsum(leaf) - 1
    value, single = share[place[leaf]], leaf[roots]
    used = np.ones(len(value), dtype=bool)
    used[leaf_number[roots[single]]] = False  # trees without a split
    leaf_number = (np.cumsum(used) - 1)[np.maximum(leaf_number, 0)]
    on_left, on_right = left[split], right[split]
    return Trees(
        split_number[roots[~single]],
        feature[split],
        threshold[split],
        np.where(leaf[on_left], leaf_number[on_left], split_number[on_left]),
        np.where(leaf[on_right], leaf_number[on_right], split_number[on_right]),
        leaf[on_left],
        leaf[on_right],
        value[used],
        np.full(int(used.sum()), target, dtype=np.int64),
        np.array([value[~used].sum()]),
        None if missing_left is None else missing_left[split],
    )


def _last_leaves(
    roots: Integers, left: Integers, right: Integers, is_leaf: NDArray[np.bool_], place: Integers
) -> Integers:
    """Return the number of the last leaf below each node, from the roots down."""
    last: Integers = place.copy()
    ends = np.append(roots[1:], len(left))
    last[roots] = place[ends - 1]  # the last node of a tree is a leaf
    level = roots[~is_leaf[roots]]
    while len(level):
        on_left, on_right = left[level], right[level]
        last[on_left] = place[on_right] - 1
        last[on_right] = last[level]
        below = np.concatenate([on_left, on_right])
        level = below[~is_leaf[below]]
    return last


def _joined(parts: list[Trees]) -> Trees:
    """Return the trees of all parts, each of which adds to one output."""
    splits = np.cumsum([0, *(len(part.feature) for part in parts)])
    leaves = np.cumsum([0, *(len(part.value) for part in parts)])
    numbered = list(zip(parts, splits, leaves, strict=False))
    missing = [part.missing_left for part in parts if part.missing_left is not None]
    return Trees(
        np.concatenate([part.roots + split for part, split, _ in numbered]),
        np.concatenate([part.feature for part in parts]),
        np.concatenate([part.threshold for part in parts]),
        np.concatenate([part.left + np.where(part.left_is_leaf, leaf, split) for part, split, leaf in numbered]),
        np.concatenate([part.right + np.where(part.right_is_leaf, leaf, split) for part, split, leaf in numbered]),
        np.concatenate([part.left_is_leaf for part in parts]),
        np.concatenate([part.right_is_leaf for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.target for part in parts]),
        np.concatenate([part.constant for part in parts]),
        np.concatenate(missing) if missing else None,
    )
