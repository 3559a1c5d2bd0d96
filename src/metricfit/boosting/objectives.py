"""The objective of boosted trees that are trained for a metric: cross-entropy plus the metric's soft loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.boosting.library_rows import (
    CALLS_WITH_ALL_ROWS,
    Floats,
    Library,
    LibraryRows,
    check_library,
    read_rows,
)
from metricfit.core.steps import Annealed, Identity, Step
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, quote
from metricfit.losses.metric_loss import MetricLoss
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts

#: Smallest second derivative of a row, so that the value of every leaf is finite.
SMALLEST_HESSIAN = 1e-6
CATBOOST_REASON = (
    "CatBoost passes an objective at most 1,000 rows at a time, so the counts of a metric are never those of all rows: "
    "train with CatBoost's Logloss and boosting.eval_metric(metric, 'catboost'), or with 'lightgbm' or 'xgboost'"
)


def objective(
    metric: str | Metric | Formula,
    library: Library = "lightgbm",
    *,
    strength: float = 0.5,
    step: Step | None = None,
    average: ScalarAverage = "macro",
) -> Objective:
    """Make an objective that trains boosted trees for a metric.

    It is the sum of the cross-entropy of all rows plus ``strength`` times the number of rows times the metric's loss on
    soft counts, where by default every row counts with its probability. With weights, the sums are weighted and the
    number of rows is the sum of weights. The second derivative is that of the cross-entropy, which is positive; that of
    the metric need not be.

    Start at the prior (``prior_logits``), and apply the sigmoid or the softmax to what the trees predict: beside an
    objective that is a function, libraries leave out the start, and most of them the sigmoid.

    Args:
        metric: A metric, its name or a function of Counts.
        library: "lightgbm" or "xgboost".
        strength: Weight of the metric's loss. 0 is the cross-entropy alone.
        step: The soft decision; by default Identity, so that a row counts with its probability.
        average: The average over several classes.

    Returns:
        A function that the training functions (``lightgbm.train``, ``xgboost.train``) and the scikit-learn estimators
        of both libraries take as their objective. Two classes have scores ``(n,)``, several ``(n, c)``. Labels are
        class numbers, of which 1 is the positive one of two; weights are used. It can be pickled if the metric can.

    Raises:
        InvalidValueError: If the library is not known, or is CatBoost, which passes parts of the rows; if the strength
            is below 0, the step is Annealed, or the metric or the average cannot be used.

    Example:
        >>> import lightgbm
        >>> import numpy as np
        >>> from metricfit.boosting import prior_logits
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> y = x[:, 0] > 1
        >>> rows = lightgbm.Dataset(x, y, init_score=prior_logits(y, rows=200))
        >>> trees = lightgbm.train({"objective": objective("f1"), "verbose": -1}, rows, num_boost_round=10)
        >>> trees.num_trees()
        10
    """
    return Objective(metric, library, strength=strength, step=step, average=average)


class Objective:
    """An objective of boosted trees; see ``objective``.

    Args:
        metric: A metric, its name or a function of Counts.
        library: "lightgbm" or "xgboost".
        strength: Weight of the metric's loss.
        step: The soft decision; by default Identity.
        average: The average over several classes.
    """

    def __init__(
        self,
        metric: str | Metric | Formula,
        library: Library = "lightgbm",
        *,
        strength: float = 0.5,
        step: Step | None = None,
        average: ScalarAverage = "macro",
    ) -> None:
        if library == "catboost":
            raise InvalidValueError(CATBOOST_REASON)
        check_library(library, CALLS_WITH_ALL_ROWS)
        if not 0 <= strength < float("inf"):
            raise InvalidValueError(f"strength is a number of at least 0; got {quote(strength)}")
        if isinstance(step, Annealed):
            raise InvalidValueError("an Annealed step stays at its start, because boosting does not advance it")
        self.metric, self.library, self.strength = check_of_counts(get_metric(metric)), library, strength
        self.step = Identity() if step is None else step
        # Identity does not look at the threshold, and a number costs less than that of several classes.
        threshold = 0.5 if isinstance(self.step, Identity) else None
        self._binary, self._multiclass = (
            MetricLoss(
                self.metric, step=self.step, threshold=threshold, task=task, average=average, sync=False, validate=False
            )
            for task in ("binary", "multiclass")
        )
        self.average = average

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Floats, Floats]:
        """Return the gradient and the second derivative for each score.

        Args:
            first: The raw scores, or the labels if ``second`` is the scores.
            second: A Dataset of LightGBM, a DMatrix of XGBoost, or the raw scores.
            sample_weight: Weights of the rows, if ``second`` is the scores.

        Returns:
            Two arrays of the shape of the scores.

        Raises:
            InvalidTypeError: If the rows are those of another library.
            InvalidValueError: If the labels are not class numbers, or scores, labels and weights do not fit.
        """
        return self._derivatives(read_rows(first, second, sample_weight, self.library))

    def loss(self, first: Any, second: Any, sample_weight: Any = None) -> float:
        """Return the loss per row: the mean cross-entropy plus ``strength`` times the metric's loss.

        Args:
            first: The raw scores, or the labels if ``second`` is the scores.
            second: A Dataset of LightGBM, a DMatrix of XGBoost, or the raw scores.
            sample_weight: Weights of the rows, if ``second`` is the scores.

        Returns:
            The loss, whose gradient times the number of rows (with weights, the sum of weights) is that of a call.

        Raises:
            InvalidTypeError: If the rows are those of another library.
            InvalidValueError: If the labels are not class numbers, or scores, labels and weights do not fit.
        """
        rows = read_rows(first, second, sample_weight, self.library)
        z, y, w = _tensors(rows)
        if z.dim() == 1:
            losses = torch.nn.functional.binary_cross_entropy_with_logits(z, y.to(z), reduction="none")
        else:
            losses = torch.nn.functional.cross_entropy(z, y, reduction="none")
        cross_entropy = losses.mean() if w is None else (w * losses).sum() / w.sum()
        metric_loss = self._binary if z.dim() == 1 else self._multiclass
        with torch.no_grad():
            return float(cross_entropy + self.strength * metric_loss(z, y, w))

    def __repr__(self) -> str:
        return f"objective({self.metric.name!r}, {self.library!r}, strength={self.strength})"

    def _derivatives(self, rows: LibraryRows) -> tuple[Floats, Floats]:
        z, y, w = _tensors(rows)
        probability, target = _probability_and_target(z, y)
        gradient, hessian = probability - target, probability * (1 - probability)
        total = float(len(y))
        if w is not None:
            row_weight, total = (w if z.dim() == 1 else w[:, None]), float(w.sum())
            gradient, hessian = gradient * row_weight, hessian * row_weight
        if self.strength:
            gradient = gradient + self.strength * total * self._metric_gradient(z, y, w)
        return gradient.numpy(), hessian.clamp_min(SMALLEST_HESSIAN).numpy()

    def _metric_gradient(self, z: Tensor, y: Tensor, w: Tensor | None) -> Tensor:
        metric_loss = self._binary if z.dim() == 1 else self._multiclass
        with torch.enable_grad():
            logits = z.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(metric_loss(logits, y, w), logits)
        return gradient


def _tensors(rows: LibraryRows) -> tuple[Tensor, Tensor, Tensor | None]:
    weight = None if rows.weight is None else torch.from_numpy(rows.weight)
    return torch.from_numpy(rows.scores), torch.from_numpy(rows.label), weight


def _probability_and_target(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if z.dim() == 1:
        return torch.sigmoid(z), y.to(z)
    return torch.softmax(z, dim=1), torch.nn.functional.one_hot(y, z.shape[1]).to(z)
