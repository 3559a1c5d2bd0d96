"""Checks of settings, data and model before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from metricfit.constraints import RankingConstraint, RequirementConstraint
from metricfit.core.class_shares import TargetJudge
from metricfit.core.tasks import READINGS, canonical
from metricfit.core.validation import check_labels
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses.calling import accepted_arguments, refuse_multipliers
from metricfit.losses.metric_loss import MetricLoss
from metricfit.metrics.metric import Metric
from metricfit.metrics.ranking import get_measure
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch
from metricfit.train.data.samples import get_weight_dtype
from metricfit.train.engine.schedules import Schedule
from metricfit.train.monitor import Monitor
from metricfit.train.stage import MakeOptimizer, Stage, find_ignored_labels, mask_ignored_labels, match_shapes


def check_stages(stages: Sequence[Stage], validated: bool, weighted: bool) -> None:
    """Refuse settings that cannot work together."""
    if any(stage.scheduler_step for stage in stages) and not any(stage.scheduler for stage in stages):
        raise InvalidValueError(
            "scheduler_step was given without a scheduler, so there is nothing to step; give scheduler= as well, such "
            "as functools.partial(OneCycleLR, max_lr=0.01)"
        )
    for stage in stages:
        monitor = stage.watched
        if not validated and (stage.patience is not None or not monitor.is_loss):
            setting = "patience" if stage.patience is not None else f"monitor={monitor.name!r}"
            raise InvalidValueError(f"{setting} needs a validation set: give validation=(X, y)")
        if not hasattr(stage.objective, "update"):
            name = type(stage.objective).__name__
            refuse_multipliers(stage.objective, name, "Make the AugmentedLagrangian the objective itself")
        if weighted and not accepted_arguments(stage.objective).weight:
            raise InvalidValueError(
                f"weights were given, but the objective {type(stage.objective).__name__} takes none; use one of "
                "metricfit.losses, such as WeightedBCELoss() for cross-entropy"
            )


def check_learning(model: nn.Module, stages: Sequence[Stage], validated: bool, steps: int | None) -> None:
    """Refuse a model without trainable weights, and optimisers and schedulers that cannot be used.

    Args:
        model: The model.
        stages: The stages.
        validated: Whether there is a validation set.
        steps: The number of optimiser steps per epoch, if it is known.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidValueError("the model has no weights to train: all are frozen; set requires_grad_(True) on some")
    for stage in stages:
        make: MakeOptimizer = stage.optimizer or torch.optim.AdamW
        optimizer = make(model.parameters(), lr=stage.lr)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidValueError(
                "LBFGS computes the loss several times per step, which fit does not support; use AdamW or SGD"
            )
        total = None if steps is None or stage.epochs is None else steps * stage.epochs
        schedule = Schedule(stage.scheduler, stage.scheduler_step, optimizer, total)
        if steps is not None and stage.epochs is not None:
            schedule.check_length(stage.epochs, steps)
        scheduler = schedule.scheduler
        if not isinstance(scheduler, ReduceLROnPlateau):
            continue
        if not validated:
            raise InvalidValueError("ReduceLROnPlateau needs a monitored value: give validation=(X, y)")
        mode = "min" if stage.watched.minimize else "max"
        if scheduler.mode != mode:
            raise InvalidValueError(f"ReduceLROnPlateau needs mode={mode!r} if {stage.watched.name} is monitored")


def check_numbers(accumulate: int, clip: float | None) -> None:
    """Refuse numbers out of range."""
    if accumulate < 1:
        raise InvalidValueError(f"accumulate must be at least 1, the number of parts of a batch; got {accumulate}")
    if clip is not None and not clip > 0:
        raise InvalidValueError(f"clip must be above 0, the maximum norm of the gradient; got {clip}")


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
            f"{name}: the model's outputs (n{_rest(outputs)}) and the labels (n{_rest(labels)}) do not go together. "
            f"They are {READINGS}"
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
        raise InvalidValueError(f"{name}: all labels are ignored, being {', '.join(map(str, sorted(ignored)))}")
    return counted


def check_training_target(logits: Tensor, target: Tensor, stages: Sequence[Stage]) -> Tensor:
    """Refuse training labels that nothing can be learned from; return those that are not ignored."""
    counted = check_target(logits, target, stages, "train")
    check_both_classes(logits, target, counted)
    check_requirements(stages, logits, target)
    return counted


def check_validation_target(logits: Tensor, target: Tensor, stages: Sequence[Stage], name: str = "validation") -> None:
    """Refuse validation labels on which the stages' monitors cannot be measured."""
    check_target(logits, target, stages, name)
    check_validation(stages, logits, target, name)


