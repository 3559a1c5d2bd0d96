"""Checks that labels, groups and outputs go together, and that monitors and requirements can be measured."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.constraints import RankingConstraint, RequirementConstraint
from metricfit.core.class_shares import TargetJudge, targets_judged
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.group_labels import number_groups
from metricfit.core.tasks import READINGS
from metricfit.core.validation import check_labels
from metricfit.errors import InvalidValueError
from metricfit.losses.metric_loss import MetricLoss
from metricfit.metrics.areas import UndefinedRankingWarning
from metricfit.metrics.metric import Metric
from metricfit.train.data.batches import check_outputs
from metricfit.train.data.sources import InMemory, Source, get_weight_dtype
from metricfit.train.monitor import Monitor
from metricfit.train.stage import Objective, Stage, find_ignored_labels, mask_ignored_labels, match_shapes


def check_target(logits: Tensor, target: Tensor, stages: Sequence[Stage], name: str, *, part: bool = False) -> Tensor:
    """Refuse labels that do not go with the model's outputs.

    Args:
        logits: Outputs for a few samples.
        target: The labels.
        stages: The stages, whose objectives may ignore a label.
        name: The name of the labels in messages.
        part: Whether the labels are a part of the data, in which all may be ignored.

    Returns:
        The labels that are not ignored.
    """
    outputs, labels = tuple(logits.shape[1:]), tuple(target.shape[1:])
    if labels not in (outputs, outputs[1:]) and (outputs, labels) != ((), (1,)):
        raise InvalidValueError(
            f"{name}: the model's outputs (n{_format_axes(outputs)}) and the labels (n{_format_axes(labels)}) do not "
            f"go together. They are {READINGS}"
        )
    exclusive = is_exclusive(logits, target)
    if exclusive and target.is_floating_point():
        raise InvalidValueError(f"{name}: multiclass labels must be integers, got {target.dtype}; use y.long()")
    ignored = find_ignored_labels(*(stage.objective for stage in stages))
    counted = target.flatten() if exclusive or logits.dim() == 1 or outputs[0] == 1 else target
    for label in ignored:
        counted = counted[counted != label]
    try:
        check_labels(counted, _columns(logits) if exclusive else None)
    except ValueError as error:
        raise InvalidValueError(f"{name}: {error}") from None
    if not counted.numel() and not part:
        raise InvalidValueError(f"{name}: all labels are ignored; they are {', '.join(map(str, sorted(ignored)))}")
    return counted


def _reads_by_shape(logits: Tensor, target: Tensor, stages: Sequence[Stage]) -> bool:
    """Check whether a stage reads targets ``(n, c)`` as multilabel only because of their shape."""
    if logits.dim() != 2 or logits.shape[1] == 1 or target.shape[1:] != logits.shape[1:]:
        return False
    readers = (MetricLoss, RequirementConstraint, RankingConstraint)
    return any(
        any(module.task is None for module in stage.objective.modules() if isinstance(module, readers))
        or any(not (each.is_loss or each.is_ranking) and each.task is None for each in stage.monitors)
        for stage in stages
    )


def _ignored_label(stages: Sequence[Stage]) -> int | None:
    """The label that the objectives ignore, if there is exactly one."""
    ignored = find_ignored_labels(*(stage.objective for stage in stages))
    return ignored.pop() if len(ignored) == 1 else None


class LabelCheck:
    """Checks the labels of a set, all of them at once or batch by batch.

    Args:
        logits: Outputs for a few samples.
        stages: The stages.
    """

    def __init__(self, logits: Tensor, stages: Sequence[Stage]) -> None:
        self.logits, self.stages = logits, stages
        self.judge = TargetJudge()
        self.range: Tensor | None = None
        self.exclusive = False

    def __call__(self, target: Tensor, name: str, *, part: bool = False) -> Tensor:
        """Return the labels that are not ignored, if they go with the model's outputs.

        Args:
            target: The labels, or a part of them.
            name: Their name in messages.
            part: Whether they are a part, in which all may be ignored.

        Raises:
            ValueError: The labels do not go with the model's outputs.
        """
        counted = check_target(self.logits, target, self.stages, name, part=part)
        if counted.numel():
            ends = torch.stack([-counted.min().double(), counted.max().double()])
            self.exclusive = is_exclusive(self.logits, target)
            self.range = ends if self.range is None else torch.maximum(self.range, ends)
        if _reads_by_shape(self.logits, target, self.stages):
            self.judge.observe(target, _ignored_label(self.stages))
        return counted

    def refuse_one_class(self, device: torch.device | None = None) -> None:
        """Refuse labels of one class only, from which nothing can be learned; every rank must call this."""
        ends = torch.full((2,), -torch.inf, dtype=torch.float64) if self.range is None else self.range
        low, high = gather_over_ranks(ends.to(device).unsqueeze(0)).amax(0).tolist()
        one_column = _columns(self.logits) == 1
        if (one_column and (-low > 0.5) == (high > 0.5)) or (self.exclusive and -low == high):
            raise InvalidValueError(f"all training labels are {high:g}: there is nothing to learn")


def check_validation(stages: Sequence[Stage], logits: Tensor, target: Tensor, name: str = "validation") -> None:
    """Refuse a validation set on which a monitored metric or a requirement cannot be measured."""
    columns = _columns(logits)
    for stage, monitor in [(each, monitor) for each in stages for monitor in each.monitors]:
        labels = target if monitor.ignore_index is None else target[target != monitor.ignore_index]
        for metric, measured in _measured_metrics(monitor):
            if metric is not None and metric.class_index is not None:
                _check_class(metric, logits, mask_ignored_labels(target, [stage]), f"{name}, for {measured}")
                continue
            needs = {"positives", "negatives"} if metric is None else metric.needs
            for side, found in (("positives", labels > 0.5), ("negatives", labels <= 0.5)):
                if columns == 1 and side in needs and not bool(found.any()):
                    raise InvalidValueError(
                        f"the {name} set has no {side}, on which {measured} is measured; use a stratified split, or "
                        "monitor the loss"
                    )
        if not monitor.is_loss:
            _try_monitor(monitor, logits, target, name)


def _try_monitor(monitor: Monitor, logits: Tensor, target: Tensor, name: str) -> None:
    """Measure outputs that are all alike, to find what does not go with the monitor, or makes its value NaN."""
    rows = len(target) if monitor.needs_scores else 1
    outputs = torch.full_like(logits[:1], 1 / _columns(logits)).expand(rows, *logits.shape[1:])
    try:
        with targets_judged(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedRankingWarning)
            value = monitor.measure(*match_shapes(outputs.to(target.device), target[:rows])).value
    except ValueError as error:
        raise InvalidValueError(f"{name}, for {monitor.name}: {error}") from None
    if monitor.is_ranking and math.isnan(value):
        kind = "class" if is_exclusive(logits, target) else "label"
        raise InvalidValueError(
            f"the {name} set has no positives or no negatives of some {kind}, so {monitor.name} would be NaN; use a "
            "stratified split, or Monitor(..., average='micro'), or monitor the loss"
        )


def _measured_metrics(monitor: Monitor) -> list[tuple[Metric | None, str]]:
    """Return the metrics of a monitor and of its requirements, with their names; None for a ranking."""
    if monitor.is_loss:
        return []
    if monitor.is_ranking:
        return [(None, monitor.name)]
    metric = monitor.measured
    assert isinstance(metric, Metric)
    return [(metric, monitor.name), *((item.metric, str(item)) for item in monitor.requirements)]


def _list_metrics(stage: Stage) -> Iterator[tuple[Metric, str]]:
    """Yield the metrics of the requirements and losses of a stage's objective, with their names."""
    for module in stage.objective.modules():
        if isinstance(module, RequirementConstraint):
            yield module.requirement.metric, str(module.requirement)
        elif isinstance(module, MetricLoss):
            yield module.metric, module.metric.name


