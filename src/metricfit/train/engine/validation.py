"""Validation: the outputs of a model, its loss and monitored values, and whether requirements hold.

Losses and metrics that are functions of sums over samples are validated batch by batch; others need all logits.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from metricfit.constraints import RequirementConstraint
from metricfit.core.counts import Counts
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses.base import AdditiveLoss, check_parts
from metricfit.losses.calling import accepted_arguments, call_loss
from metricfit.losses.combine import Mix
from metricfit.metrics.requirements import Requirement
from metricfit.train.data.batches import Batch, count_samples_at_once, join_batches
from metricfit.train.data.sources import FromLoader, InMemory, Source
from metricfit.train.monitor import Measured, Monitor, MonitorStream, in_double, make_columns
from metricfit.train.result import RequirementResult, Row, Threshold
from metricfit.train.stage import Objective, Stage, match_shapes


class UnmetRequirementWarning(UserWarning):
    """Training ended with weights that break a requirement.

    Example:
        >>> warnings.simplefilter("error", UnmetRequirementWarning)  # stop instead
    """


@dataclass(frozen=True)
class Validation:
    """A model on its validation samples after an epoch.

    Attributes:
        loss: The loss that epochs are compared by.
        measured: What the first monitor measured, and how far requirements are broken.
        observed: The value for the objective's ``observe``; higher is better.
        meets: Whether the objective's requirements hold; None if it has none.
        others: What the other monitors measured.
    """

    loss: float
    measured: Measured
    observed: float
    meets: bool | None = None
    others: tuple[Measured, ...] = ()

    def after_success(self) -> Validation:
        """Return this result as the objective observes it after an earlier epoch has met the requirements.

        From then on only the multipliers enforce the requirements. An epoch that breaks them by chance must not raise
        the penalty, because the penalty would grow without end.
        """
        return replace(self, observed=0.0)

    def columns(self, stage: Stage, best: float) -> Row:
        """Return the columns of the history, with the best monitored value so far."""
        measured = self.measured
        row: Row = {"validation_loss": self.loss, "monitor": stage.watched.name, "value": measured.value}
        row |= {"threshold": measured.threshold, "best": best}
        if has_requirements(stage):
            row |= {"feasible": measured.feasible, "violation": measured.violation}
        if isinstance(stage.monitor, (list, tuple)):
            row |= make_columns(stage.monitors, (measured, *self.others))
        return row


def validate(
    monitors: Sequence[Monitor], objective: Objective, loss: float, logits: Tensor, batch: Batch
) -> Validation:
    """Measure the monitored values and the objective's requirements.

    An epoch is feasible if it meets the requirements of the first monitor or, if it has no requirements, the
    objective's, each at its own threshold. ``observed`` is minus the violation of the objective's requirements, so that
    the penalty of an augmented Lagrangian grows when they are broken more than in the epoch before. For objectives
    without requirements it is the monitored value.

    Args:
        monitors: The monitors of the stage, the one that decides first.
        objective: The objective of the stage.
        loss: Its comparable loss on these samples.
        logits: The model's outputs for the validation samples.
        batch: Their labels, weights and groups.

    Returns:
        The results.
    """
    logits, y = match_shapes(logits, batch.y)
    result = _make_validation(
        monitors, loss, [None if each.is_loss else each.measure(logits, y, batch.weight) for each in monitors]
    )
    requirements = objective.requirements()
    if not requirements:
        return result
    excesses = [item.measure(logits, y, weight=batch.weight, group=batch.group)[1] for item in requirements]
    violation = sum(float(excess.sum()) for excess in excesses)
    if not monitors[0].requirements:
        result = replace(result, measured=replace(result.measured, feasible=violation == 0, violation=violation))
    return replace(result, observed=-violation, meets=violation == 0)


def _make_validation(monitors: Sequence[Monitor], loss: float, of_metrics: Iterable[Measured | None]) -> Validation:
    measured, *others = (Measured(loss, math.nan) if each is None else each for each in of_metrics)
    observed = -measured.value if monitors[0].minimize else measured.value
    return Validation(loss, measured, observed, others=tuple(others))


def measure_requirements(
    stage: Stage, threshold: Threshold, logits: Tensor, batch: Batch, rows: str
) -> tuple[RequirementResult, ...]:
    """Measure the requirements of a stage's monitor and of its objective.

    A requirement that both have is measured only at the monitor's threshold.

    Args:
        stage: The last stage of the training.
        threshold: The monitor's threshold for the returned weights, or one per label; NaN if there is none.
        logits: The outputs of the model for some samples.
        batch: Their labels, weights and groups.
        rows: The name of these samples, "validation" or "train".

    Returns:
        One result per requirement.
    """
    monitor = stage.watched
    logits, y = match_shapes(logits, batch.y)
    results: dict[str, RequirementResult] = {}

    def add(requirement: Requirement, value: Tensor, met: bool, at: Threshold) -> None:
        worst = float(value.flatten()[requirement.excess(value).argmax()]) if value.numel() else math.nan
        results[str(requirement)] = RequirementResult(str(requirement), worst, requirement.bound, met, rows, at)

    if monitor.requirements:
        decided = replace(
            monitor, threshold=threshold if isinstance(threshold, tuple) or _is_number(threshold) else 0.5
        )
        counts = monitor.of_all_pixels(decided.count(logits, y, batch.weight))
        for requirement in monitor.requirements:
            add(requirement, requirement.metric(counts), bool(requirement.holds(counts).all()), threshold)
    for constraint in Objective(stage.objective).requirements():
        if str(constraint.requirement) not in results:
            value, violation = constraint.measure(logits, y, weight=batch.weight, group=batch.group)
            met = value.numel() > 0 and not bool((violation > 0).any())
            exclusive = logits.dim() > y.dim() or constraint.task == "multiclass"
            add(constraint.requirement, value, met, _get_decision(constraint, exclusive))
    return tuple(results.values())


def has_requirements(stage: Stage) -> bool:
    """Check whether a stage's monitor or objective has requirements."""
    return bool(stage.watched.requirements or Objective(stage.objective).requirements())


