"""Training by LightGBM or XGBoost with an objective that is a function, from the prior, and logits afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricfit._extras import explain_missing
from metricfit.boosting.library_rows import Floats, Integers
from metricfit.boosting.objectives import Objective
from metricfit.errors import InvalidValueError

#: A function of labels, scores and weights; lower is better.
Loss = Callable[[Any, Any, Any], float]
INSTALL = "metricfit[boosting]"

#: Parameters of the libraries that the estimator sets itself, with what to use instead.
RESERVED = {
    **dict.fromkeys(("objective", "application", "loss", "obj"), "metric= and strength="),
    **dict.fromkeys(("metric", "metrics", "metric_types", "eval_metric", "custom_metric"), "stop_on="),
    **dict.fromkeys(("num_class", "num_classes"), "the labels, which say it"),
    **dict.fromkeys(("base_score", "init_score", "boost_from_average"), "nothing: boosting starts at the prior"),
    **dict.fromkeys(("scale_pos_weight", "is_unbalance", "unbalance"), "sample_weight of fit"),
    **dict.fromkeys(("num_iterations", "num_boost_round", "n_estimators", "num_rounds", "num_trees"), "rounds="),
    **dict.fromkeys(("early_stopping_round", "early_stopping_rounds", "early_stopping"), "early_stopping_rounds="),
    **dict.fromkeys(("num_threads", "nthread", "n_jobs", "num_thread"), "n_jobs="),
    **dict.fromkeys(("seed", "random_state", "random_seed"), "random_state="),
}


@dataclass(frozen=True)
class NumberedRows:
    """Rows with class numbers.

    Attributes:
        x: Columns of numbers.
        y: Class numbers.
        weight: One weight per row, or None.
    """

    x: Floats
    y: Integers
    weight: Floats | None


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes:
        objective: The objective.
        loss: What early stopping minimises.
        start: The logits of the prior, ``(1,)`` or ``(c,)``.
        rounds: Maximum number of rounds.
        patience: Rounds without a lower loss after which training stops; None for all rounds.
        parameters: Parameters of the library.
        seed: Seed of the library.
        threads: Number of threads, or None for the library's default.
    """

    objective: Objective
    loss: Loss
    start: Floats
    rounds: int
    patience: int | None
    parameters: Mapping[str, Any]
    seed: int
    threads: int | None

    def start_of(self, rows: int) -> Floats:
        """Return the start of this many rows, in the shape that libraries take."""
        return np.full(rows, self.start[0]) if len(self.start) == 1 else np.tile(self.start, (rows, 1))


@dataclass(frozen=True)
class TrainedTrees(ABC):
    """Trees of a library.

    Attributes:
        booster: The Booster of the library.
        start: The logits of the prior.
        rounds: The rounds that are used: the best one for early stopping, otherwise all.
        history: The loss of the held-out rows after each round; empty without held-out rows.
    """

    booster: Any
    start: Floats
    rounds: int
    history: tuple[float, ...]

    @abstractmethod
    def trees_of(self, x: Any) -> Floats:
        """Return the sum of the trees' values, without the start."""

    def logits(self, x: Any) -> Floats:
        """Return the logits ``(n, 1)`` of two classes, or ``(n, c)`` of several."""
        if self.rounds == 0:
            return np.tile(self.start, (x.shape[0], 1))
        return np.asarray(self.start + np.asarray(self.trees_of(x), dtype=np.float64).reshape(x.shape[0], -1))


