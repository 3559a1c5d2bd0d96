"""Trees as one TreeEnsemble node in double precision: boosted trees, forests, and LightGBM's trees.

Converters write boosted trees in single precision and refuse those with a custom objective. The encoded columns and the
thresholds are numbers of single precision already, so that in double precision every split decides as in Python, and
the values of leaves are added up without rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Floats, Integers
from metricfit.errors import ExportError
from metricfit.export.onnx.graph import Graph
from metricfit.tabular.families.boosting import BoostedTrees
from metricfit.tabular.families.forest import Forests

SUM, NO_TRANSFORM, AT_MOST = 1, 0, 0
LEAF = -1
#: Objectives of LightGBM whose probabilities are the sigmoid or the softmax of the sums of leaves.
OBJECTIVES = ("binary", "multiclass")


@dataclass(frozen=True)
class Trees:
    """Trees whose nodes are numbered through all of them.

    Attributes:
        outputs: The number of outputs.
        roots: The first node of each tree.
        feature: The column of each node.
        threshold: Rows go left where the column is at most this.
        left: The node that follows on the left; -1 for a leaf.
        right: The same on the right.
        value: The value of each leaf.
        target: The output that each leaf adds to.
        missing_left: Whether rows go left where the column is NaN; None if no column is.
    """

    outputs: int
    roots: Integers
    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    value: Floats
    target: NDArray[Any]
    missing_left: NDArray[np.bool_] | None = None

    def sums(self, graph: Graph, x: str) -> str:
        """Add the trees; returns the sums of their leaves ``(rows, outputs)``.

        Args:
            graph: The graph.
            x: The encoded columns, in double precision.
        """
        is_leaf = self.left < 0
        alone = is_leaf[self.roots]  # trees without a split
        single = self.roots[alone]
        constant = np.bincount(self.target[single], weights=self.value[single], minlength=self.outputs)
        if alone.all():  # zero times the first column has the right number of rows
            zeros = graph.node("Mul", graph.columns(x, np.array([0])), 0)
            return graph.node("Add", zeros, constant[None])
        used, level = np.zeros(len(is_leaf), dtype=bool), self.roots[~alone]
        while len(level):
            used[level] = True
            inner = level[~is_leaf[level]]
            level = np.concatenate([self.left[inner], self.right[inner]])
        split, leaf = used & ~is_leaf, used & is_leaf
        number = np.where(is_leaf, np.cumsum(leaf), np.cumsum(split)) - 1
        left, right = self.left[split], self.right[split]
        attributes = {
            "aggregate_function": SUM,
            "post_transform": NO_TRANSFORM,
            "n_targets": self.outputs,
            "tree_roots": number[self.roots[~alone]],
            "nodes_featureids": self.feature[split].astype(np.int64),
            "nodes_splits": self.threshold[split].astype(np.float64),
            "nodes_modes": np.full(len(left), AT_MOST, dtype=np.uint8),
            "nodes_truenodeids": number[left],
            "nodes_falsenodeids": number[right],
            "nodes_trueleafs": is_leaf[left].astype(np.int64),
            "nodes_falseleafs": is_leaf[right].astype(np.int64),
            "leaf_targetids": self.target[leaf].astype(np.int64),
            "leaf_weights": self.value[leaf],
        }
        if self.missing_left is not None:
            attributes["nodes_missing_value_tracks_true"] = self.missing_left[split].astype(np.int64)
        total = graph.tree_node(x, attributes)
        return graph.node("Add", total, constant[None]) if constant.any() else total


def boosted_trees(model: BoostedTrees) -> Trees:
    """Return the trees of all folds of a boosted model; the leaves add up to the mean over folds."""
    folds = zip(model.boosters, model.rounds, strict=True)
    described = [booster.dump_model(num_iteration=rounds)["tree_info"] for booster, rounds in folds]
    roots = [tree["tree_structure"] for trees in described for tree in trees]
    trees = _lightgbm_trees(roots, model.starts.shape[1])
    return replace(trees, value=trees.value / model.folds, missing_left=None)  # encoded columns are never NaN


def forest_trees(model: Forests, *, may_be_missing: bool = False) -> Trees:
    """Return the trees of a forest, whose leaves vote for class 1 of two, or for all classes but the first of several.

    The votes for the first class are what is left of one vote per tree. A tree is written once per class, without the
    branches whose leaves all have the same share of that class.

    Args:
        model: The forest.
        may_be_missing: Whether columns may be NaN. Columns of metricfit's encoding never are.
    """
    sizes = np.array([tree.node_count for tree in model.trees])
    first, nodes, copies = np.cumsum(sizes) - sizes, int(sizes.sum()), model.classes - 1
    left, right = (
        np.concatenate([np.where(child < 0, LEAF, child + start) for child, start in zip(children, first, strict=True)])
        for children in zip(*((tree.children_left, tree.children_right) for tree in model.trees), strict=True)
    )
    shares = np.zeros((nodes, model.classes))
    for tree, known, start in zip(model.trees, model.known, first, strict=True):
        shares[start : start + tree.node_count, known] = tree.value[:, 0, : len(known)]
    lefts, rights, values = zip(
        *(_merge_equal(left, right, shares[:, 1 + part], nodes * part) for part in range(copies)), strict=True
    )
    missing = [np.asarray(tree.missing_go_to_left, dtype=bool) for tree in model.trees] if may_be_missing else None
    return Trees(
        copies,
        np.concatenate([first + nodes * part for part in range(copies)]),
        np.tile(np.concatenate([tree.feature for tree in model.trees]), copies),
        np.tile(np.concatenate([tree.threshold for tree in model.trees]), copies),
        np.concatenate(lefts),
        np.concatenate(rights),
        np.concatenate(values),
        np.repeat(np.arange(copies), nodes),
        None if missing is None else np.tile(np.concatenate(missing), copies),
    )


def _merge_equal(left: Integers, right: Integers, share: Floats, start: int) -> tuple[Integers, Integers, Floats]:
    """Return the children and the values of nodes from ``start`` on; splits between equal leaves become leaves."""
    is_leaf, share = left < 0, share.copy()
    while True:
        inner = np.flatnonzero(~is_leaf)
        a, b = left[inner], right[inner]
        merged = is_leaf[a] & is_leaf[b] & (share[a] == share[b])
        if not merged.any():
            return np.where(is_leaf, LEAF, left + start), np.where(is_leaf, LEAF, right + start), share
        is_leaf[inner[merged]], share[inner[merged]] = True, share[a[merged]]


def is_lightgbm(estimator: Any) -> bool:
    """Return whether this is LightGBM's classifier; LightGBM is not imported for it."""
    return type(estimator).__module__.startswith("lightgbm.") and hasattr(estimator, "booster_")


