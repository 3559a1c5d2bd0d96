"""Whether a monitor can measure several labels or classes, before anything is trained."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.threshold_reading import refuse_classes
from metricfit.core.threshold_vectors import PerLabel, check_length
from metricfit.errors import InvalidValueError
from metricfit.train.monitor import Monitor
from metricfit.train.monitored_value import refuse_requirements

#: How many labels a message names.
SHOWN = 8


def check_columns(monitor: Monitor, target: Tensor, columns: int, *, exclusive: bool, name: str) -> None:
    """Refuse thresholds that the outputs do not have, and rankings of labels or classes that the set lacks.

    Args:
        monitor: A monitor of a metric or of a ranking.
        target: The labels of the validation set: class numbers, or ``(n, columns, ...)``.
        columns: The number of outputs of the model.
        exclusive: Whether the outputs are classes that exclude each other.
        name: The name of the set.

    Raises:
        InvalidValueError: The monitor does not go with the outputs, or would be NaN on these labels.
    """
    if isinstance(monitor.threshold, PerLabel):
        if exclusive:
            raise refuse_classes()
        check_length(monitor.threshold.numbers.unsqueeze(-1), columns)
    if columns == 1:
        return
    if monitor.threshold == "best" and exclusive:
        raise refuse_classes()
    if monitor.threshold == "best" and monitor.requirements:
        raise refuse_requirements(monitor.name)
    if monitor.in_pairs and not exclusive:
        raise InvalidValueError(
            f"{monitor.name} compares pairs of classes, but the model has {columns} labels; monitor 'auroc'"
        )
    if monitor.is_ranking and monitor.average != "micro":
        _check_presence(monitor, target, columns, exclusive=exclusive, name=name)


def _check_presence(monitor: Monitor, target: Tensor, columns: int, *, exclusive: bool, name: str) -> None:
    """Refuse an AUROC that is NaN because a label or class lacks positives or negatives."""
    if "negatives" not in monitor.needs:
        return
    known = (
        torch.ones_like(target, dtype=torch.bool) if monitor.ignore_index is None else target != monitor.ignore_index
    )
    if exclusive:
        positives = torch.bincount(target[known].long().cpu().clamp(0, columns - 1), minlength=columns)
        negatives = positives.sum() - positives
    else:
        axes = [axis for axis in range(target.dim()) if axis != 1]
        positives = ((target > 0.5) & known).sum(axes)
        negatives = ((target <= 0.5) & known).sum(axes)
    no_value = negatives == 0
    if monitor.average == "macro" and not monitor.in_pairs:  # pairs of a class without samples are left out
        no_value |= positives == 0
    if bool(no_value.any()):
        lacking = no_value.nonzero().flatten().tolist()
        shown = ", ".join(map(str, lacking[:SHOWN])) + (", ..." if len(lacking) > SHOWN else "")
        kind = "class" if exclusive else "label"
        raise InvalidValueError(
            f"the {name} set has no positives or no negatives of {kind} {shown}, so {monitor.name} would be NaN; use a "
            "stratified split, or Monitor(..., average='micro'), or monitor the loss"
        )
