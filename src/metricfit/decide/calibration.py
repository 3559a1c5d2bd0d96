"""Calibration of logits: a temperature and a bias per class, fitted on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

#: Weight of the penalty that determines what the rows leave open, such as the mean of the biases of several classes.
PENALTY = 1e-6
#: Logits with a smaller spread, as a share of the largest, are constant except for rounding.
SMALLEST_SPREAD = 1e-9
#: Maximum number of Newton steps and of halvings of one step.
STEPS, HALVINGS = 60, 30
#: Largest change of a parameter in one Newton step.
LONGEST_STEP = 5.0
#: Newton's method stops once a step is expected to lower the cross-entropy by less than half of this.
TOLERANCE = 1e-13


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
    r"""Fit the temperature and the bias that minimise the cross-entropy of held-out logits.

    Labels are smoothed by one sample per class (Platt 1999), so that both stay finite if a threshold separates the
    classes without error. If the fit is not better than the logits themselves, they are kept: temperature 1, bias 0.

    The temperature is positive, so that calibration never changes the order of the logits. The temperature of a model
    whose logits rank the classes in reverse is large, and its calibrated logits are nearly constant.

    Cost: O(n c²) per step of Newton's method, mostly 5 to 10 steps. The parameters are the logarithm of the slope 1/T
    and the biases. Logits are first centred per class and divided by their spread, because the first step would
    otherwise overshoot for logits of a large scale.

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
    z = logits.detach().double()
    outputs = z.shape[1]
    w = torch.ones(len(z), dtype=torch.float64) if weight is None else weight.double() / weight.double().mean()
    target = _smooth_labels(y, w, max(2, outputs))
    counted = w > 0
    if not bool(counted.all()):  # a resample of the rows leaves out more than a third of them
        z, target, w = z[counted], target[counted], w[counted]
    w = w / w.sum()
    centre = w @ z
    scaled = z - centre
    deviations = scaled if outputs == 1 else scaled - scaled.mean(1, keepdim=True)
    spread = float((w @ deviations.square()).sum().sqrt())
    spread = spread if SMALLEST_SPREAD * float(z.abs().max()) < spread < math.inf else 1.0
    scaled = scaled / spread
    prior = (w @ target).log()
    if outputs == 1:
        scores, positive = scaled.squeeze(1), target[:, 1]
        minimum = _minimise(lambda at: _two_classes(at, scores, positive, w), prior[1:] - prior[:1])
    else:
        minimum = _minimise(lambda at: _several_classes(at, scaled, target, w), prior - prior.mean())
    slope = float(minimum[0].exp()) / spread
    bias = minimum[1:] - slope * centre
    bias = bias if outputs == 1 else bias - bias.mean()
    is_finite = 0 < slope < math.inf and bool(bias.isfinite().all())
    if not is_finite or not _cross_entropy(slope * z + bias, target, w) <= _cross_entropy(z, target, w):
        slope, bias = 1.0, torch.zeros_like(bias)
    return Calibration(1 / slope, bias)


class _Derivatives(NamedTuple):
    """The cross-entropy at some parameters, its gradient, and a positive matrix near its Hessian."""

    value: float
    gradient: Tensor
    hessian: Tensor


def _minimise(cross_entropy: Callable[[Tensor], _Derivatives], bias: Tensor) -> Tensor:
    """Minimise the penalised cross-entropy by Newton's method, from slope 1 and these biases on.

    Returns:
        The logarithm of the slope, then the biases.
    """
    parameters = torch.cat([torch.zeros(1, dtype=torch.float64), bias])
    at = _penalised(cross_entropy, parameters)
    for _ in range(STEPS):
        step = torch.linalg.solve(at.hessian, at.gradient)
        if float(at.gradient @ step) <= TOLERANCE:
            break
        step = step * min(1.0, LONGEST_STEP / float(step.abs().max()))
        for _ in range(HALVINGS):
            tried = _penalised(cross_entropy, parameters - step)
            if tried.value <= at.value:
                break
            step = step / 2
        else:
            break
        parameters, at = parameters - step, tried
    return parameters


