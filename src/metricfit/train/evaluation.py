"""evaluate: a trained model's metrics on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.metrics.base import Formula, Metric
from metricfit.train.loader import FromLoader
from metricfit.train.monitor import RANKINGS, Monitor
from metricfit.train.samples import source, type_of
from metricfit.train.stage import matched

if TYPE_CHECKING:
    from metricfit.train.fitting import FitResult


@dataclass(frozen=True)
class Evaluation:
    """Values by name, with the logits and labels they were computed from."""

    values: dict[str, float]
    logits: Tensor
    target: Tensor
    threshold: float

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={value:.4g}" for name, value in self.values.items())
        return f"Evaluation({numbers}; n={len(self.target)}, threshold={self.threshold:g})"


@torch.no_grad()
def evaluate(
    model: nn.Module | FitResult,
    data: Any,
    metrics: str | Metric | Formula | Sequence[str | Metric | Formula] = "f1",
    *,
    threshold: float | str = 0.5,
    average: str = "macro",
    ignore_index: int | None = None,
    batch_size: int = 8192,
    workers: int = 0,
) -> Evaluation:
    """The metrics of a model's decisions on data, in eval mode and without gradients.

    Args:
        model: gives logits, or a FitResult, for its model; it is run where its weights are.
        data: ``(X, y)``, ``(X, y, weight)``, a Dataset or a DataLoader.
        metrics: one or several metrics, names, functions of Counts; "auroc" and "average_precision" too, and
            "best f1" for one at its best threshold on the data.
        threshold: where binary and multilabel decisions are made, or "best", for each metric the best on the data; the
            result's threshold is then the first metric's.
        average: of several classes.
        ignore_index: samples with this label count for nothing.
        batch_size: how many samples at once.
        workers: processes that read a Dataset.

    >>> from torch import nn
    >>> x = torch.tensor([[1.0], [-1.0], [2.0]])
    >>> evaluate(nn.Identity(), (x, torch.tensor([1, 0, 1])), ["f1", "auroc"])
    Evaluation(f1=1, auroc=1; n=3, threshold=0.5)
    """
    several = [metrics] if isinstance(metrics, (str, Metric)) or callable(metrics) else list(metrics)
    if "loss" in several:
        raise ValueError("evaluate measures metrics; for a loss, call it on the logits that evaluate returns")
    monitors = [_monitor(each, threshold, average, ignore_index) for each in several]
    if not isinstance(model, nn.Module):
        model = getattr(model, "model", model)
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch module or a FitResult, got {type(model).__name__}")
    given = source(data, "data", workers).typed(type_of(model))
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    if isinstance(given, FromLoader):
        batches = given.batches(device)
    else:
        batches = given.batches(torch.split(torch.arange(len(given)), batch_size), device)
    was_training = model.training
    model.eval()
    logits, target, weights = [], [], []
    try:
        for batch in batches:
            x = batch.x.to(device) if isinstance(batch.x, Tensor) else batch.x
            logits.append(model(x).detach().cpu())
            target.append(batch.y.cpu())
            if batch.weight is not None:
                weights.append(batch.weight.cpu())
    finally:
        model.train(was_training)
    if not logits:
        raise ValueError("the DataLoader gives no batches, so there is nothing to evaluate")
    outputs, labels = torch.cat(logits), torch.cat(target)
    weight = torch.cat(weights) if weights else None
    found = {each.name: each.measure(*matched(outputs, labels), weight) for each in monitors}
    at = next(iter(found.values())).threshold if isinstance(threshold, str) else threshold
    return Evaluation({name: each.value for name, each in found.items()}, outputs, labels, at)


def _monitor(metric: str | Metric | Formula, threshold: float | str, average: str, ignore_index: int | None) -> Monitor:
    if isinstance(metric, str) and metric.startswith("best "):
        metric, threshold = metric.removeprefix("best ").strip(), "best"
    elif isinstance(metric, str) and metric in RANKINGS and threshold == "best":
        threshold = 0.5
    return Monitor(metric, threshold=threshold, average=average, ignore_index=ignore_index)