def warn_about_unmet(results: Sequence[Sequence[RequirementResult]], stacklevel: int = 3) -> None:
    """Issue one warning about all requirements that do not hold; several members are named by their numbers."""
    lines = []
    for member, requirements in enumerate(results):
        prefix = f"member {member}: " if len(results) > 1 else ""
        for result in requirements:
            if not result.met:
                name = result.requirement.split()[0]
                decision = f" at threshold {result.threshold:.4g}" if _is_number(result.threshold) else ""
                lines.append(
                    f"{prefix}{result.requirement} does not hold: {name} is {result.value:.4g} on the "
                    f"{result.rows} rows{decision}"
                )
    if lines:
        warnings.warn(
            f"{'; '.join(lines)}. Train longer, give a larger mu, relax the requirement, or choose a decision that "
            "meets it with decide.best_decision(..., subject_to=...)",
            UnmetRequirementWarning,
            stacklevel=stacklevel + 1,
        )


def _is_number(threshold: Threshold) -> bool:
    """Check whether the decisions were made at one threshold, neither by the largest logit nor at one per label."""
    return not isinstance(threshold, tuple) and not math.isnan(threshold)


def _get_decision(constraint: RequirementConstraint, exclusive: bool) -> Threshold:
    """Return the threshold of a constraint as a number, or as one number per label."""
    if exclusive:
        return math.nan
    threshold = constraint.threshold
    if isinstance(threshold, Tensor):
        return tuple(threshold.tolist())
    return threshold if isinstance(threshold, float) else 0.5


def compute_outputs(
    runtime: Any,
    model: nn.Module,
    data: Source,
    lay_out: Callable[[Any], Any],
    at_least: int = 1,
    batch_size: int | None = None,
) -> Iterator[tuple[Tensor, Batch]]:
    """Yield the logits of this rank's share of the samples with their batches, in eval mode and without gradient.

    Args:
        runtime: The launched Fabric, or one device without it.
        model: The model, whose mode is restored at the end.
        data: The samples.
        lay_out: Brings inputs into the layout, or to the device, that the model needs.
        at_least: Number of samples that one pass takes at least, such as the size of the batches in training.
        batch_size: Number of samples of one pass; by default as many as are known to fit into memory.

    Raises:
        ValueError: A loader gives no batches.
    """
    was_training = model.training
    model.eval()
    empty = True
    try:
        for batch in _take_share(runtime, data, at_least, batch_size):
            empty = False
            with torch.no_grad():  # a generator does not keep the caller's
                output = [(drop_uncounted(model(lay_out(batch.x)), batch), batch)]
            del batch  # the caller may drop the output before the next batch is read
            yield output.pop()
    finally:
        model.train(was_training)
    if empty:
        raise InvalidValueError("the DataLoader gives no batches, so there is nothing to measure on")


def join_outputs(outputs: Iterable[tuple[Tensor, Batch]]) -> tuple[Tensor, Batch]:
    """Return the logits of all batches together, with labels, weights and groups."""
    logits, batches = zip(*outputs, strict=True)
    return torch.cat(logits), join_batches(batches)


def _take_share(runtime: Any, data: Source, at_least: int, batch_size: int | None) -> Iterator[Batch]:
    """Yield the batches that this rank evaluates; without samples, one batch that does not count."""
    if isinstance(data, FromLoader):
        yield from data.batches(runtime.device)
        return
    numbers = torch.arange(len(data))
    share = numbers.tensor_split(runtime.world_size)[runtime.global_rank]
    if batch_size is None:
        batch_size = count_samples_at_once(data.x[0] if isinstance(data, InMemory) else data.first(), at_least)
    for batch in data.batches(torch.split(share if len(share) else numbers[:1], batch_size), runtime.device):
        yield batch if len(share) else batch.without_samples()


