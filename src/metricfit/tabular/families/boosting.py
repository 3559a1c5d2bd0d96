"""Boosted trees by LightGBM, on the cross-entropy or on the cross-entropy plus the loss of a metric.

A fitted model holds LightGBM's boosters. It is saved as LightGBM's text, which is checked before LightGBM reads it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricfit.boosting.functions import prior_logits
from metricfit.core.arrays import Floats, Integers
from metricfit.core.types import ScalarAverage
from metricfit.errors import ModelFileError
from metricfit.metrics.metric import Metric
from metricfit.tabular.families.arithmetic import check_indices, check_shape, cross_entropy, predict_in_parts
from metricfit.tabular.families.family import Candidates, Deadline, Family, Features, FittedModel, TrainingRows

if TYPE_CHECKING:
    import lightgbm

    from metricfit.tabular.storage import Folder

log = logging.getLogger("metricfit.tabular")

MAXIMUM_ROUNDS = 3000
#: Bins per column, LightGBM's default. A trained booster keeps its rows and histograms: about 5 MB on tables of few
#: rows with at most this many bins, where the booster is kept. Otherwise it is read again from its text, without them.
#: For small trees of several classes that would take as long as training.
BINS, MOST_BINS = 255, 10_000
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
#: Smaller trees, each grown on random parts of the rows and columns. Their errors differ from the usual trees'.
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
        metric: If given, the trees are trained for the cross-entropy plus the loss of this metric.
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
            # Without a column to split, LightGBM fails if the objective is a function, but not with its own objective.
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
            """Return the cross-entropy; LightGBM passes raw scores if the objective is a function."""
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
        columns = data.num_feature()
        if data.num_data() > MANY_ROWS or columns * min(BINS, data.num_data()) > MOST_BINS:
            trees = read_booster(_tree_text(trees, -1), columns, len(start))
        return Candidates(partial(BoostedTrees.first_rounds, trees, start), np.array(losses) * counted)

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Put the trees of all folds into one model."""
        return BoostedTrees.joined(models)

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
            from metricfit.boosting import objective  # the functions for LightGBM are not needed otherwise

            settings |= {"objective": objective(self.metric, average=self.average), "metric": "none"}
        return settings | dict(self.trees.parameters)


@dataclass(frozen=True)
class BoostedTrees(FittedModel):
    """The boosters of one or several folds, whose logits are averaged.

    Attributes:
        starts: The logits before any tree, ``(folds, outputs)``.
        boosters: The trees of each fold.
        rounds: The rounds of each fold that are used, from the first one on.
    """

    starts: Floats
    boosters: tuple[lightgbm.Booster, ...]
    rounds: tuple[int, ...]

    @classmethod
    def first_rounds(cls, booster: lightgbm.Booster, start: Floats, last: int) -> BoostedTrees:
        """Return the trees up to the round with this number, counted from 0."""
        return cls(np.asarray(start, dtype=np.float64)[None], (booster,), (last + 1,))

    @classmethod
    def joined(cls, models: Sequence[FittedModel]) -> BoostedTrees:
        """Return the trees of all folds as one model."""
        trees = [model for model in models if isinstance(model, BoostedTrees)]
        boosters = tuple(booster for model in trees for booster in model.boosters)
        rounds = tuple(number for model in trees for number in model.rounds)
        return cls(np.concatenate([model.starts for model in trees]), boosters, rounds)

    @property
    def folds(self) -> int:
        """The number of folds."""
        return len(self.boosters)

    def of_fold(self, fold: int) -> BoostedTrees:
        """Return the trees of one fold."""
        part = slice(fold, fold + 1)
        return BoostedTrees(self.starts[part], self.boosters[part], self.rounds[part])

    def logits(self, features: Features) -> Floats:
        """Return the mean over folds of the sum of the trees plus the start."""
        return predict_in_parts(self._sums, features.encoded) + self.starts.mean(axis=0)

    def _sums(self, x: NDArray[np.float32]) -> Floats:
        sums = [
            booster.predict(x, raw_score=True, num_threads=1, num_iteration=rounds)
            for booster, rounds in zip(self.boosters, self.rounds, strict=True)
        ]
        return np.mean(sums, axis=0, dtype=np.float64).reshape(len(x), -1)

    def stored(self) -> StoredTrees:
        """Return the starts, and the trees in LightGBM's text format."""
        texts = list(map(_tree_text, self.boosters, self.rounds))
        text = np.frombuffer("".join(texts).encode(), np.uint8).copy()
        return StoredTrees(self.starts, np.cumsum([len(text) for text in texts]), text)


@dataclass(frozen=True)
class StoredTrees:
    """Boosted trees in a folder.

    Attributes:
        starts: The logits before any tree, ``(folds, outputs)``.
        ends: Where the text of each fold ends.
        text: The texts of all folds.
    """

    starts: Floats
    ends: Integers
    text: NDArray[np.uint8]

    def restored(self, folder: Folder) -> BoostedTrees:
        """Return the trees; every number that prediction follows is checked.

        Raises:
            ModelFileError: The text holds no trees for this table.
        """
        check_shape("starts", self.starts, (None, folder.outputs))
        check_shape("text", self.text, (None,))
        check_indices("ends", self.ends, len(self.starts), 1, len(self.text) + 1)
        ends = self.ends
        if not len(ends) or (np.diff(ends, prepend=0) < 1).any() or ends[-1] != len(self.text):
            raise ModelFileError("text and ends do not hold one text per fold")
        boosters = []
        for text in np.split(self.text, ends[:-1]):
            trees = text.tobytes().decode("ascii", "replace")
            _check_trees(trees, folder.columns, folder.outputs)
            boosters.append(read_booster(trees, folder.columns, folder.outputs))
        return BoostedTrees(self.starts, tuple(boosters), tuple(booster.current_iteration() for booster in boosters))