def add_lightgbm(graph: Graph, estimator: Any, x: str) -> str:
    """Add a fitted LGBMClassifier.

    Args:
        graph: The graph.
        estimator: The classifier.
        x: Its columns, numbers in double precision.

    Returns:
        The probabilities ``(rows, c)``.

    Raises:
        ExportError: It has another objective, categorical columns, linear leaves or zeros that count as missing.
    """
    model = estimator.booster_.dump_model()
    objective, *settings = str(model.get("objective", "")).split()
    if objective not in OBJECTIVES or (objective == "binary" and "sigmoid:1" not in settings):
        raise ExportError(
            f"a LGBMClassifier with the objective {' '.join([objective, *settings]) or 'of a function'} is not written "
            f"as ONNX; known are {' and '.join(OBJECTIVES)}"
        )
    if model.get("average_output"):
        raise ExportError("a LGBMClassifier with boosting_type='rf' is not written as ONNX")
    outputs = int(model["num_tree_per_iteration"])
    raw = _lightgbm_trees([tree["tree_structure"] for tree in model["tree_info"]], outputs).sums(graph, x)
    if outputs == 1:
        raw = graph.beside_zeros(raw)
    return graph.node("Softmax", raw, axis=1)


def _lightgbm_trees(roots: Sequence[dict[str, Any]], outputs: int) -> Trees:
    """Return the trees of LightGBM's description, tree t of which adds to output t modulo their number."""
    nodes: list[tuple[Any, ...]] = []

    def add(node: dict[str, Any], target: int) -> int:
        """Add a node and what is below it; returns its number."""
        number = len(nodes)
        if "split_feature" not in node:
            nodes.append((LEAF, 0.0, LEAF, LEAF, float(node["leaf_value"]), target, False))
            return number
        if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
            raise ExportError("a LGBMClassifier with categorical columns or missing zeros is not written as ONNX")
        if "leaf_coeff" in node:
            raise ExportError("a LGBMClassifier with linear leaves is not written as ONNX")
        nodes.append(())
        threshold = float(node["threshold"])
        left, right = add(node["left_child"], target), add(node["right_child"], target)
        # Where training had no missing value in the column, LightGBM takes one for 0.
        missing_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0
        nodes[number] = (int(node["split_feature"]), threshold, left, right, 0.0, target, missing_left)
        return number

    first = np.array([add(root, number % outputs) for number, root in enumerate(roots)])
    return Trees(outputs, first, *map(np.array, zip(*nodes, strict=True)))