class LightGBMTrees(TrainedTrees):
    """Trees of LightGBM."""

    def trees_of(self, x: Any) -> Floats:
        """Return the sum of the trees' values; LightGBM leaves the start out."""
        return np.asarray(self.booster.predict(x, raw_score=True, num_iteration=self.rounds))

    @classmethod
    def train(cls, plan: Plan, train: NumberedRows, held_out: NumberedRows | None) -> LightGBMTrees:
        """Train, and stop early if there are held-out rows and patience."""
        with explain_missing("MetricBoostingClassifier(library='lightgbm')", ("lightgbm",), INSTALL):
            import lightgbm

        threads = {} if plan.threads is None else {"num_threads": plan.threads}
        # Columns that small tables cannot split are kept: without any column LightGBM ends in an error.
        of_data = {"verbose": -1, "feature_pre_filter": False} | threads | dict(plan.parameters)

        def dataset(rows: NumberedRows, reference: Any = None) -> Any:
            start = plan.start_of(len(rows.y))
            return lightgbm.Dataset(
                rows.x, rows.y, weight=rows.weight, init_score=start, reference=reference, params=of_data
            )

        def evaluate(scores: Any, rows: Any) -> tuple[str, float, bool]:
            return "loss", plan.loss(rows.get_label(), scores, rows.get_weight()), False

        history: dict[str, Any] = {}
        callbacks = [] if held_out is None else [lightgbm.record_evaluation(history)]
        if held_out is not None and plan.patience is not None:
            callbacks.append(lightgbm.early_stopping(plan.patience, verbose=False))
        own = {"objective": plan.objective, "metric": "none", "num_class": len(plan.start), "seed": plan.seed}
        data = dataset(train)
        booster = lightgbm.train(
            of_data | own,
            data,
            plan.rounds,
            valid_sets=None if held_out is None else [dataset(held_out, data)],
            feval=None if held_out is None else evaluate,
            callbacks=callbacks,
        )
        losses = tuple(history["valid_0"]["loss"]) if history else ()
        best = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
        return cls(booster, plan.start, best, losses)


class XGBoostTrees(TrainedTrees):
    """Trees of XGBoost."""

    def trees_of(self, x: Any) -> Floats:
        """Return the sum of the trees' values."""
        import xgboost

        rows = xgboost.DMatrix(x, base_margin=np.zeros((x.shape[0], len(self.start))))
        return np.asarray(self.booster.predict(rows, output_margin=True, iteration_range=(0, self.rounds)))

    @classmethod
    def train(cls, plan: Plan, train: NumberedRows, held_out: NumberedRows | None) -> XGBoostTrees:
        """Train, and stop early if there are held-out rows and patience."""
        with explain_missing("MetricBoostingClassifier(library='xgboost')", ("xgboost",), INSTALL):
            import xgboost

        def matrix(rows: NumberedRows) -> Any:
            start = plan.start_of(len(rows.y))
            return xgboost.DMatrix(rows.x, rows.y, weight=rows.weight, base_margin=start, nthread=plan.threads)

        def evaluate(scores: Any, rows: Any) -> tuple[str, float]:
            return "loss", plan.loss(rows.get_label(), scores, rows.get_weight())

        own = {"seed": plan.seed, "disable_default_eval_metric": True}
        own |= {} if plan.threads is None else {"nthread": plan.threads}
        own |= {} if len(plan.start) == 1 else {"num_class": len(plan.start)}
        history: dict[str, Any] = {}
        booster = xgboost.train(
            dict(plan.parameters) | own,
            matrix(train),
            plan.rounds,
            obj=plan.objective,
            custom_metric=None if held_out is None else evaluate,
            evals=[] if held_out is None else [(matrix(held_out), "held_out")],
            early_stopping_rounds=None if held_out is None else plan.patience,
            evals_result=history,
            verbose_eval=False,
        )
        losses = tuple(history["held_out"]["loss"]) if history else ()
        stopped = held_out is not None and plan.patience is not None
        return cls(booster, plan.start, booster.best_iteration + 1 if stopped else plan.rounds, losses)


def check_library_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise an error for parameters of the library that the estimator sets itself."""
    for name in parameters:
        if name in RESERVED:
            raise InvalidValueError(f"parameters has {name!r}, which the estimator sets: use {RESERVED[name]}")
