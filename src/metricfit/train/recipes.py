"""Ready recipes: lists of stages for ``fit``. Which to take is measured in the documentation.

Each is for binary, multilabel and multiclass problems; ``task=`` says which where the shapes of the model's outputs and
of the labels leave it open, as for masks ``(n, c, h, w)`` that may overlap. All take weights. A
later stage starts from the best weights of the one before, and counts them as its first best, so that it never ends
worse by what it monitors. In "constrained" a model that meets the requirements is better than any that breaks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from metricfit.constraints import AugmentedLagrangian, Constraint
from metricfit.losses.combine import Mix
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.pointwise import WeightedBCELoss, WeightedCrossEntropyLoss
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.requirements import Requirement
from metricfit.train.monitor import Monitor
from metricfit.train.stage import Stage

AnyMetric = str | Metric | Formula
Requirements = str | Requirement | Constraint | Sequence[str | Requirement | Constraint]

NAMES = ("bce", "metric", "mix", "two_stage", "constrained")


def bce(*, task: str | None = None, **stage: Any) -> list[Stage]:
    """Cross-entropy alone: with a tuned threshold, the baseline to beat."""
    return [Stage(_cross_entropy(task), name="bce", **stage)]


def metric(metric: AnyMetric, *, task: str | None = None, **stage: Any) -> list[Stage]:
    """The metric loss alone."""
    return [Stage(_metric_loss(metric, task), name="metric", **stage)]


def mix(metric: AnyMetric, *, share: float = 0.5, task: str | None = None, **stage: Any) -> list[Stage]:
    """Cross-entropy plus a share of the metric loss."""
    return [Stage(Mix((_cross_entropy(task), 1.0), (_metric_loss(metric, task), share)), name="mix", **stage)]


def two_stage(metric: AnyMetric, *, lr: float = 3e-4, task: str | None = None, **stage: Any) -> list[Stage]:
    """Cross-entropy first, then the metric loss from its best weights, at a lower learning rate."""
    return [
        Stage(_cross_entropy(task), name="bce", **stage),
        Stage(_metric_loss(metric, task), lr=lr, name="metric", **stage),
    ]


def constrained(
    metric: AnyMetric,
    subject_to: Requirements,
    *,
    objective: nn.Module | None = None,
    mu: float = 1.0,
    rho: float = 1.0,
    lr: float | None = None,
    monitor: str | Metric | Monitor | None = None,
    task: str | None = None,
    **stage: Any,
) -> list[Stage]:
    """Cross-entropy first, then the objective under requirements by an augmented Lagrangian.

    The second stage keeps the epoch with the best monitored value among those that meet the requirements on the
    validation set, or the one with the smallest violation if none does; ``FitResult.requirements`` tells which. A
    monitor of the metric at its best threshold under the requirements is not recommended: it picks epochs that were
    lucky on the validation set, and measured lower recall on the test set.

    Args:
        metric: The metric to optimise.
        subject_to: One or several requirements, or other constraints.
        objective: What is minimised in the second stage; by default cross-entropy plus half the metric's loss.
        mu: The penalty of the augmented Lagrangian at the start.
        rho: What mu is multiplied by when the requirements are broken more than before.
        lr: The learning rate of the second stage.
        monitor: What the second stage monitors; by default what ``fit`` does, whose default is the objective's loss.
        task: "binary", "multiclass" or "multilabel", where the shapes do not tell.
        **stage: Settings of both stages, such as ``epochs``.
    """
    loss = objective or Mix((_cross_entropy(task), 1.0), (_metric_loss(metric, task), 0.5))
    under = AugmentedLagrangian(loss, subject_to, mu=mu, rho=rho)
    return [
        Stage(_cross_entropy(task), name="bce", **stage),
        Stage(under, lr=lr, monitor=monitor, name="constrained", **stage),
    ]


class CrossEntropy(WeightedBCELoss):
    """Cross-entropy of the softmax where labels are class numbers, and of the sigmoids otherwise.

    The shapes of a batch tell which is meant: class numbers ``(n, ...)`` go with logits ``(n, c, ...)``.
    """

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weighted sum of the samples' losses, and the sum of the weights."""
        if logits.dim() == target.dim() + 1 and logits.shape[1] > 1:
            return _OF_CLASSES.statistics(logits, target, weight)
        return super().statistics(logits, target, weight)


_OF_CLASSES = WeightedCrossEntropyLoss()


def _cross_entropy(task: str | None) -> nn.Module:
    if task is None:
        return CrossEntropy()
    return WeightedCrossEntropyLoss() if task == "multiclass" else WeightedBCELoss(task=task)


def _metric_loss(metric: AnyMetric, task: str | None) -> MetricLoss:
    return MetricLoss(metric, task=task)
