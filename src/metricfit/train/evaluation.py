"""evaluate: the metrics of a trained model on data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.core.tasks import check_task
from metricfit.core.threshold_vectors import PerLabel, ThresholdGrid, ThresholdOfLogits, read_decision
from metricfit.core.types import ScalarAverage, Task, ZeroDivision
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidTypeError, InvalidValueError, UnknownNameError, quote
from metricfit.losses.base import takes_probabilities
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.registry import resolve_aliases
from metricfit.train.averaging import Averaging
from metricfit.train.data.samples import as_source, get_weight_dtype
from metricfit.train.evaluated_outputs import (
    CountedRows,
    compute_outputs,
    join_outputs,
    keeps_nothing,
    read_probabilities,
)
from metricfit.train.group_values import EvaluatedRows, read_groups
from metricfit.train.requested_metrics import (
    BEST,
    Measure,
    Request,
    Threshold,
    choose_threshold,
    measure,
    parse_requests,
)
from metricfit.train.stage import find_tasks, match_shapes

if TYPE_CHECKING:
    from metricfit.train.result import FitResult

SHOWN_THRESHOLDS = 4


@dataclass(frozen=True)
class Evaluation:
    """The values of metrics, with the logits and labels that they were computed from.

    Attributes:
        values: The value of each metric, by its name.
        logits: The model's outputs, on the CPU; None if they were not kept, see ``keep_logits`` of ``evaluate``.
        target: The labels, on the CPU; None with the logits.
        threshold: The threshold of all decisions: a number, or a tensor with one number per label, which
            ``metrics.PerLabel`` takes; NaN if the largest logit decides.
        best_thresholds: For metrics asked for as ``"best f1"``, which are measured at a threshold of their own, that
            threshold.
        tuned_for: The name of the metric that ``threshold="best"`` was chosen for, or None.
        by_group: The values of each group of rows, by the group's label; empty without ``groups``. A value that is
            not defined in a group, as recall without positives, is NaN.
        rows: The number of rows.
        per_image: With ``per_image=True``, the values of each metric for all images, ``(images,)``; NaN for images
            without counted pixels, and for those that ``zero_division="skip"`` leaves out.
        undefined: The metrics whose value is 0/0, as recall is without positives. Their values are 0 as in
            scikit-learn, and are printed as not known.

    Example:
        >>> result = evaluate(nn.Identity(), (torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])), "f1")
        >>> result["f1"]
        1.0
    """

    values: dict[str, float]
    logits: Tensor | None
    target: Tensor | None
    threshold: Threshold
    best_thresholds: dict[str, Threshold] = field(default_factory=dict)
    tuned_for: str | None = None
    by_group: dict[Any, dict[str, float]] = field(default_factory=dict)
    rows: int | None = None
    per_image: dict[str, Tensor] = field(default_factory=dict)
    undefined: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> float:
        """Return the value of a metric.

        With ``threshold="best"``, "best f1" is another name of the metric that the threshold was chosen for.

        Aliases, such as "dice", name the same value as the metric, "f1".

        Raises:
            KeyError: The metric was not measured.
        """
        metric = name if name in self.values else resolve_aliases(str(name))
        if metric not in self.values and metric == f"{BEST} {self.tuned_for}":
            metric = metric.removeprefix(f"{BEST} ")
        if metric not in self.values:
            raise UnknownNameError(f"{quote(name)} was not measured; there are {', '.join(self.values)}")
        return self.values[metric]

    def __repr__(self) -> str:
        parts = []
        for name, value in self.values.items():
            threshold = f" at {_format_threshold(self.best_thresholds[name])}" if name in self.best_thresholds else ""
            parts.append(f"{name}={'not known' if name in self.undefined else f'{value:.4g}'}{threshold}")
        setting = f"n={self.rows if self.target is None else len(self.target)}"
        if isinstance(self.threshold, Tensor):
            setting += f", thresholds={_format_threshold(self.threshold)}"
        elif not math.isnan(self.threshold):
            setting += f", threshold={_format_threshold(self.threshold)}"
        chosen = "" if self.tuned_for is None else f", the best for {self.tuned_for}"
        return f"Evaluation({', '.join(parts)}; {setting}{chosen})"


@torch.no_grad()
def evaluate(
    model: nn.Module | FitResult,
    data: Any,
    metrics: Measure | Sequence[Measure] = "f1",
    *,
    groups: Any = None,
    threshold: float | str | Sequence[float] | Tensor | PerLabel | ThresholdOfLogits | None = None,
    average: ScalarAverage = "macro",
    classes: Sequence[int] | None = None,
    zero_division: ZeroDivision = None,
    per_image: bool = False,
    from_probabilities: bool | None = None,
    task: Task | None = None,
    ignore_index: int | None = None,
    batch_size: int | None = None,
    workers: int = 0,
    keep_logits: bool | None = None,
) -> Evaluation:
    """Measure a model's decisions on data, in eval mode and without gradients.

    Args:
        model: A module that gives logits, or a FitResult; it is run where its weights are.
        data: ``(X, y)``, ``(X, y, weight)``, a Dataset or a DataLoader.
        metrics: One or several metrics, names of metrics or functions of Counts; also "auroc" and "average_precision",
            of several classes each one against the rest, "auroc_ovo" for the mean over pairs of classes, "best f1" for
            a metric at its own best threshold on the data, and gaps between groups, "recall.gap(2)".
        groups: The group of each row, integers or texts; all metrics are then also measured in each group, at the same
            threshold, and are in ``by_group`` of the result. Let a DataLoader return dictionaries with the keys "x",
            "y" and "group" instead.
        threshold: The threshold of binary and multilabel decisions: a number, one number per label (a list, a tensor or
            ``metrics.PerLabel``), a ``decide.Decision``, or "best". "best" is chosen on the data for the first metric
            of decisions, and all values are measured at this one decision. For several labels it is one threshold per
            label under the averages "macro" and "weighted", and one for all labels under "micro". The default is the
            threshold of a FitResult, or 0.5.
        average: The average over several classes: "macro", "micro" or "weighted".
        classes: The classes of the average, such as ``[1, 2, 3]`` without background; by default all. See
            ``metrics.averaged``.
        zero_division: What a class counts for where its metric is 0/0: 0, 1, or "skip", which leaves out classes, and
            with ``per_image`` images, without true samples. It applies to the metrics that have a value per class, so
            not to accuracy and rankings. See ``metrics.averaged``.
        per_image: Whether the value is the mean of the metrics of the images, which are in ``per_image`` of the result.
            Weights of images weigh them in the mean, weights of pixels count within their image, and images without
            counted pixels are left out.
        from_probabilities: Whether the model gives probabilities instead of logits. The default is what a FitResult's
            objective takes, or False.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings, as for
            overlapping masks ``(n, c, h, w)``. The default is the task of a FitResult's objective, if it has one.
        ignore_index: Samples with this label are ignored.
        batch_size: Number of samples per forward pass, by default 8,192, and fewer if they are large; a DataLoader has
            its own.
        workers: Number of processes that read a Dataset.
        keep_logits: Whether the result has the logits and labels of all samples. By default it has them, except for
            images: logits ``(n, c, h, w)`` take much memory, and metrics of decisions need only counts, which are
            added up batch by batch. Rankings, best thresholds and groups need all logits while they are measured.

    Returns:
        The values by name, the threshold or thresholds, and the logits and labels if they are kept.

    Raises:
        ValueError: The metrics, the threshold or the labels do not go with the model's outputs.
        TypeError: The model gives no logits.

    Example:
        >>> from torch import nn
        >>> x = torch.tensor([[1.0], [-1.0], [2.0]])
        >>> evaluate(nn.Identity(), (x, torch.tensor([1, 0, 1])), ["f1", "auroc"])
        Evaluation(f1=1, auroc=1; n=3, threshold=0.5)
    """
    averaging = Averaging(average, classes, zero_division, per_image)
    requests = parse_requests(metrics, averaging)
    check_task(task)
    decision = _check_threshold(threshold)
    if isinstance(decision, str):
        averaging.refuse_for("threshold='best'")
    if per_image and groups is not None:
        raise InvalidValueError("values are per image or per group, not both; leave per_image or groups out")
    if not isinstance(model, nn.Module):
        decision = _get_threshold(model) if decision is None else decision
        task = _get_task(model) if task is None else task
        from_probabilities = _get_input(model) if from_probabilities is None else from_probabilities
        model = getattr(model, "model", model)
        if not isinstance(model, nn.Module):
            raise InvalidTypeError(f"model must be a torch module or a FitResult, got {type(model).__name__}")
    source = as_source(data, "data", workers).with_dtype(get_weight_dtype(model))
    needs_scores = groups is not None or isinstance(decision, str) or any(map(Request.needs_scores, requests))
    stream = compute_outputs(model, source, batch_size)
    if from_probabilities:
        stream = read_probabilities(stream, task, ignore_index)
    first = next(stream)
    drops = keeps_nothing(keep_logits, first.logits)
    if per_image or (drops and not (needs_scores or first.group is not None)):
        counted = CountedRows(requests, decision, task, ignore_index, averaging)
        counted.add(first)
        kept = [] if drops else [first]
        del first  # so that one batch is in memory at a time
        for part in stream:
            counted.add(part)
            kept += [] if drops else [part]
            del part
        logits, target = join_outputs(kept)[:2] if kept else (None, None)
        return Evaluation(
            target=target, logits=logits, threshold=counted.threshold, rows=counted.rows, **counted.measure()
        )
    outputs, labels, weight, loaded_groups = join_outputs(chain([first], stream))
    check_nan_logits(outputs)
    logits, target = match_shapes(outputs, labels)
    rows = EvaluatedRows(logits, target, weight, ignore_index, task)
    samples = rows.settle()
    gaps = [request.metric for request in requests if isinstance(request.metric, GroupGap)]
    group_labels = read_groups(groups, loaded_groups, source, len(labels), gaps)
    decided = [request for request in requests if request.metric is not None and not request.own_threshold]
    tuned_for = decided[0] if decided and isinstance(decision, str) else None
    if tuned_for is not None and isinstance(tuned_for.metric, GroupGap):
        raise InvalidValueError(
            f"threshold='best' is chosen for the first metric, and {tuned_for.name} has no best threshold: it is 0 if "
            "nothing is positive; name another metric first"
        )
    shared_threshold = choose_threshold(samples, decision, None if tuned_for is None else tuned_for.metric, average)
    best_thresholds = {
        request.name: choose_threshold(samples, BEST, request.metric, average)
        for request in requests
        if request.own_threshold
    }
    thresholds = {request.name: best_thresholds.get(request.name, shared_threshold) for request in requests}
    whole = [request for request in requests if not isinstance(request.metric, GroupGap)]
    values, undefined = measure(samples, whole, thresholds)
    by_group: dict[Any, dict[str, float]] = {}
    if group_labels is not None:
        grouped = rows.settle(groups=group_labels) if gaps else samples
        of_gaps = [request for request in requests if request not in whole]
        values |= measure(grouped, of_gaps, thresholds)[0]
        values = {request.name: values[request.name] for request in requests}
        for name, members in rows.settle_groups(group_labels, samples):
            by_group[name], _ = measure(members, whole, thresholds, of_group=True)
    tuned_name = None if tuned_for is None else tuned_for.name
    return Evaluation(
        values,
        None if drops else outputs,
        None if drops else labels,
        shared_threshold,
        best_thresholds,
        tuned_name,
        by_group,
        len(labels),
        undefined=undefined,
    )


def _check_threshold(threshold: Any) -> Threshold | str | None:
    """Return the threshold as a number, a float64 tensor ``(labels,)``, "best" or None, and refuse anything else."""
    threshold = read_decision(threshold)
    if threshold is None or (isinstance(threshold, str) and threshold == BEST):
        return threshold
    if isinstance(threshold, PerLabel):  # at infinity, a label is never called
        return threshold.numbers.detach().cpu().double()
    if isinstance(threshold, ThresholdGrid):
        raise InvalidValueError("evaluate measures decisions at one threshold: pass one number, or metrics.PerLabel")
    expected = "threshold must be strictly between 0 and 1: a number, one number per label, or 'best'"
    try:
        plain = threshold.tolist() if hasattr(threshold, "tolist") else threshold  # tensors and arrays
        numbers = torch.as_tensor(plain, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}") from None
    if numbers.dim() > 1 or not numbers.numel() or not bool(((numbers > 0) & (numbers < 1)).all()):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}")
    return numbers.item() if numbers.dim() == 0 else numbers


def _get_threshold(result: Any) -> Threshold | None:
    """Return the threshold of a FitResult, or its thresholds; None without validation and for several classes."""
    threshold = getattr(result, "threshold", None)
    if isinstance(threshold, tuple):
        return torch.tensor(threshold, dtype=torch.float64)
    return threshold if isinstance(threshold, float) and 0 < threshold < 1 else None


def _get_task(result: Any) -> Task | None:
    """Return the task of a FitResult's objective; None if its parts have none, or several."""
    objective = getattr(result, "objective", None)
    if not isinstance(objective, nn.Module):
        return None
    tasks = find_tasks(objective)
    return tasks.pop() if len(tasks) == 1 else None


def _get_input(result: Any) -> bool:
    """Return whether a FitResult's objective takes probabilities instead of logits."""
    objective = getattr(result, "objective", None)
    return isinstance(objective, nn.Module) and takes_probabilities(objective)


def _format_threshold(threshold: Threshold) -> str:
    """Format a threshold, or the first and last of many, with a few digits."""
    if not isinstance(threshold, Tensor):
        return f"{threshold:g}"
    numbers = [f"{number:.3g}" for number in threshold.tolist()]
    if len(numbers) > SHOWN_THRESHOLDS:
        numbers = [*numbers[: SHOWN_THRESHOLDS - 1], "...", numbers[-1]]
        return f"[{', '.join(numbers)}] ({len(threshold)})"
    return f"[{', '.join(numbers)}]"
