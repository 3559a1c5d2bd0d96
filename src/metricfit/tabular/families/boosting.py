"""Boosted trees by LightGBM, on the cross-entropy or on the cross-entropy plus the loss of a metric.

The trees are kept as arrays: merged over folds, predicted by LightGBM, saved and restored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from metricfit.boosting.library_rows import prior_logits
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, ModelFileError
from metricfit.metrics.metric import Metric
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Family,
    Features,
    FittedModel,
    Floats,
    Integers,
    TrainingRows,
)
from metricfit.tabular.families.states import Expected, ModelState, predict_in_parts

if TYPE_CHECKING:
    import lightgbm

MAXIMUM_ROUNDS = 3000
#: From here on the learning rate is doubled, which halves the time at the same cross-entropy.
MANY_ROWS = 20_000
#: Bits of LightGBM's decision_type: a categorical split, and zeros that count as missing.
CATEGORICAL, ZERO_IS_MISSING = 1, 4


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

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Return the best candidate on the held-out rows."""
        return self.fit_candidates(train, held_out, seed=seed, deadline=deadline).best

    def fit_candidates(
        self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline
    ) -> Candidates:
        """Add trees until the cross-entropy of the held-out fold has not fallen for some rounds."""
        if self.metric is not None and not (train.x != train.x[:1]).any():
            # Without a column to split, LightGBM ends in an error beside an objective of ours, and not beside its own.
            return Boosting(self.name, self.trees).fit_candidates(train, held_out, seed=seed, deadline=deadline)
        start = prior_logits(train.y, train.weight, classes=train.classes)
        data = self._dataset(train, start)
        held_out_data = self._dataset(held_out, start, reference=data)
        settings = self.settings(len(train), train.classes, seed)
        return self.grow(data, held_out_data, start, settings, lambda _: deadline.check())

    def grow(
        self,
        data: lightgbm.Dataset,
        held_out: lightgbm.Dataset,
        start: Floats,
        settings: dict[str, Any],
        after_each_round: Callable[[Any], None],
    ) -> Candidates:
        """Grow trees on datasets of LightGBM.

        Args:
            data: The rows to learn from.
            held_out: The rows whose cross-entropy says when to stop.
            start: The logits before any tree, which are the initial scores of both.
            settings: Parameters of LightGBM.
            after_each_round: A callback of LightGBM.

        Returns:
            The trees after each round.
        """
        import lightgbm

        recorder = _Recorder()
        trees = lightgbm.train(
            settings,
            data,
            num_boost_round=MAXIMUM_ROUNDS,
            valid_sets=[held_out],
            feval=None if self.metric is None else _cross_entropy,
            callbacks=[recorder, lightgbm.early_stopping(self.trees.patience, verbose=False), after_each_round],
            keep_training_booster=True,  # otherwise it is written as text and read again, without the later trees
        )
        weight = held_out.get_weight()
        counted = float(held_out.num_data() if weight is None else np.asarray(weight).sum())
        losses = np.array(recorder.losses) * counted
        return Candidates(Rounds(BoostedTrees.from_lightgbm(trees, start), len(losses)), losses)

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