def judge_target(logits: Tensor, target: Tensor, stages: Sequence[Stage], name: str) -> None:
    """Refuse, or warn about, targets that look like class shares but would be read as multilabel.

    Args:
        logits: Outputs for a few samples.
        target: The labels of the whole set.
        stages: The stages; a stage whose losses all have a ``task`` is not checked.
        name: The name of the labels in messages.

    Raises:
        InvalidValueError: The labels can be read in two ways.
    """
    if _reads_by_shape(logits, target, stages):
        TargetJudge().look(target, _ignored_label(stages), name)


def _reads_by_shape(logits: Tensor, target: Tensor, stages: Sequence[Stage]) -> bool:
    """Whether a stage reads targets ``(n, c)`` as multilabel only because of their shape."""
    if logits.dim() != 2 or logits.shape[1] == 1 or target.shape[1:] != logits.shape[1:]:
        return False
    return any(_leaves_task_open(stage) for stage in stages)


def _ignored_label(stages: Sequence[Stage]) -> int | None:
    """The label that the objectives ignore, if there is exactly one."""
    ignored = find_ignored_labels(*(stage.objective for stage in stages))
    return ignored.pop() if len(ignored) == 1 else None


def _leaves_task_open(stage: Stage) -> bool:
    """Whether a part of the objective, or the monitor, derives the task from the shapes."""
    readers = (MetricLoss, RequirementConstraint, RankingConstraint)
    tasks = {module.task for module in stage.objective.modules() if isinstance(module, readers)}
    monitor = stage.watched
    counts_decisions = not (monitor.is_loss or monitor.is_ranking)
    return None in tasks or (counts_decisions and monitor.task is None)


class LoaderCheck:
    """Checks the batches of a training DataLoader during the first epoch, because its labels are not known before."""

    def __init__(self, model: nn.Module, stages: Sequence[Stage]) -> None:
        self.model, self.stages = model, stages
        self.logits: Tensor | None = None
        self.judge = TargetJudge()

    def __call__(self, batch: Batch, number: int, expected: int | None) -> Batch:
        """Return the batch if its labels go with the model's outputs.

        Args:
            batch: The batch to check.
            number: Its position in the epoch, for the message.
            expected: The expected number of batches, if one is announced.

        Returns:
            The same batch.

        Raises:
            ValueError: The labels do not go with the model's outputs.
        """
        if self.logits is None:
            with randomness.seeded(0):
                self.logits = sample_logits(self.model, batch.x)
        check_target(self.logits, batch.y, self.stages, _batch_name(number, expected), part=True)
        if _reads_by_shape(self.logits, batch.y, self.stages):
            self.judge.observe(batch.y, _ignored_label(self.stages))
        return batch

    def end_epoch(self, device: torch.device) -> None:
        """Judge the labels of the whole first epoch, of all ranks; every rank must call this.

        Raises:
            InvalidValueError: The labels can be read in two ways.
        """
        self.judge.add_other_ranks(device)
        self.judge.conclude(f"training labels ({self.judge.rows} rows, all that the first epoch gave)")


def _batch_name(number: int, expected: int | None) -> str:
    """Return the name of a batch; the expected number is left out if it is unknown or was wrong."""
    return f"train, batch {number}" + (f" of {expected}" if expected is not None and number < expected else "")


def check_both_classes(logits: Tensor, target: Tensor, counted: Tensor) -> None:
    """Refuse a training set with one class only; ``counted`` are the labels that are not ignored."""
    one_column = _columns(logits) == 1
    if not (one_column or is_exclusive(logits, target)):
        return
    sides = counted > 0.5 if one_column else counted
    if bool((sides == sides.flatten()[0]).all()):
        raise InvalidValueError(
            f"all training labels are {counted.flatten()[0].item():g}: there is nothing to tell apart"
        )


def check_validation(stages: Sequence[Stage], logits: Tensor, target: Tensor, name: str = "validation") -> None:
    """Refuse a validation set without the class that a monitored metric or a requirement is measured on."""
    columns = _columns(logits)
    for stage in stages:
        monitor: Monitor = stage.watched
        if not monitor.is_loss:
            _check_reading(monitor, logits, target, name)
        if columns > 1 and (monitor.threshold == "best" or monitor.is_ranking):
            raise InvalidValueError(
                f"{monitor.name} is measured on one output, the model has {columns}; monitor a metric of decisions "
                "at 0.5, such as 'f1'"
            )
        labels = target if monitor.ignore_index is None else target[target != monitor.ignore_index]
        for metric, measured in _measured_metrics(monitor):
            if metric is not None and metric.class_index is not None:
                _check_class(metric, logits, mask_ignored_labels(target, [stage]), f"{name}, for {measured}")
            elif columns == 1:
                _check_sides(metric, labels, measured, name)


