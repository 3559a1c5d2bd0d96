"""Recipes: ready lists of stages for ``fit``. The documentation compares them by measurement.

All recipes work for binary, multilabel and multiclass problems and take sample weights. ``task=`` is needed only if
the shapes of logits and labels allow two readings, as for masks ``(n, c, h, w)`` that may overlap. A later stage starts
from the best weights of the previous stage, and these weights count as its first candidate, so a later stage never ends
with a worse monitored value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch import Tensor, nn

from metricfit.constraints import AugmentedLagrangian, Constraint
from metricfit.constraints.lagrangian import UpdateOn
from metricfit.core.types import ScalarAverage, Task
from metricfit.losses.combine import Mix
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.pointwise import WeightedBCELoss
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.requirements import Requirement
from metricfit.train.monitor import Monitored
from metricfit.train.stage import DEFAULT_LR, Stage

AnyMetric = str | Metric | Formula
Requirements = str | Requirement | Constraint | Sequence[str | Requirement | Constraint]

#: The names of the recipes.
Recipe = Literal["bce", "metric", "mix", "two_stage", "constrained"]
NAMES: tuple[Recipe, ...] = get_args(Recipe)

#: The learning rate of the second stage of "two_stage", relative to the first, as in the study of recipes.
SECOND_STAGE_LR = 0.3


def bce(*, task: Task | None = None, **stage: Any) -> list[Stage]:
    """Train with cross-entropy alone. With a tuned threshold, this is the baseline to beat.

    Args:
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings.
        **stage: Settings of the stage, such as ``epochs``.

    Returns:
        One stage.

    Example:
        >>> [stage.name for stage in bce(epochs=10)]
        ['bce']
    """
    return [Stage(_cross_entropy(task), name="bce", **stage)]


def metric(
    metric: AnyMetric, *, task: Task | None = None, average: ScalarAverage = "macro", **stage: Any
) -> list[Stage]:
    """Train with the loss of the metric alone.

    Args:
        metric: The metric to optimise: a Metric, its name or a function of Counts.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings.
        average: The average over several classes: "macro", "micro" or "weighted".
        **stage: Settings of the stage, such as ``epochs``.

    Returns:
        One stage.

    Example:
        >>> [stage.name for stage in metric("f1")]
        ['metric']
    """
    return [Stage(MetricLoss(metric, task=task, average=average), name="metric", **stage)]


def mix(
    metric: AnyMetric, *, share: float = 0.5, task: Task | None = None, average: ScalarAverage = "macro", **stage: Any
) -> list[Stage]:
    """Train with the sum of cross-entropy and a share of the metric's loss.

    Args:
        metric: The metric to optimise: a Metric, its name or a function of Counts.
        share: The factor of the metric's loss.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings.
        average: The average over several classes: "macro", "micro" or "weighted".
        **stage: Settings of the stage, such as ``epochs``.

    Returns:
        One stage.

    Example:
        >>> (stage,) = mix("f1", share=0.25)
        >>> stage.objective.weights
        (1.0, 0.25)
    """
    return [Stage(_mix_losses(metric, share, task, average), name="mix", **stage)]


def two_stage(
    metric: AnyMetric,
    *,
    lr: float = SECOND_STAGE_LR * DEFAULT_LR,
    task: Task | None = None,
    average: ScalarAverage = "macro",
    **stage: Any,
) -> list[Stage]:
    """Train with cross-entropy first, then with the metric's loss from the best weights, at a lower learning rate.

    Args:
        metric: The metric to optimise: a Metric, its name or a function of Counts.
        lr: The learning rate of the second stage; by default 0.3 times the default of ``fit``. If you change the
            learning rate of ``fit``, pass ``recipes.SECOND_STAGE_LR`` times that rate.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings.
        average: The average over several classes: "macro", "micro" or "weighted".
        **stage: Settings of both stages, such as ``epochs``.

    Returns:
        Two stages.

    Example:
        >>> [(stage.name, stage.lr) for stage in two_stage("f1")]
        [('bce', None), ('metric', 0.0003)]
    """
    return [
        *bce(task=task, **stage),
        Stage(MetricLoss(metric, task=task, average=average), lr=lr, name="metric", **stage),
    ]


def constrained(
    metric: AnyMetric,
    subject_to: Requirements,
    *,
    objective: nn.Module | None = None,
    mu: float = 1.0,
    rho: float = 1.0,
    update_on: UpdateOn = "train",
    lr: float | None = None,
    monitor: Monitored | None = None,
    task: Task | None = None,
    average: ScalarAverage = "macro",
    **stage: Any,
) -> list[Stage]:
    """Train with cross-entropy first, then with the objective under requirements, by an augmented Lagrangian.

    The second stage keeps the epoch with the best monitored value among the epochs that meet the requirements on the
    validation set. If no epoch does, it keeps the one with the smallest violation; ``FitResult.requirements`` reports
    which. Do not monitor the metric at its best threshold under the requirements: this selects epochs that were lucky
    on the validation set, and gave lower recall on the test set when it was measured.

    Args:
        metric: The metric to optimise: a Metric, its name or a function of Counts.
        subject_to: One or several requirements, or other constraints.
        objective: The loss of the second stage; by default cross-entropy plus half the metric's loss.
        mu: The initial penalty of the augmented Lagrangian.
        rho: The factor of mu when the requirements are violated more than before.
        update_on: The rows that move the multipliers: "train", or "held_out" for the validation set, as in
            AugmentedLagrangian. The study of group floors found them level, because the validation set chooses the
            epoch in both cases.
        lr: The learning rate of the second stage; by default the one of ``fit``.
        monitor: The monitor of the second stage; by default the one of ``fit``.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings.
        average: The average over several classes: "macro", "micro" or "weighted".
        **stage: Settings of both stages, such as ``epochs``.

    Returns:
        Two stages.

    Raises:
        ValueError: A requirement cannot be parsed.

    Example:
        >>> [stage.name for stage in constrained("precision", "recall >= 0.9")]
        ['bce', 'constrained']
    """
    loss = _mix_losses(metric, 0.5, task, average) if objective is None else objective
    lagrangian = AugmentedLagrangian(loss, subject_to, mu=mu, rho=rho, update_on=update_on)
    return [
        *bce(task=task, **stage),
        Stage(lagrangian, lr=lr, monitor=monitor, name="constrained", **stage),
    ]


class CrossEntropy(WeightedBCELoss):
    """Cross-entropy of the softmax if labels are class numbers, and of the sigmoids otherwise.

    The shapes of a batch decide: class numbers ``(n, ...)`` go with logits ``(n, c, ...)``.

    Example:
        >>> import torch
        >>> CrossEntropy()(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(1.3863)
        >>> CrossEntropy()(torch.zeros(2), torch.tensor([0, 1]))
        tensor(0.6931)
    """

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the samples' losses, and the sum of the weights."""
        if logits.dim() == target.dim() + 1 and logits.shape[1] > 1:
            return _SOFTMAX_LOSS.statistics(logits, target, weight)
        return super().statistics(logits, target, weight)


_SOFTMAX_LOSS = WeightedCrossEntropyLoss()


def _cross_entropy(task: Task | None) -> nn.Module:
    if task is None:
        return CrossEntropy()
    return WeightedCrossEntropyLoss() if task == "multiclass" else WeightedBCELoss(task=task)


def _mix_losses(metric: AnyMetric, share: float, task: Task | None, average: ScalarAverage) -> Mix:
    return Mix((_cross_entropy(task), 1.0), (MetricLoss(metric, task=task, average=average), share))
