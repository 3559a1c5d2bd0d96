"""Probabilities from logits: a temperature and a bias, fitted on rows that were held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax


@dataclass(frozen=True)
class Calibration:
    """Logits divided by a temperature, plus a bias for each class.

    The bias is there because a metric's loss moves the logits of rare classes up: a temperature alone, which keeps 0
    at 0, cannot take that back.
    """

    temperature: float
    bias: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """Calibrated logits, in float64."""
        return logits.double() / self.temperature + self.bias


def calibrated(logits: Tensor, y: Tensor, weight: Tensor | None) -> Calibration:
    """The temperature and bias of least cross-entropy on held-out logits ``(n, 1)`` or ``(n, c)``.

    Labels are smoothed by one sample a class, as by Platt (1999), so that both stay finite where a threshold parts
    the classes without error. What is no better than the logits themselves is not taken.

    >>> z = torch.tensor([[3.0], [3.0], [3.0], [-3.0], [-3.0], [-3.0]])
    >>> found = calibrated(z, torch.tensor([1, 1, 0, 0, 0, 1]), None)
    >>> torch.sigmoid(found(z[:1]))
    tensor([[0.6000]], dtype=torch.float64)
    """
    z = logits.double()
    outputs = z.shape[1]
    w = torch.ones(len(z), dtype=torch.float64) if weight is None else weight.double() / weight.double().mean()
    wished = _smoothed(y, w, max(2, outputs))
    parameters = torch.zeros(1 + outputs, dtype=torch.float64, requires_grad=True)

    def loss(of: Tensor) -> Tensor:
        scores = z * of[0].exp() + of[1:]
        both = torch.cat([torch.zeros_like(scores), scores], dim=1) if outputs == 1 else scores
        return -(w[:, None] * wished * log_softmax(both, dim=1)).sum() / w.sum() + 1e-6 * of.square().sum()

    before = float(loss(parameters.detach()))
    optimizer = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(parameters)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    found = parameters.detach()
    if not bool(found.isfinite().all()) or not float(loss(found)) <= before:
        found = torch.zeros_like(found)
    return Calibration(float((-found[0]).exp()), found[1:].clone())


def _smoothed(y: Tensor, w: Tensor, classes: int) -> Tensor:
    """For each row the share of each class, (N + 1) / (N + c) for its own of N rows."""
    counts = torch.zeros(classes, dtype=torch.float64).index_add_(0, y, w)[y]
    wished = (1 / (counts + classes))[:, None].repeat(1, classes)
    wished[torch.arange(len(y)), y] = (counts + 1) / (counts + classes)
    return wished