def names_a_class(stages: Sequence[Stage]) -> bool:
    """Check whether a loss or a requirement is about one class, which the training set must then have."""
    return any(metric.class_index is not None for stage in stages for metric, _ in _list_metrics(stage))


def check_requirements(stages: Sequence[Stage], logits: Tensor, target: Tensor) -> None:
    """Refuse requirements on, and losses of, a class that the training set does not have."""
    for stage in stages:
        for metric, name in _list_metrics(stage):
            _check_class(metric, logits, mask_ignored_labels(target, [stage]), f"the training set, for {name}")


def _check_class(metric: Metric, logits: Tensor, target: Tensor, name: str) -> None:
    """Refuse a metric of one class if the model or the labels do not have it."""
    index, classes = metric.class_index, _columns(logits)
    if index is None:
        return
    if index >= classes:
        available = "one output, class 0, the positives" if classes == 1 else f"{classes} classes, 0 to {classes - 1}"
        raise InvalidValueError(f"{name}: the model has {available}")
    in_class = (
        target == index if is_exclusive(logits, target) else target.reshape(len(target), classes, -1)[:, index] > 0.5
    )
    if not bool(in_class.any()):
        raise InvalidValueError(f"{name}: there is no sample of class {index}")


@torch.no_grad()
def sample_logits(model: nn.Module, x: Any, name: str = "training") -> Tensor:
    """Return the outputs for a few samples in eval mode; the mode of the model is restored."""
    was_training = model.training
    parameter = next(model.parameters(), None)
    if isinstance(x, Tensor):
        x = x[:2].to(x.device if parameter is None else parameter.device)
        x = x.to(get_weight_dtype(model)) if x.is_floating_point() else x
    try:
        logits = model.eval()(x)
    except Exception as error:
        shape = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        is_integer = isinstance(x, Tensor) and not x.is_floating_point()
        hint = "; if the model does not expect integers, pass X.float()" if is_integer else ""
        raise InvalidValueError(f"the model fails on the first {name} samples, {shape}: {error}{hint}") from error
    finally:
        model.train(was_training)
    return check_outputs(logits, len(x) if isinstance(x, Tensor) else None)


