"""Boosted trees by CatBoost and by XGBoost, which become trees of LightGBM's format once they are trained.

So they are predicted, stored, checked and exported by what does this for LightGBM's own trees, without their libraries.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metricfit._extras import explain_missing
from metricfit.boosting.functions import prior_logits
from metricfit.core.arrays import Floats
from metricfit.tabular.families.boosting import MANY_ROWS, BoostedTrees, read_booster
from metricfit.tabular.families.family import Candidates, Deadline, Family, FittedModel, TrainingRows

ROUNDS, PATIENCE = 2000, 50

#: Takes the rows to learn from, the rows that judge, the logits before any tree, the library's settings and the
#: deadline. Returns the trees as text, one for each round and logit, and the held-out cross-entropy after each round.
Train = Callable[[TrainingRows, TrainingRows, Floats, dict[str, Any], Deadline], tuple[Sequence[str], Floats]]


class OtherBoosting(Family):
    """Boosted trees of another library, as many as have the lowest cross-entropy on the rows of the other folds.

    Args:
        package: "catboost" or "xgboost".

    Raises:
        ModuleNotFoundError: The package is not installed.
    """

    settings: Mapping[str, Any] = {}

    def __init__(self, package: str) -> None:
        self.name, self.package = package, package
        with explain_missing(f"the family {package!r}", (package,), "metricfit[boosting]"):
            __import__(package)

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> Candidates:
        """Add trees until the cross-entropy of the held-out fold has not fallen for some rounds."""
        start = prior_logits(train.y, train.weight, classes=train.classes)
        name_of_seed, train_trees = PACKAGES[self.package]
        rate = 0.05 if len(train) <= MANY_ROWS else 0.1
        settings = {"learning_rate": rate, name_of_seed: seed % 2**31, **self.settings}
        trees, losses = train_trees(train, held_out, start, settings, deadline)
        booster = read_booster("".join(trees), train.x.shape[1], train.outputs)
        weight = float(len(held_out) if held_out.weight is None else held_out.weight.sum())
        return Candidates(partial(BoostedTrees.first_rounds, booster, start), losses * weight)

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Put the trees of all folds into one model."""
        return BoostedTrees.joined(models)


def train_catboost(
    train: TrainingRows, held_out: TrainingRows, start: Floats, settings: dict[str, Any], deadline: Deadline
) -> tuple[Sequence[str], Floats]:
    """Train with CatBoost, and read its trees from the JSON that it writes."""
    import catboost

    def pool(rows: TrainingRows) -> catboost.Pool:
        return catboost.Pool(rows.x, rows.y, weight=rows.weight, baseline=np.tile(start, (len(rows), 1)))

    class CheckTime:
        def after_iteration(self, info: Any) -> bool:
            return deadline.seconds_left >= 0  # an error in here would come out as one of CatBoost

    kind: dict[str, Any] = {"loss_function": "Logloss"}
    if train.classes > 2:
        kind = {"loss_function": "MultiClass", "classes_count": train.classes}
    usual = {"use_best_model": False, "boost_from_average": False, "allow_writing_files": False, "verbose": False}
    stopping = {"iterations": ROUNDS, "od_type": "Iter", "od_wait": PATIENCE, "thread_count": 1}
    model = catboost.CatBoost({**kind, **usual, **stopping, **settings})
    model.fit(pool(train), eval_set=pool(held_out), callbacks=[CheckTime()])
    deadline.check()
    losses = np.array(next(iter(model.get_evals_result()["validation"].values())))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        described = json.loads(path.read_text(encoding="utf-8"))
    return list(_trees_of_catboost(described, train.outputs)), losses


