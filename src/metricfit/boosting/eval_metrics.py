"""Metrics as evaluations of boosting libraries, at the best threshold, so that early stopping follows the metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.boosting.library_rows import (
    CALLS_WITH_ALL_ROWS,
    Library,
    LibraryRows,
    check_library,
    check_rows,
    is_rows_object,
    read_rows,
)
from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.curves import best_threshold
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts

#: What XGBoost maximises by the beginning of the name, which would turn a loss around.
#: Names of ours begin with another word.
XGBOOST_PREFIX = "loss_of_"


def eval_metric(
    metric: str | Metric | Formula,
    library: Library = "lightgbm",
    *,
    threshold: float | None = None,
    average: ScalarAverage = "macro",
) -> EvalMetric | CatBoostEvalMetric:
    """Make an evaluation that early stopping can follow: the metric at its exact best threshold on the held-out rows.

    The best threshold is found anew in every round, by one sort, so that stopping does not depend on how far the
    scores have moved. Several classes are decided by their largest score. The value is optimistic, because the
    threshold is chosen on the rows that it is measured on; choose the final threshold on other rows.

    Args:
        metric: A metric, its name or a function of Counts.
        library: "lightgbm", "xgboost" or "catboost".
        threshold: A fixed threshold of two classes' scores, in place of the best one. Scores are probabilities beside
            the own objectives of LightGBM and XGBoost, and logits beside an objective that is a function and in
            CatBoost: the probability 0.5 is the logit 0.
        average: The average over several classes.

    Returns:
        For LightGBM a function: the ``feval`` of ``lightgbm.train``, and ``eval_metric`` in the ``fit`` of its
        estimators. It tells LightGBM whether higher is better. For XGBoost a function: the ``custom_metric`` of
        ``xgboost.train``, and the ``eval_metric`` of its estimators. XGBoost minimises functions, so this one gives the
        metric's loss, 1 - value where higher is better. For CatBoost an object: the ``eval_metric`` of its estimators.

    Raises:
        InvalidValueError: If the library is not known, or the metric, the threshold or the average cannot be used.

    Example:
        >>> labels, scores = np.array([1, 0, 1, 0]), np.array([0.9, 0.6, 0.4, 0.1])
        >>> eval_metric("f1", "lightgbm")(labels, scores)
        ('f1', 0.8, True)
        >>> round(eval_metric("f1", "xgboost")(labels, scores), 6)
        0.2
    """
    check_library(library, (*CALLS_WITH_ALL_ROWS, "catboost"))
    made = CatBoostEvalMetric if library == "catboost" else EvalMetric
    return made(metric, library, threshold=threshold, average=average)


class MetricValue:
    """The value of a metric on rows, at the best threshold or at a fixed one.

    Args:
        metric: A metric, its name or a function of Counts.
        library: The library that calls it.
        threshold: A fixed threshold, or None for the best.
        average: The average over several classes.
    """

    def __init__(
        self,
        metric: str | Metric | Formula,
        library: Library,
        *,
        threshold: float | None = None,
        average: ScalarAverage = "macro",
    ) -> None:
        self.metric, self.library, self.average = check_of_counts(get_metric(metric)), library, average
        check_average(self.metric, average)
        if average is None:
            raise InvalidValueError("early stopping needs one number: average is 'macro', 'micro' or 'weighted'")
        if threshold is not None and not np.isfinite(threshold):
            raise InvalidValueError(f"threshold is a number, or None for the best one; got {quote(threshold)}")
        self.threshold = threshold

    def __repr__(self) -> str:
        return f"eval_metric({self.metric.name!r}, {self.library!r})"

    def value(self, rows: LibraryRows) -> float:
        """Return the value of the metric on these rows."""
        if rows.scores.ndim == 2:
            return self._value_of_classes(rows)
        if self.threshold is None:
            return best_threshold(rows.scores, rows.label, self.metric, weight=rows.weight).value
        return float(self.metric(self._count(rows, rows.scores >= self.threshold, None)))

    def _value_of_classes(self, rows: LibraryRows) -> float:
        if self.threshold is not None:
            raise InvalidValueError("threshold is for two classes: several are decided by their largest score")
        counts = self._count(rows, rows.scores.argmax(axis=1), rows.scores.shape[1])
        return float(averaged(self.metric, counts, self.average))

    def _count(self, rows: LibraryRows, decided: NDArray[Any], classes: int | None) -> Counts:
        weight = None if rows.weight is None else torch.from_numpy(rows.weight)
        predicted, label = torch.from_numpy(decided.astype(np.int64)), torch.from_numpy(rows.label)
        matrix = self.metric.needs_matrix
        return count_labels(predicted, label, num_classes=classes, weight=weight, matrix=matrix)


class EvalMetric(MetricValue):
    """An evaluation for LightGBM or XGBoost; see ``eval_metric``."""

    @property
    def __name__(self) -> str:
        """The name in the library's log; XGBoost splits its log at blanks and colons."""
        name = self.metric.name
        return XGBOOST_PREFIX + name.replace(" ", "").replace(":", "") if self.library == "xgboost" else name

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> Any:
        """Return the evaluation in the form that the library expects from this way of calling.

        Args:
            first: The scores, or the labels if ``second`` is the scores.
            second: A Dataset of LightGBM, a DMatrix of XGBoost, or the scores.
            sample_weight: Weights of the rows, if ``second`` is the scores.

        Returns:
            For LightGBM the name, the value and whether higher is better; for ``xgboost.train`` the name and the loss;
            for XGBoost's estimators the loss.

        Raises:
            InvalidTypeError: If the rows are those of another library.
            InvalidValueError: If the labels are not class numbers, or scores, labels and weights do not fit.
        """
        value = self.value(read_rows(first, second, sample_weight, self.library))
        if self.library == "lightgbm":
            return self.__name__, value, not self.metric.minimize
        loss = value if self.metric.minimize else 1 - value
        return (self.__name__, loss) if is_rows_object(second) else loss


class CatBoostEvalMetric(MetricValue):
    """An evaluation for CatBoost; see ``eval_metric``."""

    def is_max_optimal(self) -> bool:
        """Return whether higher is better."""
        return not self.metric.minimize

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """Return the value, with the weight 1.

        Args:
            approxes: The logits: one array for two classes, one per class for several.
            target: The labels.
            weight: Weights of the rows, or None.

        Returns:
            The value and the number 1.

        Raises:
            InvalidValueError: If the labels are not class numbers.
        """
        scores = np.stack([np.asarray(scores, dtype=np.float64) for scores in approxes], axis=1)
        return self.value(check_rows(scores, target, weight)), 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Return the value: CatBoost passes all rows of a set at once, so there is nothing to sum."""
        return error


# CatBoost compiles the methods with numba where it is installed, unless they are marked. Numba cannot compile torch.
for _method in ("is_max_optimal", "evaluate", "get_final_error"):
    setattr(getattr(CatBoostEvalMetric, _method), "no_jit", True)  # noqa: B010
