"""Calibration of logits: a temperature and a bias per class, fitted on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax


@dataclass(frozen=True)
class Calibration:
    r"""Calibrated logits :math:`z / T + b`, with one bias per class.

    The bias is needed because the loss of a metric raises the logits of rare classes. A temperature alone maps 0 to 0
    and cannot correct that.

    Attributes:
        temperature: The temperature T, above 0.
        bias: The bias b, ``(1,)`` for two classes and ``(c,)`` for several.

    Example:
        >>> Calibration(temperature=2.0, bias=torch.tensor([0.5]))(torch.tensor([[1.0]]))
        tensor([[1.]], dtype=torch.float64)
    """

    temperature: float
    bias: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """Calibrate logits.

        Args:
            logits: Logits ``(n, 1)`` or ``(n, c)``.

        Returns:
            Calibrated logits of the same shape, in float64.
        """
        return logits.double() / self.temperature + self.bias


def fit_calibration(logits: Tensor, y: Tensor, weight: Tensor | None) -> Calibration:
    """Fit the temperature and the bias that minimise the cross-entropy of held-out logits.

    Labels are smoothed by one sample per class (Platt 1999), so that both stay finite if a threshold separates the
    classes without error. If the fit is not better than the logits themselves, they are kept: temperature 1, bias 0.

    Args:
        logits: Held-out logits, ``(n, 1)`` for two classes or ``(n, c)``.
        y: Class numbers ``(n,)``.
        weight: One weight per row, or None.

    Returns:
        The calibration.

    Example:
        >>> z = torch.tensor([[3.0], [3.0], [3.0], [-3.0], [-3.0], [-3.0]])
        >>> calibration = fit_calibration(z, torch.tensor([1, 1, 0, 0, 0, 1]), None)
        >>> torch.sigmoid(calibration(z[:1]))
        tensor([[0.6000]], dtype=torch.float64)
    """
    z = logits.double()
    outputs = z.shape[1]
    w = torch.ones(len(z), dtype=torch.float64) if weight is None else weight.double() / weight.double().mean()
    smoothed = _smooth_labels(y, w, max(2, outputs))
    parameters = torch.zeros(1 + outputs, dtype=torch.float64, requires_grad=True)

    def loss(parameters: Tensor) -> Tensor:
        scores = z * parameters[0].exp() + parameters[1:]
        by_class = torch.cat([torch.zeros_like(scores), scores], dim=1) if outputs == 1 else scores
        cross_entropy = -(w[:, None] * smoothed * log_softmax(by_class, dim=1)).sum() / w.sum()
        return cross_entropy + 1e-6 * parameters.square().sum()

    before = float(loss(parameters.detach()))
    optimizer = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(parameters)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    fitted = parameters.detach()
    if not bool(fitted.isfinite().all()) or not float(loss(fitted)) <= before:
        fitted = torch.zeros_like(fitted)
    return Calibration(float((-fitted[0]).exp()), fitted[1:].clone())


def _smooth_labels(y: Tensor, w: Tensor, classes: int) -> Tensor:
    """Return the target share of each class in each row: (N + 1) / (N + c) for the row's class, which has N rows."""
    counts = torch.zeros(classes, dtype=torch.float64).index_add_(0, y, w)[y]
    shares = (1 / (counts + classes))[:, None].repeat(1, classes)
    shares[torch.arange(len(y)), y] = (counts + 1) / (counts + classes)
    return shares