def _trees_of_catboost(described: Mapping[str, Any], outputs: int) -> Iterator[str]:
    """Yield a tree for each round and logit; the first split of CatBoost's is the last bit of a leaf's number."""
    scale = described.get("scale_and_bias", [1.0, [0.0]])[0]
    columns = [each["flat_feature_index"] for each in described["features_info"]["float_features"]]
    for tree in described["oblivious_trees"]:
        splits = tree["splits"] or []  # all splits of a level are the same
        depth = np.repeat(np.arange(len(splits)), 2 ** np.arange(len(splits))).astype(np.int64)
        levels = splits[::-1]
        column = np.array([columns[each["float_feature_index"]] for each in levels], dtype=np.int64)[depth]
        border = np.array([each["border"] for each in levels], dtype=np.float64)[depth]
        first = 2 * np.arange(len(depth)) + 1
        left, right = (np.where(child < len(depth), child, ~(child - len(depth))) for child in (first, first + 1))
        for leaves in np.reshape(tree["leaf_values"], (-1, outputs)).T:
            yield _tree_text(column, border, left, right, scale * leaves)


def train_xgboost(
    train: TrainingRows, held_out: TrainingRows, start: Floats, settings: dict[str, Any], deadline: Deadline
) -> tuple[Sequence[str], Floats]:
    """Train with XGBoost, and read its trees from its JSON."""
    import xgboost

    def matrix(rows: TrainingRows) -> xgboost.DMatrix:
        margin = np.tile(start, (len(rows), 1))
        return xgboost.DMatrix(rows.x, rows.y, weight=rows.weight, base_margin=margin, nthread=1)

    class CheckTime(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            deadline.check()
            return False

    kind: dict[str, Any] = {"objective": "binary:logistic", "eval_metric": "logloss"}
    if train.classes > 2:
        kind = {"objective": "multi:softprob", "eval_metric": "mlogloss", "num_class": train.classes}
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        {"nthread": 1, "base_score": 0.5, **kind, **settings},
        matrix(train),
        num_boost_round=ROUNDS,
        evals=[(matrix(held_out), "held_out")],
        early_stopping_rounds=PATIENCE,
        evals_result=history,
        verbose_eval=False,
        callbacks=[CheckTime()],
    )
    described = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    return [_tree_of_xgboost(tree) for tree in described], np.array(history["held_out"][kind["eval_metric"]])


def _tree_of_xgboost(tree: Mapping[str, Any]) -> str:
    """Return a tree of XGBoost, whose rows go left where the column is below the threshold."""
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    values = np.array(tree["split_conditions"], dtype=np.float32)
    reached, at = [0], 0  # pruned nodes stay in the list, so only what is reached counts; parents come first
    while at < len(reached):
        if left[reached[at]] >= 0:
            reached += [int(left[reached[at]]), int(right[reached[at]])]
        at += 1
    nodes = np.array(reached)
    is_leaf = left[nodes] < 0
    number = np.zeros(len(left), dtype=np.int64)
    number[nodes[~is_leaf]] = np.arange((~is_leaf).sum())
    number[nodes[is_leaf]] = ~np.arange(is_leaf.sum())
    inner = nodes[~is_leaf]
    below = np.nextafter(values[inner], np.float32(-np.inf)).astype(np.float64)
    columns = np.array(tree["split_indices"], dtype=np.int64)[inner]
    leaves = values[nodes[is_leaf]].astype(np.float64)
    return _tree_text(columns, below, number[left[inner]], number[right[inner]], leaves)


#: For each package the name of its seed, and what trains with it.
PACKAGES: dict[str, tuple[str, Train]] = {
    "catboost": ("random_seed", train_catboost),
    "xgboost": ("seed", train_xgboost),
}


def _tree_text(columns: Any, thresholds: Any, left: Any, right: Any, leaves: Any) -> str:
    """Return a tree in LightGBM's format.

    Args:
        columns: The column of each split.
        thresholds: Rows go left where the column is at most the threshold.
        left: The split or the leaf on the left; leaves have the numbers ~leaf.
        right: The one on the right.
        leaves: The value of each leaf.
    """

    def listed(numbers: Any) -> str:
        return " ".join(map(repr, np.asarray(numbers).tolist()))

    lines = {
        "Tree": 0,
        "num_leaves": len(leaves),
        "num_cat": 0,
        "split_feature": listed(columns),
        "threshold": listed(thresholds),
        "decision_type": listed(np.full(len(columns), 2)),
        "left_child": listed(left),
        "right_child": listed(right),
        "leaf_value": listed(leaves),
        "is_linear": 0,
        "shrinkage": 1,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items()) + "\n\n"