def _penalised(cross_entropy: Callable[[Tensor], _Derivatives], parameters: Tensor) -> _Derivatives:
    value, gradient, hessian = cross_entropy(parameters)
    hessian.diagonal().add_(2 * PENALTY)
    return _Derivatives(
        value + PENALTY * float(parameters.square().sum()), gradient + 2 * PENALTY * parameters, hessian
    )


def _two_classes(parameters: Tensor, z: Tensor, positive: Tensor, w: Tensor) -> _Derivatives:
    r"""Derive the cross-entropy of sigmoid(exp(a) z + b) by a and b.

    With p the sigmoid, r = w (p - t) and x = exp(a) z, the gradient is (r · x, sum r), and the Hessian is the sum of
    w p (1 - p) (x, 1)(x, 1)', plus r · x in the corner of a. That term is left out where it is negative, which keeps
    the matrix positive.
    """
    x = float(parameters[0].exp()) * z
    f = x + float(parameters[1])
    p = torch.sigmoid(f)
    residual, spread = w * (p - positive), w * p * (1 - p)
    value = float(w @ (softplus(f) - positive * f))
    by_slope, scaled = float(residual @ x), spread * x
    mixed = float(scaled.sum())
    hessian = [[float(scaled @ x) + max(by_slope, 0.0), mixed], [mixed, float(spread.sum())]]
    gradient = parameters.new_tensor([by_slope, float(residual.sum())])
    return _Derivatives(value, gradient, parameters.new_tensor(hessian))


def _several_classes(parameters: Tensor, z: Tensor, target: Tensor, w: Tensor) -> _Derivatives:
    """Derive the cross-entropy of softmax(exp(a) z + b) by a and b, as ``_two_classes`` does."""
    x = float(parameters[0].exp()) * z
    scores = x + parameters[1:]
    log_p = torch.log_softmax(scores, dim=1)
    p = log_p.exp()
    weighted, residual = w[:, None] * p, w[:, None] * (p - target)
    by_slope = float((residual * x).sum())
    deviation = x - (p * x).sum(1, keepdim=True)
    scaled = weighted * deviation
    hessian = torch.empty(len(parameters), len(parameters), dtype=torch.float64)
    hessian[0, 0] = (scaled * deviation).sum() + max(by_slope, 0.0)
    hessian[0, 1:] = hessian[1:, 0] = scaled.sum(0)
    hessian[1:, 1:] = weighted.sum(0).diag() - weighted.T @ p
    gradient = torch.cat([parameters.new_tensor([by_slope]), residual.sum(0)])
    return _Derivatives(-float(w @ (target * log_p).sum(1)), gradient, hessian)


def _cross_entropy(scores: Tensor, target: Tensor, w: Tensor) -> float:
    if scores.shape[1] == 1:
        f = scores.squeeze(1)
        return float(w @ (softplus(f) - target[:, 1] * f))
    return -float(w @ (target * torch.log_softmax(scores, dim=1)).sum(1))


def _smooth_labels(y: Tensor, w: Tensor, classes: int) -> Tensor:
    """Return the target share of each class in each row: (N + 1) / (N + c) for the row's class, which has N rows."""
    counts = torch.zeros(classes, dtype=torch.float64).index_add_(0, y, w)[y]
    shares = (1 / (counts + classes))[:, None].repeat(1, classes)
    shares[torch.arange(len(y)), y] = (counts + 1) / (counts + classes)
    return shares


@dataclass(frozen=True)
class LabelCalibration:
    """One calibration per label: calibrated logits are ``logits / temperature + bias``.

    Attributes:
        temperature: One temperature per label, above 0.
        bias: One bias per label.

    Example:
        >>> LabelCalibration(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 1.0]))(torch.tensor([[2.0, 3.0]]))
        tensor([[1., 4.]], dtype=torch.float64)
    """

    temperature: Tensor
    bias: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """Calibrate logits ``(n, c)``, in float64."""
        return logits.double() / self.temperature + self.bias