def _check_reading(monitor: Monitor, logits: Tensor, target: Tensor, name: str) -> None:
    """Refuse shapes that allow no task or several tasks, such as overlapping masks without ``task``."""
    first = min(len(logits), len(target), 1)
    try:
        canonical(*match_shapes(logits[:first], target[:first]), task=monitor.task, validate=False)
    except ValueError as error:
        raise InvalidValueError(f"{name}, for {monitor.name}: {error}. Give monitor=Monitor(..., task=...)") from None


def _check_sides(metric: Metric | None, target: Tensor, measured: str, name: str) -> None:
    needs = {"positives", "negatives"} if metric is None else metric.needs
    for positive, needed in ((True, "positives"), (False, "negatives")):
        if needed in needs and not bool(((target > 0.5) == positive).any()):
            raise InvalidValueError(
                f"the {name} set has no {needed}, which {measured} is measured on; split the data stratified, or "
                "monitor the loss"
            )


def _measured_metrics(monitor: Monitor) -> list[tuple[Metric | None, str]]:
    """Return the metrics of a monitor and of its requirements, with their names; None for a ranking."""
    if monitor.is_loss:
        return []
    if monitor.is_ranking:
        return [(None, monitor.name)]
    of_requirements = [(requirement.metric, str(requirement)) for requirement in monitor.requirements]
    metric = get_measure(monitor.metric)
    assert isinstance(metric, Metric)
    return [(metric, monitor.name), *of_requirements]


def check_requirements(stages: Sequence[Stage], logits: Tensor, target: Tensor) -> None:
    """Refuse requirements on, and losses of, a class that the training set does not have."""
    for stage in stages:
        for module in stage.objective.modules():
            metric, name = None, ""
            if isinstance(module, RequirementConstraint):
                metric, name = module.requirement.metric, str(module.requirement)
            elif isinstance(module, MetricLoss):
                metric, name = module.metric, module.metric.name
            if metric is not None and metric.class_index is not None:
                _check_class(metric, logits, mask_ignored_labels(target, [stage]), f"the training set, for {name}")


def _check_class(metric: Metric, logits: Tensor, target: Tensor, name: str) -> None:
    wanted, classes = metric.class_index, _columns(logits)
    assert wanted is not None
    if wanted >= classes:
        available = "one output, class 0, the positives" if classes == 1 else f"{classes} classes, 0 to {classes - 1}"
        raise InvalidValueError(f"{name}: the model has {available}")
    is_wanted = (
        target == wanted if is_exclusive(logits, target) else target.reshape(len(target), classes, -1)[:, wanted] > 0.5
    )
    if not bool(is_wanted.any()):
        raise InvalidValueError(f"{name}: there is no sample of class {wanted}")


@torch.no_grad()
def sample_logits(model: nn.Module, x: Any, name: str = "training") -> Tensor:
    """Return the outputs for a few samples, in eval mode; the model is left as it was."""
    was_training = model.training
    parameter = next(model.parameters(), None)
    if isinstance(x, Tensor):
        x = x[:2].to(x.device if parameter is None else parameter.device)
        x = x.to(get_weight_dtype(model)) if x.is_floating_point() else x
    try:
        logits = model.eval()(x)
    except Exception as error:
        shape = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        hint = "" if not isinstance(x, Tensor) or x.is_floating_point() else "; are whole numbers meant, or X.float()?"
        raise InvalidValueError(f"the model fails on the first {name} samples, {shape}: {error}{hint}") from error
    finally:
        model.train(was_training)
    if not isinstance(logits, Tensor):
        raise InvalidTypeError(f"the model must return a tensor of logits, got {type(logits).__name__}")
    if logits.dim() == 0 or (isinstance(x, Tensor) and len(logits) != len(x)):
        rows = len(x) if isinstance(x, Tensor) else "a batch of"
        raise InvalidValueError(
            f"the model must return a row of logits for each sample, got {tuple(logits.shape)} for {rows}"
        )
    return logits


def is_exclusive(logits: Tensor, target: Tensor) -> bool:
    """Whether the labels are class numbers, so that the classes exclude each other."""
    return _columns(logits) > 1 and target.dim() == logits.dim() - 1


def _columns(logits: Tensor) -> int:
    return 1 if logits.dim() == 1 else int(logits.shape[1])


def _rest(shape: tuple[int, ...]) -> str:
    return "".join(f", {size}" for size in shape) or ","
