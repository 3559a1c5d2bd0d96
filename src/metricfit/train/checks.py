"""What can be known to go wrong before training starts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metricfit.constraints import AugmentedLagrangian, RequirementConstraint
from metricfit.core.task import check_labels
from metricfit.metrics.base import Metric, get_metric
from metricfit.train.monitor import RANKINGS, Monitor
from metricfit.train.stage import Objective, Stage


def check_stages(stages: Sequence[Stage], validated: bool, weighted: bool) -> None:
    """Refuse settings that cannot work together."""
    for stage in stages:
        if not validated and (stage.patience is not None or not stage.watched.is_loss):
            what = "patience" if stage.patience is not None else f"monitor={stage.watched.name!r}"
            raise ValueError(f"{what} needs a validation set: give validation=(X, y)")
        if weighted and not Objective(stage.objective).takes_weight:
            raise ValueError(
                f"weights were given, but the objective {type(stage.objective).__name__} takes none; use one of "
                "metricfit.losses, such as WeightedBCELoss() for cross-entropy"
            )


def check_target(logits: Tensor, target: Tensor, name: str) -> None:
    """Labels that the model's outputs cannot be compared with."""
    columns = 1 if logits.dim() == 1 else logits.shape[1]
    several = columns > 1 and target.dim() == logits.dim() - 1
    if several and target.is_floating_point():
        raise ValueError(f"{name}: multiclass labels must be integers, got {target.dtype}; use y.long()")
    try:
        check_labels(target, columns if several else None)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def check_both_classes(logits: Tensor, target: Tensor) -> None:
    """A binary training set of one class teaches nothing."""
    if logits.dim() > 1 and logits.shape[1] > 1:
        return
    if bool((target > 0.5).all()) or bool((target <= 0.5).all()):
        label = "1" if bool((target > 0.5).all()) else "0"
        raise ValueError(f"all training labels are {label}: there is nothing to tell apart")


def check_validation(stages: Sequence[Stage], logits: Tensor, target: Tensor, name: str = "validation") -> None:
    """A validation set that lacks the class a monitored metric, or a requirement, is measured on."""
    several = logits.dim() > 1 and logits.shape[1] > 1
    for stage in stages:
        for metric, of in _needed(stage):
            if several and metric is not None and metric.class_index is not None:
                _check_class(metric, target, int(logits.shape[1]), f"{name}, for {of}")
            elif not several:
                needs = {"positives", "negatives"} if metric is None else metric.needs
                for label, needed in ((1, "positives"), (0, "negatives")):
                    if needed in needs and not bool(((target > 0.5) == bool(label)).any()):
                        raise ValueError(
                            f"the {name} set has no {needed}, which {of} is measured on; split the data stratified, or "
                            "watch the loss"
                        )


def _needed(stage: Stage) -> list[tuple[Metric | None, str]]:
    monitor: Monitor = stage.watched
    found: list[tuple[Metric | None, str]] = []
    if isinstance(monitor.metric, str) and monitor.metric in RANKINGS:
        found.append((None, monitor.name))
    elif not monitor.is_loss:
        found.append((get_metric(monitor.metric), monitor.name))
        found += [(each.metric, str(each)) for each in monitor.requirements]
    return found


def _check_class(metric: Metric, target: Tensor, classes: int, of: str) -> None:
    wanted = metric.class_index
    assert wanted is not None
    if wanted >= classes:
        raise ValueError(f"{of}: the model has {classes} classes, 0 to {classes - 1}")
    if not bool((target == wanted).any()):
        raise ValueError(f"{of}: there is no sample of class {wanted}")


def check_requirements(stages: Sequence[Stage], logits: Tensor, target: Tensor) -> None:
    """A requirement on a class that the training set lacks could never be met."""
    several = logits.dim() > 1 and logits.shape[1] > 1
    for stage in stages:
        constraints = (
            stage.objective.constraints if isinstance(stage.objective, AugmentedLagrangian) else nn.ModuleList()
        )
        for constraint in constraints:
            if several and isinstance(constraint, RequirementConstraint):
                metric = constraint.requirement.metric
                if metric.class_index is not None:
                    _check_class(
                        metric, target, int(logits.shape[1]), f"the training set, for {constraint.requirement}"
                    )


@torch.no_grad()
def sample_logits(model: nn.Module, x: Tensor) -> Tensor:
    """The outputs for a few samples, in eval mode, leaving the model as it was."""
    was_training = model.training
    parameter = next(model.parameters(), None)
    device = x.device if parameter is None else parameter.device
    logits = model.eval()(x[:2].to(device))
    model.train(was_training)
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model must return a tensor of logits, got {type(logits).__name__}")
    return logits