def is_exclusive(logits: Tensor, target: Tensor) -> bool:
    """Check whether the labels are class numbers, so that the classes exclude each other."""
    return _columns(logits) > 1 and target.dim() == logits.dim() - 1


def _columns(logits: Tensor) -> int:
    return 1 if logits.dim() == 1 else int(logits.shape[1])


def _format_axes(shape: tuple[int, ...]) -> str:
    return "".join(f", {size}" for size in shape) or ","


def with_group_numbers(data: Source, stages: Sequence[Stage], name: str) -> Source:
    """Return data in memory with one group number per sample, if their dictionary has groups.

    Groups are integers from 0 on, or the names that a requirement gives to its groups.

    Args:
        data: The samples.
        stages: The stages; if there are groups, one of them must use groups.
        name: The name of the samples in messages: "train" or "validation".

    Raises:
        ValueError: Groups are missing, are not used, or do not go with the samples.
    """
    if not isinstance(data, InMemory):
        return data
    objectives = [Objective(stage.objective) for stage in stages]
    requirements = [item for objective in objectives for item in objective.requirements() if item.groups]
    if data.group is None:
        if requirements:
            raise InvalidValueError(
                f'the objective has a requirement per group: pass {name} as {{"x": X, "y": y, "group": numbers}}'
            )
        return data
    if not any(objective.accepts.group for objective in objectives):
        raise InvalidValueError(
            f"the groups of {name} are not used by any objective; use RequirementConstraint(..., groups=k) in an "
            "AugmentedLagrangian, or a loss whose forward takes group="
        )
    labels = number_groups(data.group, len(data), f"{name}'s groups").names
    are_texts = any(isinstance(label, str) for label in labels)
    known: Any = next((item.group_names for item in requirements if item.group_names is not None), None)
    if known is None and are_texts:
        raise InvalidValueError(
            f"{name}'s groups are texts: pass integers, or name the groups in the order of their numbers, as in "
            "RequirementConstraint(..., groups=['women', 'men']) or metrics.recall.gap(['women', 'men'])"
        )
    if known is None or not (are_texts or all(isinstance(group, int) for group in known)):
        known = range(min((item.groups for item in requirements if item.groups), default=int(max(labels)) + 1))
    numbers = number_groups(data.group, len(data), f"{name}'s groups", known).numbers
    return replace(data, group=torch.from_numpy(numbers))
