"""Calibration of logits: a temperature and a bias per class, fitted on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metricfit.core.arrays import Floats, Integers, in_kind_of, to_numpy
from metricfit.errors import InvalidValueError

if TYPE_CHECKING:
    from metricfit.core.arrays import Array

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
#: How many positives the calibration of all labels counts for in the calibration of each.
POSITIVES_OF_ALL = 10


@dataclass(frozen=True)
class Calibration:
    r"""Calibrated logits :math:`z / T + b`, with one bias per class.

    The bias is needed because the loss of a metric raises the logits of rare classes. A temperature alone maps 0 to 0
    and cannot correct that.

    Attributes:
        temperature: The temperature T, above 0; for several labels one per label, ``(c,)``.
        bias: The bias b, ``(1,)`` for two classes and ``(c,)`` for several classes or labels.

    Raises:
        InvalidValueError: A temperature is not above 0.

    Example:
        >>> Calibration(temperature=2.0, bias=[0.5])([[1.0]])
        array([[1.]])
    """

    temperature: Any
    bias: Any

    def __post_init__(self) -> None:
        temperature = to_numpy(self.temperature, np.float64)
        if not (temperature > 0).all():
            raise InvalidValueError(f"temperature must be a finite number above 0, got {self.temperature}")
        object.__setattr__(self, "temperature", temperature if temperature.ndim else float(temperature))
        object.__setattr__(self, "bias", to_numpy(self.bias, np.float64))

    def __call__(self, logits: Array) -> Any:
        """Calibrate logits.

        Args:
            logits: Logits ``(n, 1)`` or ``(n, c)``, an array or a tensor.

        Returns:
            Calibrated logits of the same shape and kind, in float64.
        """
        return in_kind_of(to_numpy(logits, np.float64) / self.temperature + self.bias, logits)

    def invert(self, calibrated: ArrayLike) -> Floats:
        """Return the logits that are calibrated to these.

        Args:
            calibrated: Calibrated logits, ``(..., 1)`` or ``(..., c)``.

        Returns:
            Logits of the same shape.
        """
        return np.asarray(self.temperature * (np.asarray(calibrated) - self.bias))


def sigmoid(z: Any) -> Any:
    """Return the logistic function, exact in its lower tail.

    Example:
        >>> sigmoid(np.array([-1000.0, 0.0]))
        array([0. , 0.5])
    """
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, small) / (1 + small)


def log_softmax(z: Floats) -> Floats:
    """Return the logarithm of the softmax of each row."""
    z = z - z.max(1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))


def softmax(z: Floats) -> Floats:
    """Return the softmax along the last axis.

    Example:
        >>> softmax(np.zeros((1, 4)))
        array([[0.25, 0.25, 0.25, 0.25]])
    """
    powers = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def fit_calibration(logits: Array, y: Array, weight: Array | None) -> Calibration:
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
        >>> z = np.array([[3.0], [3.0], [3.0], [-3.0], [-3.0], [-3.0]])
        >>> calibration = fit_calibration(z, np.array([1, 1, 0, 0, 0, 1]), None)
        >>> sigmoid(calibration(z[:1])).round(4)
        array([[0.6]])
    """
    z, labels = to_numpy(logits, np.float64), to_numpy(y).astype(np.int64)
    outputs = z.shape[1]
    w = np.ones(len(z)) if weight is None else to_numpy(weight, np.float64)
    w = w / w.mean()
    target = _smooth_labels(labels, w, max(2, outputs))
    counted = w > 0
    if not counted.all():  # a resample of the rows leaves out more than a third of them
        z, target, w = z[counted], target[counted], w[counted]
    w = w / w.sum()
    centre = w @ z
    scaled = z - centre
    deviations = scaled if outputs == 1 else scaled - scaled.mean(1, keepdims=True)
    spread = math.sqrt((w @ deviations**2).sum())
    spread = spread if SMALLEST_SPREAD * float(np.abs(z).max()) < spread < math.inf else 1.0
    scaled = scaled / spread
    prior = np.log(w @ target)
    if outputs == 1:
        scores, positive = scaled[:, 0], target[:, 1]
        minimum = _minimise(lambda at: _two_classes(at, scores, positive, w), prior[1:] - prior[:1])
    else:
        minimum = _minimise(lambda at: _several_classes(at, scaled, target, w), prior - prior.mean())
    slope = math.exp(minimum[0]) / spread
    bias = minimum[1:] - slope * centre
    bias = bias if outputs == 1 else bias - bias.mean()
    is_finite = 0 < slope < math.inf and bool(np.isfinite(bias).all())
    if not is_finite or not _cross_entropy(slope * z + bias, target, w) <= _cross_entropy(z, target, w):
        slope, bias = 1.0, np.zeros_like(bias)
    return Calibration(1 / slope, bias)


class _Derivatives(NamedTuple):
    """The cross-entropy at some parameters, its gradient, and a positive matrix near its Hessian."""

    value: float
    gradient: Floats
    hessian: Floats


