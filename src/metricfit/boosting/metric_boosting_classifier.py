"""MetricBoostingClassifier: boosted trees that are trained for a metric, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from metricfit.boosting.eval_metrics import EvalMetric
from metricfit.boosting.library_rows import CALLS_WITH_ALL_ROWS, Floats, check_library
from metricfit.boosting.library_training import (
    LightGBMTrees,
    Loss,
    NumberedRows,
    Plan,
    TrainedTrees,
    XGBoostTrees,
    check_library_parameters,
)
from metricfit.boosting.objectives import Objective
from metricfit.boosting.start_scores import prior_logits
from metricfit.core.steps import Step
from metricfit.core.types import ScalarAverage
from metricfit.decide.estimators.positive_class import choose_positive_class, classes_of, order_of
from metricfit.decide.estimators.row_checks import checked_labels, checked_weights
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import Formula, Metric

if TYPE_CHECKING:
    from sklearn.utils import Tags

TREES: dict[str, type[LightGBMTrees] | type[XGBoostTrees]] = {"lightgbm": LightGBMTrees, "xgboost": XGBoostTrees}


class MetricBoostingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Boosted trees by LightGBM or XGBoost, trained for a metric with ``boosting.objective``.

    It starts at the prior, applies the sigmoid or the softmax to what the trees predict, and can stop early on the
    loss that it trains or on the metric. ``predict`` takes the largest probability;
    for the decision that is best for the metric, pass it to ``TunedDecisionClassifier``.

    Args:
        metric: A metric, its name or a function of Counts.
        library: "lightgbm" or "xgboost".
        strength: Weight of the metric's loss beside the cross-entropy. 0 is the cross-entropy alone.
        step: The soft decision of the metric's loss; by default Identity, so that a row counts with its probability.
        average: The average over several classes: "macro", "micro" or "weighted".
        rounds: Maximum number of rounds.
        early_stopping_rounds: Stop after this many rounds without an improvement on held-out rows; None for all rounds.
        stop_on: What early stopping follows: "loss" (cross-entropy plus the metric's loss, as in training) or "metric"
            (the metric at its best threshold).
        validation_fraction: Share of the rows that is held out for early stopping, if ``fit`` gets no ``eval_set``.
        parameters: Parameters of the library, such as ``{"learning_rate": 0.05}``.
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the
            class with fewer rows.
        n_jobs: Number of threads; None for the library's default.
        random_state: Seed of the held-out rows and of the library.

    Attributes:
        classes_: The labels, sorted.
        pos_label_: The positive label; None for more than two classes.
        booster_: The Booster of the library.
        start_: The logits of the prior.
        rounds_: The number of rounds that are used.
        history_: The value of what early stopping follows after each round, as a loss; empty without held-out rows.
        n_features_in_: The number of columns.

    Raises:
        InvalidValueError: In ``fit``, if a parameter cannot be used, the labels are of one class, or the library is
            CatBoost.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(400, 3))
        >>> y = np.where(X[:, 0] + X[:, 1] > 1.5, "fraud", "fine")
        >>> model = MetricBoostingClassifier("f1", rounds=50, n_jobs=1, random_state=0).fit(X, y)
        >>> model.pos_label_
        'fraud'
        >>> model.predict([[2.0, 2.0, 0.0], [-1.0, 0.0, 0.0]])
        array(['fraud', 'fine'], dtype='<U5')
        >>> model.predict_proba([[2.0, 2.0, 0.0]]).shape
        (1, 2)
    """

    def __init__(
        self,
        metric: str | Metric | Formula = "f1",
        *,
        library: Literal["lightgbm", "xgboost"] = "lightgbm",
        strength: float = 0.5,
        step: Step | None = None,
        average: ScalarAverage = "macro",
        rounds: int = 100,
        early_stopping_rounds: int | None = None,
        stop_on: Literal["loss", "metric"] = "loss",
        validation_fraction: float = 0.2,
        parameters: Mapping[str, Any] | None = None,
        pos_label: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.library = library
        self.strength = strength
        self.step = step
        self.average = average
        self.rounds = rounds
        self.early_stopping_rounds = early_stopping_rounds
        self.stop_on = stop_on
        self.validation_fraction = validation_fraction
        self.parameters = parameters
        self.pos_label = pos_label
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, eval_set: tuple[Any, ...] | None = None
    ) -> MetricBoostingClassifier:
        """Train the trees.

        Args:
            X: Columns of numbers, ``(n, k)``; missing values are allowed.
            y: The labels.
            sample_weight: One weight per row, at least 0. Rows of weight 0 are left out.
            eval_set: Held-out rows ``(X, y)`` or ``(X, y, sample_weight)`` to stop on.

        Returns:
            The estimator itself.

        Raises:
            InvalidValueError: If a parameter, the labels, the weights or the held-out rows cannot be used.
        """
        objective, loss = self._check_parameters()
        x = self._numbers(X, reset=True)
        labels, weight = checked_labels(self, y), checked_weights(sample_weight, x)
        check_consistent_length(x, labels)
        if weight is not None:
            x, labels, weight = x[weight > 0], labels[weight > 0], weight[weight > 0]
        self.classes_ = classes_of(labels)
        self.pos_label_ = choose_positive_class(labels, self.pos_label)
        rows = NumberedRows(x, self._class_numbers(labels), weight)
        random = check_random_state(self.random_state)
        held_out = None if eval_set is None else self._held_out(eval_set)
        if held_out is None and self.early_stopping_rounds is not None:
            rows, held_out = self._split(rows, random)
        start = prior_logits(rows.y, rows.weight, classes=len(self.classes_))
        seed = int(random.randint(2**31 - 1))
        parameters = dict(self.parameters or {})
        patience = self.early_stopping_rounds
        plan = Plan(objective, loss, start, self.rounds, patience, parameters, seed, self.n_jobs)
        self._trees = self._train(plan, rows, held_out)
        self.booster_, self.start_ = self._trees.booster, start
        self.rounds_, self.history_ = self._trees.rounds, list(self._trees.history)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return the logits.

        Args:
            X: Columns of numbers, as in ``fit``.

        Returns:
            For two classes the log-odds of ``classes_[1]``, ``(n,)``; for several one logit per class, ``(n, c)``.

        Raises:
            NotFittedError: If the estimator is not fitted.
        """
        logits = self._logits(X)
        if len(self.classes_) > 2:
            return logits
        return logits[:, 0] if self.pos_label_ == self.classes_.tolist()[1] else -logits[:, 0]

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities: the sigmoid or the softmax of the logits.

        Args:
            X: Columns of numbers, as in ``fit``.

        Returns:
            One column per class, in the order of ``classes_``.

        Raises:
            NotFittedError: If the estimator is not fitted.
        """
        logits = self._logits(X)
        if len(self.classes_) > 2:
            return np.asarray(softmax(logits, axis=1))
        probabilities = np.column_stack([expit(-logits[:, 0]), expit(logits[:, 0])])
        return probabilities[:, order_of(self.classes_, self.pos_label_)]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels of the largest probabilities; of equal ones the first in ``classes_``.

        Args:
            X: Columns of numbers, as in ``fit``.

        Returns:
            One label per row.

        Raises:
            NotFittedError: If the estimator is not fitted.
        """
        scores = self.decision_function(X)
        return np.asarray(self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_parameters(self) -> tuple[Objective, Loss]:
        made = Objective(
            self.metric, self.library, strength=self.strength, step=self.step, average=self.average
        )  # CatBoost is refused with the reason
        check_library(self.library, CALLS_WITH_ALL_ROWS)
        for name in ("rounds", "early_stopping_rounds", "n_jobs"):
            value = getattr(self, name)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if value is None and name != "rounds":
                continue
            if not whole or not (value >= 1 or (name == "n_jobs" and value == -1)):
                raise InvalidValueError(f"{name} is a whole number of at least 1; got {quote(value)}")
        if not 0 < self.validation_fraction < 1:
            raise InvalidValueError(f"validation_fraction is between 0 and 1; got {quote(self.validation_fraction)}")
        check_library_parameters(self.parameters or {})
        if self.stop_on == "loss":
            return made, made.loss
        if self.stop_on == "metric":
            return made, EvalMetric(self.metric, "xgboost", average=self.average)
        raise InvalidValueError(f"stop_on is 'loss' or 'metric'; got {quote(self.stop_on)}")

    def _train(self, plan: Plan, rows: NumberedRows, held_out: NumberedRows | None) -> TrainedTrees:
        trees = TREES[self.library]
        if not (rows.x != rows.x[:1]).any():
            # No tree can split anything, and LightGBM ends in an error beside an objective of ours.
            return trees(None, plan.start, 0, ())
        return trees.train(plan, rows, held_out)

    def _numbers(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")

    def _logits(self, X: Any) -> Floats:
        check_is_fitted(self)
        return self._trees.logits(self._numbers(X, reset=False))

    def _class_numbers(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise InvalidValueError(f"eval_set has the label {quote(labels[unknown].tolist()[0])}, which y has not")
        return np.argsort(order_of(self.classes_, self.pos_label_))[np.searchsorted(self.classes_, labels)]

    def _held_out(self, eval_set: tuple[Any, ...]) -> NumberedRows:
        if not isinstance(eval_set, (tuple, list)) or len(eval_set) not in (2, 3) or isinstance(eval_set[0], tuple):
            raise InvalidValueError("eval_set is (X, y) or (X, y, sample_weight)")
        x, labels = self._numbers(eval_set[0], reset=False), checked_labels(self, eval_set[1])
        check_consistent_length(x, labels)
        weight = checked_weights(eval_set[2], x) if len(eval_set) == 3 else None
        return NumberedRows(x, self._class_numbers(labels), weight)

    def _split(self, rows: NumberedRows, random: np.random.RandomState) -> tuple[NumberedRows, NumberedRows]:
        try:
            parts = train_test_split(
                np.arange(len(rows.y)), test_size=self.validation_fraction, stratify=rows.y, random_state=random
            )
        except ValueError as error:
            raise InvalidValueError(
                f"the rows are too few to hold some out for early stopping ({error}): pass eval_set=(X, y) to fit, or "
                "set early_stopping_rounds=None"
            ) from None
        train, held_out = (
            NumberedRows(rows.x[at], rows.y[at], None if rows.weight is None else rows.weight[at]) for at in parts
        )
        return train, held_out
