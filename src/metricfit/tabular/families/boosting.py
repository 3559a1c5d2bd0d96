"""Boosted trees by LightGBM: on the cross-entropy, or on the cross-entropy plus the loss of a metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from metricfit.boosting import objective, prior_logits
from metricfit.core.types import ScalarAverage
from metricfit.metrics.metric import Metric
from metricfit.tabular.families.boosted_trees import BoostedTrees, Rounds
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Family,
    FittedModel,
    Floats,
    TrainingRows,
)

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
        settings = {
            "objective": plain if self.metric is None else objective(self.metric, average=self.average),
            "num_class": 1 if classes == 2 else classes,
            "metric": plain_loss if self.metric is None else "none",
            "boost_from_average": False,
            "learning_rate": 0.05 if rows <= MANY_ROWS else 0.1,
            "verbose": -1,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed % 2**31,
        }
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