def _minimise(cross_entropy: Callable[[Floats], _Derivatives], bias: Floats) -> Floats:
    """Minimise the penalised cross-entropy by Newton's method, from slope 1 and these biases on.

    Returns:
        The logarithm of the slope, then the biases.
    """
    parameters = np.concatenate([[0.0], bias])
    at = _penalised(cross_entropy, parameters)
    for _ in range(STEPS):
        step = np.linalg.solve(at.hessian, at.gradient)
        if float(at.gradient @ step) <= TOLERANCE:
            break
        step = step * min(1.0, LONGEST_STEP / float(np.abs(step).max()))
        for _ in range(HALVINGS):
            tried = _penalised(cross_entropy, parameters - step)
            if tried.value <= at.value:
                break
            step = step / 2
        else:
            break
        parameters, at = parameters - step, tried
    return parameters


def _penalised(cross_entropy: Callable[[Floats], _Derivatives], parameters: Floats) -> _Derivatives:
    value, gradient, hessian = cross_entropy(parameters)
    return _Derivatives(
        value + PENALTY * float((parameters**2).sum()),
        gradient + 2 * PENALTY * parameters,
        hessian + 2 * PENALTY * np.eye(len(parameters)),
    )


def _two_classes(parameters: Floats, z: Floats, positive: Floats, w: Floats) -> _Derivatives:
    r"""Derive the cross-entropy of sigmoid(exp(a) z + b) by a and b.

    With p the sigmoid, r = w (p - t) and x = exp(a) z, the gradient is (r · x, sum r), and the Hessian is the sum of
    w p (1 - p) (x, 1)(x, 1)', plus r · x in the corner of a. That term is left out where it is negative, which keeps
    the matrix positive.
    """
    x = np.exp(parameters[0]) * z
    f = x + parameters[1]
    p = sigmoid(f)
    residual, spread = w * (p - positive), w * p * (1 - p)
    value = float(w @ (np.logaddexp(0.0, f) - positive * f))
    by_slope, scaled = float(residual @ x), spread * x
    mixed = scaled.sum()
    hessian = np.array([[scaled @ x + max(by_slope, 0.0), mixed], [mixed, spread.sum()]])
    return _Derivatives(value, np.array([by_slope, residual.sum()]), hessian)


def _several_classes(parameters: Floats, z: Floats, target: Floats, w: Floats) -> _Derivatives:
    """Derive the cross-entropy of softmax(exp(a) z + b) by a and b, as ``_two_classes`` does."""
    x = np.exp(parameters[0]) * z
    log_p = log_softmax(x + parameters[1:])
    p = np.exp(log_p)
    weighted, residual = w[:, None] * p, w[:, None] * (p - target)
    by_slope = float((residual * x).sum())
    deviation = x - (p * x).sum(1, keepdims=True)
    scaled = weighted * deviation
    hessian = np.empty((len(parameters), len(parameters)))
    hessian[0, 0] = (scaled * deviation).sum() + max(by_slope, 0.0)
    hessian[0, 1:] = hessian[1:, 0] = scaled.sum(0)
    hessian[1:, 1:] = np.diag(weighted.sum(0)) - weighted.T @ p
    gradient = np.concatenate([[by_slope], residual.sum(0)])
    return _Derivatives(-float(w @ (target * log_p).sum(1)), gradient, hessian)


def _cross_entropy(scores: Floats, target: Floats, w: Floats) -> float:
    if scores.shape[1] == 1:
        f = scores[:, 0]
        return float(w @ (np.logaddexp(0.0, f) - target[:, 1] * f))
    return -float(w @ (target * log_softmax(scores)).sum(1))


def _smooth_labels(y: Integers, w: Floats, classes: int) -> Floats:
    """Return the target share of each class in each row: (N + 1) / (N + c) for the row's class, which has N rows."""
    counts = np.bincount(y, weights=w, minlength=classes)[y]
    shares = np.repeat((1 / (counts + classes))[:, None], classes, axis=1)
    shares[np.arange(len(y)), y] = (counts + 1) / (counts + classes)
    return shares


def fit_label_calibration(logits: Array, y: Array, weight: Array | None) -> Calibration:
    """Fit one temperature and bias per label on held-out rows, smoothed for rare labels.

    A label with N positives has N / (N + 10) of its own calibration and the rest of the one that is fitted to all
    labels together, so that a label with few positives does not follow the noise of these. On four tables
    (studies/label_thresholds.py) the mean macro F1 of the plug-in thresholds on test rows was 0.435 with it, 0.431
    without, 0.429 with thresholds tuned on the labels, and 0.355 at 0.5.

    Args:
        logits: Held-out logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.

    Returns:
        The calibration.
    """
    z, there = to_numpy(logits, np.float64), to_numpy(y).astype(np.int64)
    w = np.ones(len(there)) if weight is None else to_numpy(weight, np.float64)
    positives = w @ there / w[w > 0].mean()
    share = positives / (positives + POSITIVES_OF_ALL)
    each = [fit_calibration(z[:, [label]], there[:, label], w) for label in range(there.shape[1])]
    of_all = fit_calibration(z.reshape(-1, 1), there.reshape(-1), w.repeat(there.shape[1]))
    slope = share / np.array([part.temperature for part in each]) + (1 - share) / of_all.temperature
    bias = share * np.concatenate([part.bias for part in each]) + (1 - share) * of_all.bias
    return Calibration(1 / slope, bias)
