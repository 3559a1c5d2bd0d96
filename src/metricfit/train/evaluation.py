"""evaluate: the metrics of a trained model on data, a public function with its result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_batch
from metricfit.core.group_labels import GroupLabels, number_groups
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, check_task
from metricfit.core.thresholds import PerLabel, ThresholdOfLogits, check_length, refuse_classes
from metricfit.core.types import ScalarAverage, Task, ZeroDivision
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidTypeError, InvalidValueError, UnknownNameError, quote
from metricfit.losses.base import takes_probabilities
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric
from metricfit.metrics.registry import resolve_aliases
from metricfit.train.data.batches import Batch, check_outputs
from metricfit.train.data.sources import FromLoader, InMemory, Source, as_source, get_weight_dtype
from metricfit.train.engine.launching import OneDevice
from metricfit.train.engine.validation import compute_outputs, join_outputs
from metricfit.train.label_thresholds import best_label_thresholds
from metricfit.train.monitor import Averaging, CountedStream, Monitor, read_threshold
from metricfit.train.stage import find_tasks, match_shapes

if TYPE_CHECKING:
    from metricfit.train.result import FitResult

SHOWN_THRESHOLDS = 4
BEST = "best"
Threshold = float | Tensor

#: A metric of decisions or a measure of scores: the object, its name, or a function of Counts.
Measure = str | Metric | RankingMetric | Formula

#: Maximum number of logits that are counted at once; counting takes several times their memory.
COUNTED_AT_ONCE = 2**20


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
        data: ``(X, y)``, ``(X, y, weight)``, a dictionary of them as for ``fit``, a Dataset or a DataLoader.
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
    requests = make_monitors(metrics, averaging)
    check_task(task)
    decision = None if threshold is None else read_threshold(threshold)
    asked = torch.as_tensor(decision.numbers).detach().cpu().double() if isinstance(decision, PerLabel) else decision
    if isinstance(asked, str):
        averaging.refuse_for("threshold='best'")
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
    settings = CountSettings(task=task, ignore_index=ignore_index, per_image=per_image, validate=True)
    source = as_source(data, "data", workers).with_dtype(get_weight_dtype(model))
    if isinstance(source, InMemory) and source.group is not None:
        groups, source = source.group if groups is None else groups, replace(source, group=None)
    stream = _compute_outputs(model, source, batch_size, settings if from_probabilities else None)
    first = next(stream)
    drops = first[0].dim() > 2 if keep_logits is None else not keep_logits
    is_grouped = groups is not None or first[1].group is not None
    counted = None
    if per_image or (
        drops and not is_grouped and not isinstance(asked, str) and not any(map(needs_scores, requests.values()))
    ):
        counted = CountedRows(requests, asked, settings, averaging)
    parts: Iterable[tuple[Tensor, Batch]] = chain(iter([first]), stream)
    del first  # so that one batch is in memory at a time; an exhausted iterator of a list does not keep it
    if counted is not None and drops:
        for part in parts:
            counted.add(*part)
            del part
        return counted.measure()
    logits, batch = join_outputs(parts)
    if counted is not None:
        counted.add(logits, batch)
        return replace(counted.measure(), logits=logits, target=batch.y)
    check_nan_logits(logits)
    result = _measure_together(logits, batch, requests, asked, settings, (groups, source), average)
    return replace(result, logits=None, target=None) if drops else result


def _get_threshold(result: Any) -> Threshold | None:
    """Return the threshold of a FitResult, or its thresholds; None without validation and for several classes."""
    threshold = getattr(result, "threshold", None)
    if isinstance(threshold, tuple):
        return torch.tensor(threshold, dtype=torch.float64)
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


def make_monitors(metrics: Measure | Sequence[Measure], averaging: Averaging) -> dict[str, Monitor]:
    """Return a monitor for each metric that ``evaluate`` was asked for, by the name of its value.

    Raises:
        ValueError: There are none, one is unknown, or it does not go with the average.
    """
    several = [metrics] if isinstance(metrics, (str, Metric, RankingMetric)) or callable(metrics) else list(metrics)
    if not several:
        raise InvalidValueError("evaluate needs at least one metric, such as 'f1'")
    monitors = dict(_make_monitor(metric, averaging) for metric in several)
    first, *others = monitors.values()
    if all(monitor.zero_division != averaging.zero_division for monitor in (first, *others)):
        replace(first, zero_division=averaging.zero_division)  # an error: it applies to no metric
    return monitors


def _make_monitor(measure: Measure, averaging: Averaging) -> tuple[str, Monitor]:
    text = measure.strip() if isinstance(measure, str) else ""
    if text == "loss":
        raise InvalidValueError("evaluate measures metrics; for a loss, call it on the logits that evaluate returns")
    is_best = text.startswith(f"{BEST} ")
    settings: dict[str, Any] = {"average": averaging.average, "classes": averaging.classes}
    settings |= {"per_image": averaging.per_image, "threshold": BEST if is_best else 0.5}
    monitor = Monitor(text.removeprefix(BEST).strip() if is_best else measure, **settings)
    metric = monitor.measured
    assert metric is not None
    if is_best and isinstance(metric, GroupGap):
        raise InvalidValueError(f"{metric.name} is 0 if nothing is positive, so it has no best threshold of its own")
    fixed = averaging.for_metric(metric if isinstance(metric, Metric) and not is_best else None)
    return f"{BEST} {metric.name}" if is_best else metric.name, replace(monitor, zero_division=fixed.zero_division)


def measure(
    samples: Columns | Classes,
    requests: Mapping[str, Monitor],
    thresholds: Mapping[str, Threshold],
    *,
    of_group: bool = False,
) -> tuple[dict[str, float], frozenset[str]]:
    """Measure metrics, each at its threshold.

    Args:
        samples: The rows.
        requests: The metrics by name.
        thresholds: The threshold of each metric of decisions, by its name.
        of_group: Whether these are the rows of one group, of which a value that is not defined is NaN.

    Returns:
        The values, and the names of the metrics whose value is 0/0.
    """
    matrix = needs_matrix(requests)
    counts: dict[int, Counts] = {}  # most metrics share one threshold
    values: dict[str, float] = {}
    undefined = set()
    for name, request in requests.items():
        if isinstance(request.measured, RankingMetric):
            if of_group and bool((samples.target == samples.target.flatten()[0]).all()):
                undefined.add(name)
            else:
                values[name] = request.measured.measure_samples(samples, request.average, warn=not of_group)
            continue
        assert request.measured is not None
        threshold = thresholds[name]
        if id(threshold) not in counts:
            counts[id(threshold)] = count_batch(samples, per_label(threshold), matrix=matrix)
        values[name] = request.averaging.value(request.measured, counts[id(threshold)])
        if request.averaging.is_undefined(request.measured, counts[id(threshold)]):
            undefined.add(name)
    return values | dict.fromkeys(undefined if of_group else (), math.nan), frozenset(undefined)


def needs_matrix(requests: Mapping[str, Monitor]) -> bool:
    """Check whether a metric needs the confusion matrix of exclusive classes."""
    return any(isinstance(each.measured, Metric) and each.measured.needs_matrix for each in requests.values())


def needs_scores(request: Monitor) -> bool:
    """Check whether the counts at one threshold are not enough to measure it."""
    return request.needs_scores or isinstance(request.measured, GroupGap)


def per_label(threshold: Threshold) -> Threshold:
    """Return a threshold, or one per label, in the shape in which it is compared with the logits ``(labels, n)``."""
    return threshold.unsqueeze(-1) if isinstance(threshold, Tensor) else threshold


def choose_threshold(
    samples: Columns | Classes, threshold: Threshold | str | None, metric: Metric | None, average: ScalarAverage
) -> Threshold:
    """Return the threshold; "best" is chosen for the metric. It is NaN if the largest logit decides."""
    if isinstance(samples, Classes):
        if isinstance(threshold, (str, Tensor)):
            raise refuse_classes()
        return math.nan
    if isinstance(threshold, Tensor):
        check_length(threshold.unsqueeze(-1), samples.logits.shape[-2])
    if isinstance(threshold, str):
        return math.nan if metric is None else best_label_thresholds(samples, metric, average)
    return 0.5 if threshold is None else threshold


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


class CountedRows:
    """The counts of all rows at one threshold, in memory of the size of the counts.

    Args:
        requests: The metrics, all of counts at this threshold.
        asked: The threshold that the user has set, or None.
        settings: How the rows are read.
        averaging: How values of classes and of images become one number.
    """

    def __init__(
        self,
        requests: Mapping[str, Monitor],
        asked: Threshold | str | None,
        settings: CountSettings,
        averaging: Averaging,
    ) -> None:
        self.requests, self.asked, self.settings = requests, asked, settings
        self.threshold: Threshold = 0.5
        self.rows = self.weighted = 0
        self.stream = CountedStream(averaging)
        self.judge = TargetJudge()

    def add(self, logits: Tensor, batch: Batch) -> None:
        """Add the rows of a batch."""
        self.rows += len(batch)
        self.weighted += 0 if batch.weight is None else len(batch)
        if self.weighted not in (0, self.rows):
            raise InvalidValueError("some batches have weights and others have none; give them to all or to none")
        check_nan_logits(logits)
        logits, target = match_shapes(logits, batch.y)
        if self.settings.task is None and logits.dim() == 2 and logits.shape == target.shape and logits.shape[1] > 1:
            self.judge.observe(target, self.settings.ignore_index)
        matrix = needs_matrix(self.requests)
        rows = max(1, COUNTED_AT_ONCE // max(1, logits[0].numel()))
        for first in range(0, len(logits), rows):
            part = slice(first, first + rows)
            weight = None if batch.weight is None else batch.weight[part]
            samples = canonical(logits[part], target[part], self.settings, weight=weight)
            self.threshold = choose_threshold(samples, self.asked, None, "macro")
            self.stream.add(count_batch(samples, per_label(self.threshold), matrix=matrix), weight)

    def measure(self) -> Evaluation:
        """Return the values, the metrics that are 0/0, and with ``per_image`` the images' values."""
        self.judge.conclude(f"target ({self.rows} rows)", stacklevel=4)
        counts, shares = self.stream.joined()
        values, undefined, of_images = {}, set(), {}
        for name, request in self.requests.items():
            assert isinstance(request.measured, Metric)
            values[name] = request.averaging.value(request.measured, counts, shares)
            if shares is not None:
                of_image = request.averaging.values(request.measured, counts)
                of_images[name] = torch.where(shares > 0, of_image, math.nan)
            elif request.averaging.is_undefined(request.measured, counts):
                undefined.add(name)
        return Evaluation(
            values, None, None, self.threshold, rows=self.rows, per_image=of_images, undefined=frozenset(undefined)
        )


