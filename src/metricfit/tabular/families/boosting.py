"""Boosted trees by LightGBM, on the cross-entropy or on the cross-entropy plus the loss of a metric.

The trees are kept as arrays: merged over folds, predicted by LightGBM, saved and restored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricfit.boosting.library_rows import prior_logits
from metricfit.core.types import ScalarAverage
from metricfit.errors import ModelFileError
from metricfit.metrics.metric import Metric
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Expected,
    Family,
    Features,
    FittedModel,
    Floats,
    Integers,
    ModelState,
    TrainingRows,
    cross_entropy,
    predict_in_parts,
)

if TYPE_CHECKING:
    import lightgbm

log = logging.getLogger("metricfit.tabular")

MAXIMUM_ROUNDS = 3000
#: From here on the learning rate is doubled, which halves the time at the same cross-entropy.
MANY_ROWS = 20_000


@dataclass(frozen=True)
class Trees:
    """What kind of trees are grown.

    Attributes:
        parameters: Parameters of LightGBM.
        patience: Training stops after this many rounds without a lower cross-entropy of the held-out fold.
    """

    parameters: Mapping[str, Any]
    patience: int


#: LightGBM's own defaults.
USUAL = Trees({"num_leaves": 31}, patience=50)
#: Smaller trees, each of random parts of the rows and columns. Beside the usual ones they add to an ensemble.
SMALL = Trees(
    {
        "num_leaves": 15,
        "min_child_samples": 10,
        "feature_fraction": 0.6,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
    },
    patience=30,
)


class Boosting(Family):
    """Boosted trees, as many as have the lowest cross-entropy on the rows of the other folds.

    Args:
        name: Its name.
        trees: What kind of trees are grown.
        metric: If given, the trees are trained for this metric beside the cross-entropy.
        average: The metric's average over several classes.
    """

    def __init__(
        self,
        name: str = "boosting",
        trees: Trees = USUAL,
        *,
        metric: Metric | None = None,
        average: ScalarAverage = "macro",
    ) -> None:
        self.name, self.trees = name, trees
        self.metric, self.average = metric, average
        self.trains_for_metric = metric is not None

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> Candidates:
        """Add trees until the cross-entropy of the held-out fold has not fallen for some rounds."""
        if self.metric is not None and not (train.x != train.x[:1]).any():
            # Without a column to split, LightGBM ends in an error beside an objective of ours, and not beside its own.
            return Boosting(self.name, self.trees).fit(train, held_out, seed=seed, deadline=deadline)
        start = prior_logits(train.y, train.weight, classes=train.classes)
        data = self._dataset(train, start)
        held_out_data = self._dataset(held_out, start, reference=data)
        settings = self.settings(len(train), train.classes, seed)

        def is_over() -> bool:
            deadline.check()
            return False

        return self.grow(data, held_out_data, start, settings, is_over)

    def grow(
        self,
        data: lightgbm.Dataset,
        held_out: lightgbm.Dataset,
        start: Floats,
        settings: dict[str, Any],
        is_over: Callable[[], bool],
    ) -> Candidates:
        """Grow trees on datasets of LightGBM.

        Args:
            data: The rows to learn from.
            held_out: The rows whose cross-entropy says when to stop.
            start: The logits before any tree, which are the initial scores of both.
            settings: Parameters of LightGBM.
            is_over: Called after each round; training ends if it returns True.

        Returns:
            The trees after each round.
        """
        import lightgbm

        losses: list[float] = []
        best = 0

        def after_round(round_: Any) -> None:
            nonlocal best
            losses.append(float(round_.evaluation_result_list[0][2]))
            if losses[-1] < losses[best]:
                best = len(losses) - 1
            if len(losses) - 1 - best < self.trees.patience:
                if not is_over():
                    return
                log.info("%s ends after %d rounds, for time; its loss was still falling", self.name, len(losses))
            raise lightgbm.EarlyStopException(round_.iteration, round_.evaluation_result_list)

        def evaluate(scores: Floats, rows: lightgbm.Dataset) -> tuple[str, float, bool]:
            """LightGBM passes raw scores beside an objective that is a function."""
            y, weight = np.asarray(rows.get_label(), dtype=np.int64), rows.get_weight()
            weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
            return "cross_entropy", cross_entropy(scores.reshape(len(y), -1), y, weight) / weight.sum(), False

        trees = lightgbm.train(
            settings,
            data,
            num_boost_round=MAXIMUM_ROUNDS,
            valid_sets=[held_out],
            feval=None if self.metric is None else evaluate,
            callbacks=[after_round],
            keep_training_booster=True,  # otherwise it is written as text and read again
        )
        weight = held_out.get_weight()
        counted = float(held_out.num_data() if weight is None else np.asarray(weight).sum())
        text = trees.model_to_string(num_iteration=trees.current_iteration())
        return Candidates(partial(BoostedTrees.from_lightgbm, text, start), np.array(losses) * counted)

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Put the trees of all folds into one model."""
        return BoostedTrees.mean([model for model in models if isinstance(model, BoostedTrees)])

    def _dataset(
        self, rows: TrainingRows, start: Floats, reference: lightgbm.Dataset | None = None
    ) -> lightgbm.Dataset:
        import lightgbm

        init = np.tile(start, (len(rows), 1)).ravel(order="F")
        return lightgbm.Dataset(
            rows.x,
            rows.y,
            weight=rows.weight,
            init_score=init,
            reference=reference,
            # Columns that small tables cannot split are kept: without any column an objective of ours ends in an error.
            params={"verbose": -1, "num_threads": 1, "feature_pre_filter": False},
            free_raw_data=True,
        )

    def settings(self, rows: int, classes: int, seed: int) -> dict[str, Any]:
        """Return the parameters of LightGBM for this many rows and classes."""
        plain, plain_loss = ("binary", "binary_logloss") if classes == 2 else ("multiclass", "multi_logloss")
        settings: dict[str, Any] = {
            "objective": plain,
            "num_class": 1 if classes == 2 else classes,
            "metric": plain_loss,
            "boost_from_average": False,
            "learning_rate": 0.05 if rows <= MANY_ROWS else 0.1,
            "verbose": -1,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed % 2**31,
        }
        if self.metric is not None:
            from metricfit.boosting import objective  # needs torch

            settings |= {"objective": objective(self.metric, average=self.average), "metric": "none"}
        return settings | dict(self.trees.parameters)


