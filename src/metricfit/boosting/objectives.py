"""The objective of boosted trees that are trained for a metric: cross-entropy plus the metric's soft loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.steps import Identity
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, quote
from metricfit.losses.metric_loss import MetricLoss
from metricfit.metrics.metric import Formula, Metric

if TYPE_CHECKING:
    import lightgbm

Floats = NDArray[np.float64]
Objective = Callable[[Floats, "lightgbm.Dataset"], tuple[Floats, Floats]]

#: Smallest second derivative of a row, so that the value of every leaf is finite.
SMALLEST_HESSIAN = 1e-6


def objective(
    metric: str | Metric | Formula,
    library: Literal["lightgbm"] = "lightgbm",
    *,
    strength: float = 0.5,
    average: ScalarAverage = "macro",
) -> Objective:
    """Make an objective that trains boosted trees for a metric.

    It is the sum of the cross-entropy of all rows plus ``strength`` times the number of rows times the metric's loss on
    soft counts, where every row counts with its probability. The second derivative is that of the cross-entropy, which
    is positive; that of the metric is not. Start at the prior (``init_score``), because the counts of a metric say
    little while all probabilities are 0.5.

    Args:
        metric: A metric, its name or a function of Counts.
        library: The library to train with; only "lightgbm" so far.
        strength: Weight of the metric's loss. 0 is the cross-entropy alone.
        average: The average over several classes.

    Returns:
        A function of the raw scores and the Dataset, as the parameter ``objective`` of ``lightgbm.train`` expects. Two
        classes have scores ``(n,)``, several ``(n, c)``. The labels are class numbers; weights of the Dataset are used.

    Raises:
        InvalidValueError: If the library is not known, or the strength is below 0.

    Example:
        >>> import lightgbm
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> y = x[:, 0] > 1
        >>> start = np.full(200, np.log(y.mean() / (1 - y.mean())))
        >>> rows = lightgbm.Dataset(x, y, init_score=start)
        >>> trees = lightgbm.train({"objective": objective("f1"), "verbose": -1}, rows, num_boost_round=10)
        >>> trees.num_trees()
        10
    """
    if library != "lightgbm":
        raise InvalidValueError(f"library is 'lightgbm'; got {quote(library)}")
    if not strength >= 0:
        raise InvalidValueError(f"strength is a number of at least 0; got {quote(strength)}")
    metric_losses = {
        task: MetricLoss(metric, step=Identity(), threshold=0.5, task=task, average=average, validate=False)
        for task in ("binary", "multiclass")
    }

    def gradient_and_hessian(scores: Floats, rows: lightgbm.Dataset) -> tuple[Floats, Floats]:
        label, weight = rows.get_label(), rows.get_weight()
        task = "binary" if scores.ndim == 1 else "multiclass"
        return _gradient_and_hessian(scores, label, weight, metric_losses[task], strength)

    return gradient_and_hessian


def _gradient_and_hessian(
    scores: Floats, label: Any, weight: Any, metric_loss: MetricLoss, strength: float
) -> tuple[Floats, Floats]:
    logits = torch.from_numpy(np.asarray(scores, dtype=np.float64)).requires_grad_()
    y = torch.from_numpy(np.asarray(label, dtype=np.int64))
    w = None if weight is None else torch.from_numpy(np.asarray(weight, dtype=np.float64))
    with torch.enable_grad():
        (metric_gradient,) = torch.autograd.grad(metric_loss(logits, y, w), logits)
    z = logits.detach()
    probability, target = _probability_and_target(z, y)
    rows = float(len(y)) if w is None else float(w.sum())
    gradient = probability - target
    hessian = probability * (1 - probability)
    if w is not None:
        row_weight = w if z.dim() == 1 else w[:, None]
        gradient, hessian = gradient * row_weight, hessian * row_weight
    gradient = gradient + strength * rows * metric_gradient
    return gradient.numpy(), hessian.clamp_min(SMALLEST_HESSIAN).numpy()


def _probability_and_target(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if z.dim() == 1:
        return torch.sigmoid(z), y.to(z)
    return torch.softmax(z, dim=1), torch.nn.functional.one_hot(y, z.shape[1]).to(z)
