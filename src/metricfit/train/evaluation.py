"""evaluate: the metrics of a trained model on data, a public function with its result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge, targets_judged
from metricfit.core.group_labels import GroupLabels, number_groups
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical
from metricfit.core.thresholds import PerLabel, ThresholdOfLogits
from metricfit.core.types import ScalarAverage, Task, ZeroDivision
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidTypeError, InvalidValueError, UnknownNameError, quote
from metricfit.losses.base import takes_probabilities
from metricfit.metrics.areas import UndefinedRankingWarning
from metricfit.metrics.average import SKIP
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric
from metricfit.metrics.registry import resolve_aliases
from metricfit.train.data.batches import Batch, check_outputs
from metricfit.train.data.sources import FromLoader, InMemory, Source, as_source, get_weight_dtype
from metricfit.train.engine.launching import OneDevice
from metricfit.train.engine.validation import compute_outputs, join_outputs
from metricfit.train.monitor import Measured, Monitor, MonitorStream, read_threshold
from metricfit.train.stage import find_tasks, match_shapes

if TYPE_CHECKING:
    from metricfit.train.result import FitResult

SHOWN_THRESHOLDS = 4
BEST = "best"
Threshold = float | Tensor

#: A metric of decisions or a measure of scores: the object, its name, or a function of Counts.
Measure = str | Metric | RankingMetric | Formula


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

    It is the right one for a trained model and a data set: it runs the model, and measures several metrics at once.

    Args:
        model: A module that gives logits, or a FitResult; it is run where its weights are.
        data: ``(X, y)``, ``(X, y, weight)``, a dictionary of them as for ``fit``, a Dataset or a DataLoader.
        metrics: One or several metrics, names of metrics or functions of Counts; also "auroc" and "average_precision",
            of several classes each one against the rest, and "auroc_ovo", the mean over pairs of classes. "best f1" is
            the metric at its best threshold on the data, and "recall.gap(2)" a gap between groups.
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
    asked = None if threshold is None else read_threshold(threshold)
    if per_image and groups is not None:
        raise InvalidValueError("values are per image or per group, not both; leave per_image or groups out")
    if not isinstance(model, nn.Module):
        asked = _get_threshold(model) if asked is None else asked
        objective = getattr(model, "objective", None)
        if isinstance(objective, nn.Module):
            tasks = find_tasks(objective)
            task = tasks.pop() if task is None and len(tasks) == 1 else task
            from_probabilities = takes_probabilities(objective) if from_probabilities is None else from_probabilities
        model = getattr(model, "model", model)
        if not isinstance(model, nn.Module):
            raise InvalidTypeError(f"model must be a torch module or a FitResult, got {type(model).__name__}")
    shared = 0.5 if asked is None or isinstance(asked, str) else asked
    settings: dict[str, Any] = {"average": average, "classes": classes, "per_image": per_image, "task": task}
    monitors = make_monitors(metrics, shared, zero_division, **settings, ignore_index=ignore_index)
    source = as_source(data, "data", workers).with_dtype(get_weight_dtype(model))
    if isinstance(source, InMemory) and source.group is not None:
        groups, source = source.group if groups is None else groups, replace(source, group=None)
    reading = CountSettings(task=task, ignore_index=ignore_index, validate=True)
    stream = _compute_outputs(model, source, batch_size, reading if from_probabilities else None)
    first = next(stream)
    drops = first[0].dim() > 2 if keep_logits is None else not keep_logits
    is_grouped = groups is not None or first[1].group is not None
    scored = is_grouped or isinstance(asked, str) or any(map(_needs_scores, monitors.values()))
    parts: Iterable[tuple[Tensor, Batch]] = chain(iter([first]), stream)
    del first  # so that one batch is in memory at a time; an exhausted iterator of a list does not keep it
    if drops and (per_image or not scored):
        return _measure_stream(parts, monitors, reading)
    logits, batch = join_outputs(parts)
    if per_image or not scored:
        result = _measure_stream([(logits, batch)], monitors, reading)
    else:
        labels = read_groups(groups, batch.group, source, len(batch), monitors)
        with_groups = None if labels is None else (torch.from_numpy(labels.numbers), labels.names)
        result = _measure_together(logits, batch, monitors, isinstance(asked, str), reading, with_groups)
    return result if drops else replace(result, logits=logits, target=batch.y)


def _get_threshold(result: Any) -> float | PerLabel | None:
    """Return the threshold of a FitResult, or its thresholds; None without validation and for several classes."""
    threshold = getattr(result, "threshold", None)
    if isinstance(threshold, tuple):
        return PerLabel(torch.tensor(threshold, dtype=torch.float64))
    return threshold if isinstance(threshold, float) and 0 < threshold < 1 else None


def _format_threshold(threshold: Threshold) -> str:
    """Format a threshold, or the first and last of many, with a few digits."""
    if not isinstance(threshold, Tensor):
        return f"{threshold:g}"
    numbers = [f"{number:.3g}" for number in threshold.tolist()]
    if len(numbers) > SHOWN_THRESHOLDS:
        numbers = [*numbers[: SHOWN_THRESHOLDS - 1], "...", numbers[-1]]
        return f"[{', '.join(numbers)}] ({len(threshold)})"
    return f"[{', '.join(numbers)}]"


def make_monitors(
    metrics: Measure | Sequence[Measure], threshold: float | PerLabel, zero_division: ZeroDivision, **settings: Any
) -> dict[str, Monitor]:
    """Return a monitor for each metric that ``evaluate`` was asked for, by the name of its value.

    Raises:
        ValueError: There are none, one is unknown, or it does not go with the settings.
    """
    several = [metrics] if isinstance(metrics, (str, Metric, RankingMetric)) or callable(metrics) else list(metrics)
    if not several:
        raise InvalidValueError("evaluate needs at least one metric, such as 'f1'")
    monitors = dict(_make_monitor(metric, threshold, zero_division, settings) for metric in several)
    first = next(iter(monitors.values()))
    if all(monitor.zero_division != zero_division for monitor in monitors.values()):
        replace(first, zero_division=zero_division)  # an error: it applies to no metric
    return monitors


def _make_monitor(
    measure: Measure, threshold: float | PerLabel, zero_division: ZeroDivision, settings: Mapping[str, Any]
) -> tuple[str, Monitor]:
    text = measure.strip() if isinstance(measure, str) else ""
    if text == "loss":
        raise InvalidValueError("evaluate measures metrics; for a loss, call it on the logits that evaluate returns")
    if text.startswith(f"{BEST} "):
        monitor = Monitor(text.removeprefix(BEST).strip(), threshold=BEST, **settings)
        assert isinstance(monitor.measured, Metric)
        name = monitor.measured.name
        if isinstance(monitor.measured, GroupGap):
            raise InvalidValueError(f"{name} is 0 if nothing is positive, so it has no best threshold of its own")
        return f"{BEST} {name}", monitor
    monitor = Monitor(measure, **settings)
    metric = monitor.measured
    if not isinstance(metric, Metric):
        return str(metric), monitor
    takes_it = not isinstance(metric, GroupGap) and (not metric.whole_matrix or zero_division == SKIP)
    return metric.name, replace(monitor, threshold=threshold, zero_division=zero_division if takes_it else None)


def _needs_scores(monitor: Monitor) -> bool:
    """Check whether the counts at one threshold are not enough to measure it."""
    return monitor.needs_scores or isinstance(monitor.measured, GroupGap)


def _as_result(threshold: Any) -> Threshold:
    """Return a threshold as it is in the result: several as a tensor."""
    if isinstance(threshold, PerLabel):
        return torch.as_tensor(threshold.numbers).detach().cpu().double()
    return torch.tensor(threshold, dtype=torch.float64) if isinstance(threshold, tuple) else threshold


def _compute_outputs(
    model: nn.Module, data: Source, batch_size: int | None, probabilities: CountSettings | None
) -> Iterator[tuple[Tensor, Batch]]:
    """Return the logits of a model, in eval mode, batch by batch, with labels, weights and groups, on the CPU.

    Args:
        model: The model.
        data: The samples.
        batch_size: Number of samples per batch; None for as many as a forward pass takes.
        probabilities: How the labels are read, if the model gives probabilities; None for logits.

    Raises:
        ValueError: The model's outputs are not one row per sample, or there are no batches.
        TypeError: The model does not return a tensor.
    """
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device

    def place(x: Any) -> Any:
        return x.to(device) if isinstance(x, Tensor) else x

    def read(output: tuple[Tensor, Batch]) -> tuple[Tensor, Batch]:
        outputs, batch = output
        labels = Batch(None, batch.y, batch.weight, None, batch.group).to(torch.device("cpu"))
        logits = check_outputs(outputs, len(batch)).cpu()
        if probabilities is not None:
            settings = probabilities
            logits = logits_of(*match_shapes(logits, labels.y), settings.task, settings.ignore_index, exact=True)
        return logits, labels

    return map(read, compute_outputs(OneDevice(device), model, data, place, batch_size=batch_size))


def _measure_stream(
    parts: Iterable[tuple[Tensor, Batch]], monitors: Mapping[str, Monitor], settings: CountSettings
) -> Evaluation:
    """Measure metrics from the counts of each batch, in memory of the size of the counts."""
    stream = MonitorStream(_find_counter(monitors.values()))
    judge, rows, weighted = TargetJudge(), 0, 0
    for logits, batch in parts:
        rows, weighted = rows + len(batch), weighted + (0 if batch.weight is None else len(batch))
        if weighted not in (0, rows):
            raise InvalidValueError("some batches have weights and others have none; give them to all or to none")
        logits, target = match_shapes(logits, batch.y)
        if settings.task is None and logits.dim() == 2 and logits.shape == target.shape and logits.shape[1] > 1:
            judge.observe(target, settings.ignore_index)
        with targets_judged():
            stream.add(logits, target, batch.weight)
        del logits, batch, target
    judge.conclude(f"target ({rows} rows)", stacklevel=4)
    counts, shares = stream.joined()
    measured = {name: monitor.measure_counts(counts, shares=shares) for name, monitor in monitors.items()}
    of_images: dict[str, Tensor] = {}
    if shares is not None:
        of_images = {name: torch.where(shares > 0, each.values(counts), math.nan) for name, each in monitors.items()}
    threshold = _as_result(next(iter(measured.values())).threshold)
    return _make_evaluation(measured, threshold, rows=rows, per_image=of_images)


def _find_counter(monitors: Iterable[Monitor]) -> Monitor:
    """Return the monitor whose counts serve all of these, which have one threshold."""
    return max(monitors, key=lambda each: isinstance(each.measured, Metric) and each.measured.needs_matrix)


def _make_evaluation(measured: Mapping[str, Measured], *arguments: Any, **settings: Any) -> Evaluation:
    values = {name: result.value for name, result in measured.items()}
    undefined = frozenset(name for name, result in measured.items() if result.undefined)
    return Evaluation(values, None, None, *arguments, **{**settings, "undefined": undefined})


def _measure_together(
    outputs: Tensor,
    batch: Batch,
    monitors: Mapping[str, Monitor],
    tunes: bool,
    settings: CountSettings,
    groups: tuple[Tensor, Sequence[Any]] | None,
) -> Evaluation:
    """Measure all rows together, and the rows of each group.

    Args:
        outputs: The logits of all rows.
        batch: Their labels and weights.
        monitors: The metrics by name.
        tunes: Whether the threshold of all decisions is the best for the first metric of decisions.
        settings: How the rows are read.
        groups: The group number of each row and the labels of the groups, if there are any.
    """
    check_nan_logits(outputs)
    logits, target = match_shapes(outputs, batch.y)
    samples = canonical(logits, target, settings, weight=batch.weight, judge=TargetJudge())
    exclusive = isinstance(samples, Classes)
    decided = [name for name, monitor in monitors.items() if not monitor.needs_scores]
    tuned_for = decided[0] if decided and tunes else None
    if tuned_for is not None and isinstance(monitors[tuned_for].measured, GroupGap):
        raise InvalidValueError(
            f"threshold='best' is chosen for the first metric, and {tuned_for} has no best threshold: it is 0 if "
            "nothing is positive; name another metric first"
        )

    def measure(monitor: Monitor, rows: Any = slice(None)) -> Measured:
        weight = None if batch.weight is None else batch.weight[rows]
        gap = isinstance(monitor.measured, GroupGap) and groups is not None
        return monitor.measure(logits[rows], target[rows], weight, group=groups[0] if gap and groups else None)

    def tuned(name: str) -> Any:
        threshold = measure(replace(monitors[name], threshold=BEST)).threshold
        return PerLabel(threshold) if isinstance(threshold, tuple) else threshold

    by_group: dict[Any, dict[str, float]] = {}
    with targets_judged():
        shared = math.nan if exclusive or tunes else monitors[decided[0]].threshold if decided else 0.5
        fixed, best = dict(monitors), {name: tuned(name) for name in monitors if monitors[name].threshold == BEST}
        if tuned_for is not None:
            shared = tuned(tuned_for)
            fixed |= {name: replace(monitors[name], threshold=shared) for name in decided}
        fixed |= {name: replace(monitors[name], threshold=best[name]) for name in best}
        measured = {name: measure(monitor) for name, monitor in fixed.items()}
        for number, name in enumerate(() if groups is None else groups[1]):
            assert groups is not None
            rows = groups[0] == number
            if bool(rows.any()):
                by_group[name] = _measure_group(fixed, samples, partial(measure, rows=rows))
    thresholds = {name: _as_result(threshold) for name, threshold in best.items()}
    return _make_evaluation(measured, _as_result(shared), thresholds, tuned_for, by_group, len(batch))


def _measure_group(
    monitors: Mapping[str, Monitor], samples: Columns | Classes, measure: Callable[[Monitor], Measured]
) -> dict[str, float]:
    """Measure the rows of a group, read like all rows; a value that is not defined is NaN."""
    columns: Task = "binary" if samples.logits.shape[-2] == 1 else "multilabel"
    task: Task = "multiclass" if isinstance(samples, Classes) else columns
    values = {}
    for name, monitor in monitors.items():
        if isinstance(monitor.measured, GroupGap):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedRankingWarning)
                result = measure(replace(monitor, task=task))
        except InvalidValueError:  # a ranking of one class; all rows together were measured before
            values[name] = math.nan
            continue
        values[name] = math.nan if result.undefined else result.value
    return values


def read_groups(
    labels: Any, loaded: Tensor | None, source: Source, rows: int, monitors: Mapping[str, Monitor]
) -> GroupLabels | None:
    """Number the groups of rows, in the order of the names of a gap if there are any.

    Args:
        labels: One label per row, or None.
        loaded: The group numbers of the batches of a DataLoader or a Dataset, or None.
        source: The data.
        rows: The number of rows.
        monitors: The metrics that will be measured.

    Returns:
        The group number of each row, and the labels of the groups; None if there are no groups.

    Raises:
        ValueError: The labels do not go with the rows or with the gaps.
    """
    gaps = [each.measured for each in monitors.values() if isinstance(each.measured, GroupGap)]
    if labels is not None and isinstance(source, FromLoader):
        raise InvalidValueError(
            "groups are for (X, y) and a Dataset; let the DataLoader return dictionaries with 'group'"
        )
    labels = loaded if labels is None else labels
    if labels is None:
        if gaps:
            raise InvalidValueError(f"{gaps[0].name} needs groups: pass groups=, one label per row")
        return None
    numbered = number_groups(labels, rows, "groups")
    for gap in gaps:
        known = tuple(range(gap.groups)) if gap.group_names is None else gap.group_names
        if set(numbered.names) <= set(known):  # in the order of the gap; a group may have no rows here
            numbered = number_groups(labels, rows, "groups", known)
        elif gap.group_names is not None or len(numbered.names) != gap.groups:
            raise InvalidValueError(f"{gap.name} is between {gap.groups} groups, but groups has {list(numbered.names)}")
    return numbered