@dataclass(frozen=True)
class BoostedTrees(FittedModel):
    """Trees that are added up, and the logits that they start from.

    The trees follow each other; of several logits, tree t belongs to logit t modulo their number. Within a tree, splits
    and leaves are numbered from 0, and ``~leaf`` stands for a leaf in ``left`` and ``right``, as in LightGBM.

    Attributes:
        start: The logits before any tree.
        columns: The number of encoded columns.
        leaves: The number of leaves of each tree; it has one split less.
        feature: The column of each split.
        threshold: Rows go left where the column is at most this.
        left: What follows each split on the left.
        right: What follows each split on the right.
        value: The value of each leaf.
        trees_of_folds: The number of trees of each fold; their sum is the number of trees.
    """

    start: Floats
    columns: int
    leaves: Integers
    feature: Integers
    threshold: NDArray[np.float32]
    left: Integers
    right: Integers
    value: Floats
    trees_of_folds: Integers

    @property
    def folds(self) -> int:
        """The number of folds."""
        return len(self.trees_of_folds)

    def of_fold(self, fold: int) -> BoostedTrees:
        """Return the trees of one fold, with the mean start of all folds."""
        kept = np.repeat(np.arange(self.folds) == fold, self.trees_of_folds)
        splits, leaves = np.repeat(kept, self.leaves - 1), np.repeat(kept, self.leaves)
        of_splits = {name: getattr(self, name)[splits] for name in _OF_SPLITS}
        return replace(
            self,
            leaves=self.leaves[kept],
            value=self.value[leaves] * self.folds,
            trees_of_folds=self.trees_of_folds[fold : fold + 1],
            **of_splits,
        )

    @classmethod
    def from_lightgbm(cls, text: str, start: Floats, last: int) -> BoostedTrees:
        """Read the trees of LightGBM's text up to a round.

        Args:
            text: LightGBM's text.
            start: The logits before any tree.
            last: The number of the last round, from 0 on.
        """
        import lightgbm

        booster = lightgbm.Booster(model_str=text)
        trees = "\n".join(text.split("\nTree=")[1 : (last + 1) * len(start) + 1])

        def numbers(name: str) -> Floats:
            return np.array(" ".join(re.findall(f"^{name}=(.+)$", trees, re.MULTILINE)).split(), dtype=np.float64)

        leaves = numbers("num_leaves").astype(np.int64)
        model = cls(
            np.asarray(start, dtype=np.float64),
            booster.num_feature(),
            leaves,
            numbers("split_feature").astype(np.int64),
            round_down(numbers("threshold")),
            numbers("left_child").astype(np.int64),
            numbers("right_child").astype(np.int64),
            numbers("leaf_value"),
            np.array([len(leaves)], dtype=np.int64),
        )
        vars(model)["_booster"] = booster  # so that the text is not written again
        return model

    @classmethod
    def mean(cls, models: Sequence[BoostedTrees]) -> BoostedTrees:
        """Return one model of all the trees, whose logits are the mean of the models' logits."""
        joined = {
            field.name: np.concatenate([getattr(model, field.name) for model in models]) for field in fields(cls)[2:]
        }
        joined["value"] = joined["value"] / len(models)
        return cls(np.mean([model.start for model in models], axis=0), models[0].columns, **joined)

    def logits(self, features: Features) -> Floats:
        """Return the sum of the trees plus the start."""
        return predict_in_parts(self._sums, features.encoded) + self.start

    def _sums(self, x: NDArray[np.float32]) -> Floats:
        rounds = len(self.leaves) // len(self.start)
        sums = self._booster.predict(x, raw_score=True, num_threads=1, num_iteration=rounds)
        return np.asarray(sums, dtype=np.float64).reshape(len(x), -1)

    @cached_property
    def _booster(self) -> lightgbm.Booster:
        """The same trees in LightGBM, which predicts with them."""
        import lightgbm

        return lightgbm.Booster(model_str=self.lightgbm_text())

    def lightgbm_text(self) -> str:
        """Return the trees in LightGBM's text format, without the start."""
        names = " ".join(f"Column_{column}" for column in range(self.columns))
        outputs = len(self.start)
        lines = ["tree", "version=v4", f"num_class={outputs}", f"num_tree_per_iteration={outputs}", "label_index=0"]
        lines += [f"max_feature_idx={self.columns - 1}", f"feature_names={names}"]
        lines += [f"feature_infos={' '.join(['none'] * self.columns)}", ""]
        first_split = first_leaf = 0
        for number, leaves in enumerate(self.leaves.tolist()):
            splits, own_leaves = slice(first_split, first_split + leaves - 1), slice(first_leaf, first_leaf + leaves)
            lines += [f"Tree={number}", f"num_leaves={leaves}", "num_cat=0"]
            if leaves > 1:
                lines += [
                    f"split_feature={_text(self.feature[splits])}",
                    f"threshold={_text(self.threshold[splits].astype(np.float64))}",
                    f"decision_type={_text(np.zeros(leaves - 1, dtype=np.int64))}",
                    f"left_child={_text(self.left[splits])}",
                    f"right_child={_text(self.right[splits])}",
                ]
            lines += [f"leaf_value={_text(self.value[own_leaves])}", "is_linear=0", "shrinkage=1", "", ""]
            first_split, first_leaf = splits.stop, own_leaves.stop
        return "\n".join([*lines, "end of trees", ""])

    def state(self) -> ModelState:
        """Return the trees as arrays."""
        narrow = {name: getattr(self, name).astype(np.int32) for name in _INTEGERS}
        kept = {name: getattr(self, name) for name in ("start", "threshold", "value")}
        return ModelState("boosted_trees", arrays=kept | narrow)

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> BoostedTrees:
        """Return the trees of a state; every number that prediction follows is checked.

        Raises:
            ModelFileError: The arrays are no trees for this table.
        """
        leaves = state.indices("leaves", None, 1, 2**31)
        splits = int(leaves.sum()) - len(leaves)
        model = cls(
            state.array("start", "f", (expected.outputs,)).astype(np.float64),
            expected.columns,
            leaves,
            state.indices("feature", splits, 0, expected.columns),
            state.array("threshold", "f", (splits,)).astype(np.float32),
            state.indices("left", splits, -(2**31), 2**31),
            state.indices("right", splits, -(2**31), 2**31),
            state.array("value", "f", (int(leaves.sum()),)).astype(np.float64),
            state.indices("trees_of_folds", None, 0, len(leaves) + 1),
        )
        if model.trees_of_folds.sum() != len(leaves) or (model.trees_of_folds % expected.outputs).any():
            raise ModelFileError(f"{state.kind}: the trees of the folds are not {len(leaves)} in all")
        if len(leaves) % expected.outputs:
            raise ModelFileError(f"{state.kind}: {len(leaves)} trees for {expected.outputs} logits")
        model._check_children(state.kind)
        return model

    def _check_children(self, kind: str) -> None:
        """Refuse trees in which a split is not followed by later splits and by leaves of the same tree, each once."""
        splits = np.repeat(self.leaves - 1, self.leaves - 1)
        first = np.repeat(np.cumsum(self.leaves - 1) - (self.leaves - 1), self.leaves - 1)
        within = np.arange(len(splits)) - first
        first_leaf = np.repeat(np.cumsum(self.leaves) - self.leaves, self.leaves - 1)
        children = np.concatenate([self.left, self.right])
        within, splits = np.tile(within, 2), np.tile(splits, 2)
        is_leaf = children < 0
        in_range = np.where(is_leaf, ~children <= splits, (children > within) & (children < splits))
        if not in_range.all():
            raise ModelFileError(f"{kind}: a split is followed by a split or leaf that is not in its tree")
        followed = np.tile(first, 2)[~is_leaf] + children[~is_leaf]
        reached = np.tile(first_leaf, 2)[is_leaf] + ~children[is_leaf]
        if len(np.unique(followed)) != len(followed) or len(np.unique(reached)) != len(reached):
            raise ModelFileError(f"{kind}: a split or leaf is reached in two ways")


_INTEGERS = ("leaves", "feature", "left", "right", "trees_of_folds")
_OF_SPLITS = ("feature", "threshold", "left", "right")


def round_down(thresholds: Floats) -> NDArray[np.float32]:
    """Return the largest numbers in single precision that are not above the thresholds.

    Columns are in single precision, so that they are at most the one exactly where they are at most the other.

    >>> round_down(np.array([0.1, -0.1])).astype(float) <= [0.1, -0.1]
    array([ True,  True])
    """
    with np.errstate(over="ignore"):  # rounded down to the largest number
        rounded = thresholds.astype(np.float32)
    above = rounded > thresholds
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _text(numbers: NDArray[np.generic]) -> str:
    return " ".join(map(repr, numbers.tolist()))
