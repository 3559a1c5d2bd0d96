"""evaluate: the metrics of a trained model on data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge
from metricfit.core.counting import count_batch
from metricfit.core.tasks import canonical, check_task
from metricfit.core.types import ScalarAverage, Task
from metricfit.core.validation import check_nan_logits
from metricfit.decide.label_thresholds import best_label_thresholds
from metricfit.errors import InvalidTypeError, InvalidValueError, UnknownNameError, quote
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric, get_measure, get_ranking
from metricfit.metrics.registry import rankings
from metricfit.train.data.batches import Batch
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.samples import Source, as_source, get_weight_dtype
from metricfit.train.stage import find_tasks, match_shapes

if TYPE_CHECKING:
    from metricfit.train.result import FitResult

BEST = "best"
SHOWN_THRESHOLDS = 4
Threshold = float | Tensor


#: A metric of decisions or a measure of scores: the object, its name, or a function of Counts.
Measure = str | Metric | RankingMetric | Formula


@dataclass(frozen=True)
class Evaluation:
    """The values of metrics, with the logits and labels that they were computed from.

    Attributes:
        values: The value of each metric, by its name.
        logits: The model's outputs, on the CPU.
        target: The labels, on the CPU.
        threshold: The threshold of all decisions: a number, or a tensor with one number per label; NaN if the
            largest logit decides.
        best_thresholds: For metrics asked for as ``"best f1"``, which are measured at a threshold of their own, that
            threshold.
        tuned_for: The name of the metric that ``threshold="best"`` was chosen for, or None.

    Example:
        >>> result = evaluate(nn.Identity(), (torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])), "f1")
        >>> result["f1"]
        1.0
    """

    values: dict[str, float]
    logits: Tensor
    target: Tensor
    threshold: Threshold
    best_thresholds: dict[str, Threshold] = field(default_factory=dict)
    tuned_for: str | None = None

    def __getitem__(self, name: str) -> float:
        """Return the value of a metric.

        With ``threshold="best"``, "best f1" is another name of the metric that the threshold was chosen for.

        Raises:
            KeyError: The metric was not measured.
        """
        if name not in self.values and name == f"{BEST} {self.tuned_for}":
            name = name.removeprefix(f"{BEST} ")
        if name not in self.values:
            raise UnknownNameError(f"{quote(name)} was not measured; there are {', '.join(self.values)}")
        return self.values[name]

    def __repr__(self) -> str:
        parts = []
        for name, value in self.values.items():
            threshold = f" at {_format_threshold(self.best_thresholds[name])}" if name in self.best_thresholds else ""
            parts.append(f"{name}={value:.4g}{threshold}")
        setting = f"n={len(self.target)}"
        if isinstance(self.threshold, Tensor):
            setting += f", thresholds={_format_threshold(self.threshold)}"
        elif not math.isnan(self.threshold):
            setting += f", threshold={_format_threshold(self.threshold)}"
        chosen = "" if self.tuned_for is None else f", the best for {self.tuned_for}"
        return f"Evaluation({', '.join(parts)}; {setting}{chosen})"


@dataclass(frozen=True)
class _Request:
    """A requested metric of decisions, or a ranking such as "auroc"."""

    name: str
    metric: Metric | None
    own_threshold: bool
    ranking: RankingMetric | None = None


@torch.no_grad()
def evaluate(
    model: nn.Module | FitResult,
    data: Any,
    metrics: Measure | Sequence[Measure] = "f1",
    *,
    threshold: float | str | Sequence[float] | Tensor | None = None,
    average: ScalarAverage = "macro",
    task: Task | None = None,
    ignore_index: int | None = None,
    batch_size: int = 8192,
    workers: int = 0,
) -> Evaluation:
    """Measure a model's decisions on data, in eval mode and without gradients.

    Args:
        model: A module that gives logits, or a FitResult; it is run where its weights are.
        data: ``(X, y)``, ``(X, y, weight)``, a Dataset or a DataLoader.
        metrics: One or several metrics, names of metrics or functions of Counts; also "auroc" and "average_precision",
            and "best f1" for a metric at its own best threshold on the data.
        threshold: The threshold of binary and multilabel decisions: a number, one number per label, or "best". "best"
            is chosen on the data for the first metric of decisions, and all values are measured at this one decision.
            For several labels it is one threshold per label under the averages "macro" and "weighted", and one for all
            labels under "micro". The default is the threshold of a FitResult, or 0.5.
        average: The average over several classes: "macro", "micro" or "weighted".
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings, as for
            overlapping masks ``(n, c, h, w)``. The default is the task of a FitResult's objective, if it has one.
        ignore_index: Samples with this label are ignored.
        batch_size: Number of samples per forward pass; a DataLoader has its own.
        workers: Number of processes that read a Dataset.

    Returns:
        The values by name, the threshold or thresholds, the logits and the labels.

    Raises:
        ValueError: The metrics, the threshold or the labels do not go with the model's outputs.
        TypeError: The model gives no logits.

    Example:
        >>> from torch import nn
        >>> x = torch.tensor([[1.0], [-1.0], [2.0]])
        >>> evaluate(nn.Identity(), (x, torch.tensor([1, 0, 1])), ["f1", "auroc"])
        Evaluation(f1=1, auroc=1; n=3, threshold=0.5)
    """
    requests = _parse_requests(metrics, average)
    check_task(task)
    decision = _check_threshold(threshold)
    if not isinstance(model, nn.Module):
        decision = _get_threshold(model) if decision is None else decision
        task = _get_task(model) if task is None else task
        model = getattr(model, "model", model)
        if not isinstance(model, nn.Module):
            raise InvalidTypeError(f"model must be a torch module or a FitResult, got {type(model).__name__}")
    source = as_source(data, "data", workers).with_dtype(get_weight_dtype(model))
    outputs, labels, weight = _compute_outputs(model, source, batch_size)
    check_nan_logits(outputs)
    logits, target = match_shapes(outputs, labels)
    samples = canonical(
        logits, target, task=task, weight=weight, ignore_index=ignore_index, validate=True, judge=TargetJudge()
    )
    decided = [request for request in requests if request.metric is not None and not request.own_threshold]
    tuned_for = decided[0] if decided and isinstance(decision, str) else None
    shared_threshold = _choose_threshold(samples, decision, None if tuned_for is None else tuned_for.metric, average)
    matrix = any(request.metric is not None and request.metric.needs_matrix for request in requests)
    counts = count_batch(samples, _per_label(shared_threshold), matrix=matrix)
    values: dict[str, float] = {}
    best_thresholds: dict[str, Threshold] = {}
    for request in requests:
        if request.ranking is not None:
            values[request.name] = _measure_ranking(request.ranking, samples)
            continue
        assert request.metric is not None
        if request.own_threshold:
            best_thresholds[request.name] = best = _choose_threshold(samples, BEST, request.metric, average)
            counts_at_best = count_batch(samples, _per_label(best), matrix=matrix)
            values[request.name] = float(averaged(request.metric, counts_at_best, average))
        else:
            values[request.name] = float(averaged(request.metric, counts, average))
    tuned_name = None if tuned_for is None else tuned_for.name
    return Evaluation(values, outputs, labels, shared_threshold, best_thresholds, tuned_name)


def _parse_requests(metrics: Measure | Sequence[Measure], average: ScalarAverage) -> list[_Request]:
    several = [metrics] if isinstance(metrics, (str, Metric, RankingMetric)) or callable(metrics) else list(metrics)
    if not several:
        raise InvalidValueError("evaluate needs at least one metric, such as 'f1'")
    if average is None:
        raise InvalidValueError("evaluate gives one number per metric; average=None would give one per class")
    return [_parse_request(metric, average) for metric in several]


def _parse_request(metric: Measure, average: ScalarAverage) -> _Request:
    text = metric.strip() if isinstance(metric, str) else ""
    if text == "loss":
        raise InvalidValueError("evaluate measures metrics; for a loss, call it on the logits that evaluate returns")
    own_threshold = text.startswith(f"{BEST} ")
    if own_threshold:
        metric = text.removeprefix(f"{BEST} ").strip()
    if (ranking := get_ranking(metric)) is not None:
        if own_threshold:
            raise InvalidValueError(f"{ranking.name} needs no threshold: ask for {ranking.name!r}")
        return _Request(ranking.name, None, False, ranking)
    try:
        formula = get_measure(metric)
    except ValueError as error:
        raise InvalidValueError(f"{error}. Besides metrics, evaluate knows {' and '.join(rankings())}") from None
    assert isinstance(formula, Metric)
    check_average(formula, average)
    return _Request(f"{BEST} {formula.name}" if own_threshold else formula.name, formula, own_threshold)


def _check_threshold(threshold: Any) -> Threshold | str | None:
    """Return the threshold as a number, a float64 tensor ``(labels,)``, "best" or None, and refuse anything else."""
    if threshold is None or (isinstance(threshold, str) and threshold == BEST):
        return threshold
    expected = "threshold must be strictly between 0 and 1: a number, one number per label, or 'best'"
    try:
        plain = threshold.tolist() if hasattr(threshold, "tolist") else threshold  # tensors and arrays
        numbers = torch.as_tensor(plain, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}") from None
    if numbers.dim() > 1 or not numbers.numel() or not bool(((numbers > 0) & (numbers < 1)).all()):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}")
    return numbers.item() if numbers.dim() == 0 else numbers


def _get_threshold(result: Any) -> float | None:
    """Return the threshold of a FitResult; None without validation and for several classes."""
    threshold = getattr(result, "threshold", None)
    return threshold if isinstance(threshold, float) and 0 < threshold < 1 else None


def _get_task(result: Any) -> Task | None:
    """Return the task of a FitResult's objective; None if its parts have none, or several."""
    objective = getattr(result, "objective", None)
    if not isinstance(objective, nn.Module):
        return None
    tasks = find_tasks(objective)
    return tasks.pop() if len(tasks) == 1 else None