def drop_uncounted(logits: Tensor, batch: Batch) -> Tensor:
    """Return the logits of the batch's samples; a batch without samples has none, although the model ran."""
    return logits if len(batch) else logits[:0]


class _Additive(Protocol):
    def statistics(self, logits: Tensor, target: Tensor) -> Any: ...
    def value(self, statistics: Any) -> Tensor: ...


class LossOfSums:
    """The loss of all samples of a stream, from sums over its batches.

    Args:
        parts: The parts of the loss with their weights in the whole; what ``split_loss`` returned.
    """

    def __init__(self, parts: Iterable[tuple[_Additive, float]]) -> None:
        self.parts = list(parts)
        self.totals: list[Any] = [0] * len(self.parts)

    def add(self, logits: Tensor, batch: Batch) -> None:
        """Add the samples of a batch."""
        logits, y = match_shapes(logits, batch.y)
        for number, (loss, _) in enumerate(self.parts):
            accepts = accepted_arguments(cast(nn.Module, getattr(loss, "mean", loss)))
            sums = call_loss(loss.statistics, logits, y, accepts, weight=batch.weight, group=batch.group)
            self.totals[number] += in_double(sums) if isinstance(sums, Counts) else sums.double()

    def value(self) -> float:
        """Return the loss of all samples."""
        return sum(
            share * float(loss.value(total)) for (loss, share), total in zip(self.parts, self.totals, strict=True)
        )


def validate_stream(
    monitors: Sequence[Monitor],
    objective: Objective,
    parts: Iterable[tuple[_Additive, float]],
    outputs: Iterable[tuple[Tensor, Batch]],
    check_labels: Callable[[Tensor, Tensor, bool], None] | None,
) -> Validation:
    """Validate batch by batch: the logits of one batch are in memory at a time.

    Args:
        monitors: The monitors, which need no scores; the one that decides is the first.
        objective: The objective, without requirements.
        parts: The parts of its loss.
        outputs: The logits of each batch.
        check_labels: Called with logits of a few samples, labels, and whether these are a part of all; None if the
            labels are known to be right.

    Returns:
        What ``validate`` returns for all logits together.
    """
    losses = LossOfSums(parts)
    counted = [None if monitor.is_loss else MonitorStream(monitor) for monitor in monitors]
    labels: list[Tensor] = []
    objective.loss.eval()
    try:
        with torch.no_grad(), objective.annealed_to_end():
            for logits, batch in outputs:
                if check_labels is not None:
                    first = logits[:1].cpu()
                    labels.append(batch.y.cpu())
                    check_labels(first, labels[-1], True)
                losses.add(logits, batch)
                for decisions in filter(None, counted):
                    decisions.add(*match_shapes(logits, batch.y), batch.weight)
            if check_labels is not None:
                check_labels(first, torch.cat(labels), False)
            loss = losses.value()
    finally:
        objective.loss.train()
    return _make_validation(monitors, loss, [None if each is None else each.measure() for each in counted])


def split_loss(loss: nn.Module, share: float = 1.0) -> list[tuple[_Additive, float]] | None:
    """Return the parts of a loss that are functions of sums over samples; None if the loss has any other part."""
    if type(loss) in (nn.BCEWithLogitsLoss, nn.CrossEntropyLoss):
        return [(_TorchMean(loss), share)] if loss.reduction == "mean" else None
    try:
        if isinstance(loss, AdditiveLoss):
            check_parts(loss, "validation", ("statistics", "value"))
            return [(loss, share)]
        if isinstance(loss, Mix):
            check_parts(loss, "validation", ("__init__",))
            pairs = zip(loss.losses, loss.weights, strict=True)
            members = [split_loss(member, share * weight) for member, weight in pairs]
            return None if None in members else [part for parts in members for part in parts or ()]
    except InvalidTypeError:  # a subclass with a forward of its own
        pass
    return None


class _TorchMean:
    """A mean of torch as a sum of losses and a sum of weights."""

    def __init__(self, loss: nn.Module) -> None:
        self.mean, self.summed = loss, copy.copy(loss)
        self.summed.reduction = "sum"  # type: ignore[assignment]

    def statistics(self, logits: Tensor, target: Tensor) -> Tensor:
        size: Tensor | float
        if isinstance(self.mean, nn.BCEWithLogitsLoss):
            size = logits.numel()
        elif target.is_floating_point():
            size = logits.numel() / logits.shape[1]
        else:
            kept = target[target != self.mean.ignore_index]
            weight: Any = self.mean.weight
            size = kept.numel() if weight is None else weight[kept].sum()
        total: Tensor = self.summed(logits, target)
        return torch.stack([total.double(), torch.as_tensor(size, device=total.device).double()])

    def value(self, statistics: Tensor) -> Tensor:
        return statistics[0] / statistics[1]
