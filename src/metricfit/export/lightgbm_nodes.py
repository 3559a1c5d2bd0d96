"""A fitted LGBMClassifier as nodes: its trees in double precision, with the directions of missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metricfit.errors import ExportError
from metricfit.export.graph import Graph
from metricfit.export.tree_nodes import Trees
from metricfit.tabular.families.family import Floats, Integers

#: Objectives whose probabilities are the sigmoid or the softmax of the sums of leaves.
OBJECTIVES = ("binary", "multiclass")


class _Split(NamedTuple):
    feature: int
    threshold: float
    missing_left: bool
    left: int
    right: int
    left_is_leaf: bool
    right_is_leaf: bool


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
    raw = _trees([tree["tree_structure"] for tree in model["tree_info"]], outputs).sums(graph, x)
    if outputs == 1:
        raw = graph.join([graph.node("Mul", raw, graph.constant(np.float64(0))), raw])
    return graph.node("Softmax", raw, axis=1)


def _trees(roots: Sequence[dict[str, Any]], outputs: int) -> Trees:
    """Return the trees of LightGBM's description, tree t of which adds to output t modulo their number."""
    splits: list[_Split | None] = []
    leaves: list[tuple[float, int]] = []
    first: list[int] = []
    constant: Floats = np.zeros(outputs)

    def add(node: dict[str, Any], target: int) -> tuple[int, bool]:
        """Add what is below a node; returns its number and whether it is a leaf."""
        if "split_feature" not in node:
            leaves.append((float(node["leaf_value"]), target))
            return len(leaves) - 1, True
        if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
            raise ExportError("a LGBMClassifier with categorical columns or missing zeros is not written as ONNX")
        if "leaf_coeff" in node:
            raise ExportError("a LGBMClassifier with linear leaves is not written as ONNX")
        number, threshold = len(splits), float(node["threshold"])
        splits.append(None)
        (left, left_is_leaf), (right, right_is_leaf) = (
            add(node[f"{side}_child"], target) for side in ("left", "right")
        )
        # Where training had no missing value in the column, LightGBM takes one for 0.
        missing_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0
        splits[number] = _Split(
            int(node["split_feature"]), threshold, missing_left, left, right, left_is_leaf, right_is_leaf
        )
        return number, False

    for number, root in enumerate(roots):
        if "split_feature" in root:
            first.append(len(splits))
            add(root, number % outputs)
        else:
            constant[number % outputs] += float(root["leaf_value"])
    columns = list(zip(*(split for split in splits if split is not None), strict=True)) or [()] * len(_Split._fields)
    feature, threshold, missing_left, left, right, left_is_leaf, right_is_leaf = columns
    return Trees(
        _integers(first),
        _integers(feature),
        np.array(threshold, dtype=np.float64),
        _integers(left),
        _integers(right),
        np.array(left_is_leaf, dtype=bool),
        np.array(right_is_leaf, dtype=bool),
        np.array([value for value, _ in leaves], dtype=np.float64),
        _integers([target for _, target in leaves]),
        constant,
        np.array(missing_left, dtype=bool),
    )


def _integers(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, dtype=np.int64)