def _compute_outputs(model: nn.Module, data: Source, batch_size: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the logits, labels and weights of all samples on the CPU, because metrics need them together."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    was_training = model.training
    model.eval()
    logits, labels, weights = [], [], []
    try:
        for batch in _batches(data, batch_size, device):
            outputs = model(batch.x.to(device) if isinstance(batch.x, Tensor) else batch.x)
            if not isinstance(outputs, Tensor):
                raise InvalidTypeError(f"the model must return a tensor of logits, got {type(outputs).__name__}")
            if outputs.dim() == 0 or len(outputs) != len(batch):
                raise InvalidValueError(
                    f"the model must return one row of logits per sample, got {tuple(outputs.shape)} for {len(batch)} "
                    "labels"
                )
            logits.append(outputs.detach().cpu())
            labels.append(batch.y.cpu())
            if batch.weight is not None:
                weights.append(batch.weight.cpu())
    finally:
        model.train(was_training)
    if not logits:
        raise InvalidValueError("the DataLoader gives no batches, so there is nothing to evaluate")
    if weights and len(weights) != len(labels):
        raise InvalidValueError(f"{len(weights)} of {len(labels)} batches have weights; give them to all or to none")
    return torch.cat(logits), torch.cat(labels), torch.cat(weights) if weights else None


def _batches(data: Source, batch_size: int, device: torch.device) -> Iterator[Batch]:
    if isinstance(data, FromLoader):
        return data.batches(device)
    return data.batches(torch.split(torch.arange(len(data)), batch_size), device)


def _choose_threshold(
    samples: Columns | Classes, threshold: Threshold | str | None, metric: Metric | None, average: ScalarAverage
) -> Threshold:
    """Return the threshold; "best" is chosen for the metric. It is NaN if the largest logit decides."""
    if isinstance(samples, Classes):
        if isinstance(threshold, (str, Tensor)):
            raise InvalidValueError(
                "these classes exclude each other, so the largest logit decides, at no threshold; curves.best_offsets "
                "tunes such decisions, and for independent labels give task='multilabel'"
            )
        return math.nan
    labels = samples.logits.shape[0]
    if isinstance(threshold, Tensor) and len(threshold) != labels:
        raise InvalidValueError(f"{len(threshold)} thresholds for {labels} {'output' if labels == 1 else 'labels'}")
    if isinstance(threshold, str):
        return math.nan if metric is None else best_label_thresholds(samples, metric, average)
    return 0.5 if threshold is None else threshold


def _per_label(threshold: Threshold) -> Threshold:
    """Return a threshold, or one per label, in the shape in which it is compared with the logits ``(labels, n)``."""
    return threshold.unsqueeze(-1) if isinstance(threshold, Tensor) else threshold


def _measure_ranking(ranking: RankingMetric, samples: Columns | Classes) -> float:
    if isinstance(samples, Classes) or samples.logits.shape[0] > 1:
        raise InvalidValueError(
            f"{ranking.name} is measured on one output; for several, call curves.{ranking.name} on each column of the "
            "logits that evaluate returns"
        )
    weight = None if samples.weight is None else samples.weight[0]
    return ranking.measure(samples.logits[0], samples.target[0], weight)


def _format_threshold(threshold: Threshold) -> str:
    """Format a threshold, or the first and last of many, with a few digits."""
    if not isinstance(threshold, Tensor):
        return f"{threshold:g}"
    numbers = [f"{number:.3g}" for number in threshold.tolist()]
    if len(numbers) > SHOWN_THRESHOLDS:
        numbers = [*numbers[: SHOWN_THRESHOLDS - 1], "...", numbers[-1]]
        return f"[{', '.join(numbers)}] ({len(threshold)})"
    return f"[{', '.join(numbers)}]"
