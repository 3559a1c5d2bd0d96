"""Boosted trees by LightGBM: on the cross-entropy, or on the cross-entropy plus the loss of a metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np

from metricfit.boosting import objective
from metricfit.core.types import ScalarAverage
from metricfit.metrics.metric import Metric
from metricfit.tabular.families.boosted_trees import BoostedTrees
from metricfit.tabular.families.family import (
    Deadline,
    Family,
    FittedModel,
    Floats,
    TrainingRows,
    prior_logits,
)

MAXIMUM_ROUNDS = 1000
ROUNDS_WITHOUT_PROGRESS = 30
#: From here on the learning rate is doubled, which halves the time at the same cross-entropy.
MANY_ROWS = 20_000


class Boosting(Family):
    """Small boosted trees, stopped where the cross-entropy of the held-out fold is lowest.

    Args:
        metric: If given, the trees are trained for this metric as well, and the family is called "boosting_metric".
        average: The metric's average over several classes.
        parameters: Parameters of LightGBM that replace the usual ones.
    """

    def __init__(
        self, metric: Metric | None = None, average: ScalarAverage = "macro", parameters: dict[str, Any] | None = None
    ) -> None:
        self.name = "boosting" if metric is None else "boosting_metric"
        self.metric, self.average = metric, average
        self.parameters = parameters or {}

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Add trees until the cross-entropy of the held-out fold has not fallen for 30 rounds."""
        start = prior_logits(train.y, train.weight, train.classes)
        data = self._dataset(train, start)
        trees = lightgbm.train(
            self._settings(train, seed),
            data,
            num_boost_round=MAXIMUM_ROUNDS,
            valid_sets=[self._dataset(held_out, start, reference=data)],
            feval=None if self.metric is None else _cross_entropy,
            callbacks=[lightgbm.early_stopping(ROUNDS_WITHOUT_PROGRESS, verbose=False), lambda _: deadline.check()],
        )
        return BoostedTrees.from_lightgbm(trees, start)

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
            params={"verbose": -1, "num_threads": 1},
            free_raw_data=True,
        )

    def _settings(self, rows: TrainingRows, seed: int) -> dict[str, Any]:
        plain, plain_loss = ("binary", "binary_logloss") if rows.classes == 2 else ("multiclass", "multi_logloss")
        settings = {
            "objective": plain if self.metric is None else objective(self.metric, average=self.average),
            "num_class": rows.outputs,
            "metric": plain_loss if self.metric is None else "none",
            "boost_from_average": False,
            "learning_rate": 0.05 if len(rows) <= MANY_ROWS else 0.1,
            "num_leaves": 15,
            "min_child_samples": 10,
            "feature_fraction": 0.6,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "lambda_l2": 1.0,
            "verbose": -1,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed % 2**31,
        }
        return settings | self.parameters


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