class _Recorder:
    """A callback of LightGBM that keeps the cross-entropy after each round, before others may end the training."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.order = -1000

    def __call__(self, round_: Any) -> None:
        """Keep the cross-entropy."""
        self.losses.append(float(round_.evaluation_result_list[0][2]))


def _cross_entropy(scores: Floats, rows: lightgbm.Dataset) -> tuple[str, float, bool]:
    """Return the mean cross-entropy of raw scores, as LightGBM expects an evaluation.

    LightGBM passes raw scores beside an objective that is a function, and probabilities beside its own objectives.
    """
    y = np.asarray(rows.get_label(), dtype=np.int64)
    weight = rows.get_weight()
    if scores.ndim == 1:
        losses = np.logaddexp(0.0, np.where(y == 1, -scores, scores))
    else:
        highest = scores.max(axis=1)
        normalisers = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1))
        losses = normalisers - scores[np.arange(len(y)), y]
    return "cross_entropy", float(np.average(losses, weights=None if weight is None else np.asarray(weight))), False


@dataclass(frozen=True)
class BoostedTrees:
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
        last = int(self.trees_of_folds[: fold + 1].sum())
        trees = self._trees(last - int(self.trees_of_folds[fold]), last)
        return replace(trees, value=trees.value * self.folds)

    def first(self, rounds: int) -> BoostedTrees:
        """Return the trees of the first rounds, of one fold."""
        return self._trees(0, min(rounds * len(self.start), len(self.leaves)))

    def _trees(self, first: int, end: int) -> BoostedTrees:
        kept = np.zeros(len(self.leaves), dtype=bool)
        kept[first:end] = True
        splits, leaves = np.repeat(kept, self.leaves - 1), np.repeat(kept, self.leaves)
        return BoostedTrees(
            self.start,
            self.columns,
            self.leaves[kept],
            self.feature[splits],
            self.threshold[splits],
            self.left[splits],
            self.right[splits],
            self.value[leaves],
            np.array([end - first], dtype=np.int64),
        )

    @classmethod
    def from_lightgbm(cls, booster: lightgbm.Booster, start: Floats) -> BoostedTrees:
        """Take all trees from LightGBM's text, with those after the best iteration.

        Raises:
            InvalidValueError: The trees have categorical splits, missing values or linear leaves.
        """
        numbers: dict[str, list[Floats]] = {name: [np.zeros(0)] for name in _LIGHTGBM_NAMES}
        leaves = []
        for block in booster.model_to_string(num_iteration=booster.current_iteration()).split("\nTree=")[1:]:
            lines = dict(line.split("=", 1) for line in block.split("\n\n")[0].splitlines()[1:])
            leaves.append(int(lines["num_leaves"]))
            plain = lines["num_cat"] == "0" and lines.get("is_linear", "0") == "0"
            kinds = [int(kind) for kind in lines.get("decision_type", "").split()]
            if not plain or any(kind & (CATEGORICAL | ZERO_IS_MISSING) for kind in kinds):
                raise InvalidValueError(
                    "trees with categorical columns, missing zeros or linear leaves are not supported"
                )
            for name, parts in numbers.items():
                if name == "leaf_value" or leaves[-1] > 1:
                    parts.append(np.array(lines[name].split(), dtype=np.float64))
        feature, threshold, left, right, value = (np.concatenate(parts) for parts in numbers.values())
        return cls(
            np.asarray(start, dtype=np.float64),
            booster.num_feature(),
            np.array(leaves, dtype=np.int64),
            feature.astype(np.int64),
            round_down(threshold),
            left.astype(np.int64),
            right.astype(np.int64),
            value,
            np.array([len(leaves)], dtype=np.int64),
        )

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
        sums = self._booster.predict(x, raw_score=True, num_threads=1)
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


@dataclass(frozen=True)
class Rounds(Sequence[BoostedTrees]):
    """The trees after each round of boosting.

    Attributes:
        trees: The trees of all rounds, of one fold.
        number: The number of rounds.
    """

    trees: BoostedTrees
    number: int

    @overload
    def __getitem__(self, at: int) -> BoostedTrees: ...

    @overload
    def __getitem__(self, at: slice) -> list[BoostedTrees]: ...

    def __getitem__(self, at: int | slice) -> BoostedTrees | list[BoostedTrees]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(self.number))]
        return self.trees.first(range(self.number)[at] + 1)

    def __len__(self) -> int:
        return self.number


_INTEGERS = ("leaves", "feature", "left", "right", "trees_of_folds")
_LIGHTGBM_NAMES = ("split_feature", "threshold", "left_child", "right_child", "leaf_value")


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