def _measure_together(
    logits: Tensor,
    batch: Batch,
    requests: Mapping[str, Monitor],
    asked: Threshold | str | None,
    settings: CountSettings,
    groups: tuple[Any, Source],
    average: ScalarAverage,
) -> Evaluation:
    """Measure all rows together, and the rows of each group.

    Args:
        logits: The logits of all rows.
        batch: Their labels, weights and groups.
        requests: The metrics.
        asked: The threshold that the user has set, "best" or None.
        settings: How the rows are read.
        groups: The labels of groups that the user passed, or None, and the data.
        average: The average over several classes.
    """
    samples = _settle(logits, batch, settings)
    gaps = {name: request for name, request in requests.items() if isinstance(request.measured, GroupGap)}
    group_labels = read_groups(groups[0], batch.group, groups[1], len(batch), list(gaps.values()))
    at_best = [name for name, request in requests.items() if request.threshold == BEST]
    decided = [name for name, request in requests.items() if not request.is_ranking and name not in at_best]
    tuned_for = decided[0] if decided and isinstance(asked, str) else None
    if tuned_for in gaps:
        raise InvalidValueError(
            f"threshold='best' is chosen for the first metric, and {tuned_for} has no best threshold: it is 0 if "
            "nothing is positive; name another metric first"
        )

    def choose(threshold: Threshold | str | None, name: str | None) -> Threshold:
        metric = None if name is None else requests[name].measured
        assert not isinstance(metric, RankingMetric)
        return choose_threshold(samples, threshold, metric, average)

    shared, best = choose(asked, tuned_for), {name: choose(BEST, name) for name in at_best}
    thresholds = {name: best.get(name, shared) for name in requests}
    whole = {name: request for name, request in requests.items() if name not in gaps}
    values, undefined = measure(samples, whole, thresholds)
    by_group: dict[Any, dict[str, float]] = {}
    if group_labels is not None:
        numbers = torch.from_numpy(group_labels.numbers)
        if gaps:
            grouped = _settle(logits, batch, settings._replace(groups=len(group_labels.names)), group=numbers)
            values |= measure(grouped, gaps, thresholds)[0]
            values = {name: values[name] for name in requests}
        columns: Task = "binary" if samples.logits.shape[-2] == 1 else "multilabel"
        same_task = settings._replace(task="multiclass" if isinstance(samples, Classes) else columns)
        for number, name in enumerate(group_labels.names):
            rows = numbers == number
            if bool(rows.any()):
                members = _settle(logits, batch, same_task, rows)
                by_group[name], _ = measure(members, whole, thresholds, of_group=True)
    return Evaluation(values, logits, batch.y, shared, best, tuned_for, by_group, len(batch), undefined=undefined)


def _settle(
    logits: Tensor, batch: Batch, settings: CountSettings, rows: Tensor | None = None, group: Tensor | None = None
) -> Columns | Classes:
    """Return all rows, or some of them, in their final shape."""
    logits, target = match_shapes(logits, batch.y)
    weight = batch.weight
    if rows is not None:
        logits, target, weight = logits[rows], target[rows], None if weight is None else weight[rows]
    return canonical(logits, target, settings, weight=weight, group=group, judge=TargetJudge())


def read_groups(
    labels: Any, loaded: Tensor | None, source: Source, rows: int, requests: Sequence[Monitor]
) -> GroupLabels | None:
    """Number the groups of rows, in the order of the names of a gap if there are any.

    Args:
        labels: One label per row, or None.
        loaded: The group numbers of the batches of a DataLoader or a Dataset, or None.
        source: The data.
        rows: The number of rows.
        requests: The gaps that will be measured.

    Returns:
        The group number of each row, and the labels of the groups; None if there are no groups.

    Raises:
        ValueError: The labels do not go with the rows or with the gaps.
    """
    gaps = [request.measured for request in requests if isinstance(request.measured, GroupGap)]
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