def _list_of(number: str) -> str:
    return f"((?:{number}(?: {number})*)?)"


_WHOLE, _REAL = r"-?\d{1,9}", r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
#: The lines of a tree that are stored, in LightGBM's order. Other lines do not matter for predictions.
_LINES = {
    "Tree": r"\d{1,9}",
    "num_leaves": r"(\d{1,9})",
    "num_cat": "0",
    "split_feature": _list_of(_WHOLE),
    "threshold": _list_of(_REAL),
    "decision_type": _list_of(_WHOLE),
    "left_child": _list_of(_WHOLE),
    "right_child": _list_of(_WHOLE),
    "leaf_value": _list_of(_REAL),
    "is_linear": "0",
    "shrinkage": _REAL,
}
_TREE = re.compile("".join(f"{name}={value}\n" for name, value in _LINES.items()) + "\n\n")


def _tree_text(booster: lightgbm.Booster, rounds: int) -> str:
    """Return the trees of the first rounds, or of all for -1, in LightGBM's format without lines of no use here."""
    text = booster.model_to_string(num_iteration=rounds)
    lines = text[text.index("Tree=0") : text.index("end of trees")].split("\n")
    return "\n".join(line for line in lines if not line or line.partition("=")[0] in _LINES)


def read_booster(trees: str, columns: int, outputs: int) -> lightgbm.Booster:
    """Return the booster that has these trees."""
    import lightgbm

    header = {
        "version": "v4",
        "num_class": outputs,
        "num_tree_per_iteration": outputs,
        "label_index": 0,
        "max_feature_idx": columns - 1,
        "feature_names": " ".join(f"Column_{column}" for column in range(columns)),
        "feature_infos": " ".join(["none"] * columns),
    }
    lines = "".join(f"{name}={value}\n" for name, value in header.items())
    return lightgbm.Booster(model_str=f"tree\n{lines}\n{trees}end of trees\n")


def _check_trees(text: str, columns_of_table: int, outputs: int) -> None:
    """Refuse text that would lead LightGBM out of its memory or never to a leaf.

    Raises:
        ModelFileError: The text holds lines that no tree has, a split of a column that does not exist, or a
            split that is not followed by later splits and by leaves of its tree, each once.
    """
    trees, end = [], 0
    while tree := _TREE.match(text, end):
        trees.append(tree.groups())
        end = tree.end()
    if end != len(text) or not trees or len(trees) % outputs:
        raise ModelFileError(f"the text does not hold trees for {outputs} logits")
    numbers, *lists = zip(*trees, strict=True)
    leaves = np.array(numbers, dtype=np.int64)
    counts = [np.array([len(values.split()) for values in part]) for part in lists]
    if not all(np.array_equal(count, leaves - 1) for count in counts[:-1]) or not np.array_equal(counts[-1], leaves):
        raise ModelFileError("a tree has more or fewer numbers than splits and leaves")
    columns, thresholds, types, left, right, values = (
        np.array(" ".join(part).split(), dtype=np.float64) for part in lists
    )
    if not (np.isfinite(thresholds).all() and np.isfinite(values).all()):
        raise ModelFileError("the text has numbers that are not finite")
    if not ((columns >= 0) & (columns < columns_of_table)).all():
        raise ModelFileError("a tree splits a column that does not exist")
    if not np.isin(types, (0, 2)).all():
        raise ModelFileError("a split is not one of numbers")
    _check_children(leaves, left.astype(np.int64), right.astype(np.int64))


def _check_children(leaves: Integers, left: Integers, right: Integers) -> None:
    """Refuse trees in which a split is not followed by later splits and by leaves of the same tree, each once."""
    splits = np.repeat(leaves - 1, leaves - 1)
    first = np.repeat(np.cumsum(leaves - 1) - (leaves - 1), leaves - 1)
    within = np.arange(len(splits)) - first
    first_leaf = np.repeat(np.cumsum(leaves) - leaves, leaves - 1)
    children = np.concatenate([left, right])
    within, splits = np.tile(within, 2), np.tile(splits, 2)
    is_leaf = children < 0
    in_range = np.where(is_leaf, ~children <= splits, (children > within) & (children < splits))
    if not in_range.all():
        raise ModelFileError("a split is followed by a split or leaf that is not in its tree")
    followed = np.tile(first, 2)[~is_leaf] + children[~is_leaf]
    reached = np.tile(first_leaf, 2)[is_leaf] + ~children[is_leaf]
    if len(np.unique(followed)) != len(followed) or len(np.unique(reached)) != len(reached):
        raise ModelFileError("a split or leaf is reached in two ways")
