"""evaluate: a trained model's metrics on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.metrics.base import Formula, Metric
from metricfit.train.monitor import Monitor
from metricfit.train.samples import FromLoader, source, type_of
from metricfit.train.stage import matched


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
    model: nn.Module,
    data: Any,
    metrics: str | Metric | Formula | Sequence[str | Metric | Formula] = "f1",
    *,
    threshold: float = 0.5,
    average: str = "macro",
    batch_size: int = 8192,
    workers: int = 0,
) -> Evaluation:
    """The metrics of a model's decisions on data, in eval mode and without gradients.

    Args:
        model: gives logits; it is run where its weights are.
        data: ``(X, y)``, ``(X, y, weight)``, a Dataset or a DataLoader.
        metrics: one or several metrics, names, functions of Counts; "auroc" and "average_precision" too.
        threshold: where binary and multilabel decisions are made.
        average: of several classes.
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
    monitors = [Monitor(each, threshold=threshold, average=average) for each in several]
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
    outputs, labels = torch.cat(logits), torch.cat(target)
    weight = torch.cat(weights) if weights else None
    values = {each.name: each.measure(*matched(outputs, labels), weight).value for each in monitors}
    return Evaluation(values, outputs, labels, threshold)
