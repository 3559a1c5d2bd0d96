"""Differentiable stand-ins for the decision "is the probability at least the threshold?".

A step is called as ``step(p, threshold)``, with ``p`` probabilities and the threshold a number or a tensor that
broadcasts against them. Every closed-form step is odd about its threshold,

    1 - step(p, t) = step(1 - p, 1 - t),

so that its complement never has to be formed by subtraction: where ``step(p, t)`` is within rounding of 1, what
is left to learn from sits in the complement's small tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor, nn

from metricfit.core.numerics import stable_sigmoid

Threshold = float | Tensor

#: A step with one number, as a pure function of (p, threshold, number).
StepFunction = Callable[[Tensor, Threshold, float], Tensor]


class Step(nn.Module):
    """Base of the steps; a step of your own needs only ``forward(p, threshold)``, in ordinary torch operations."""

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """The soft decision for probabilities ``p``, in [0, 1]."""
        raise TypeError(f"{type(self).__name__} must define forward(p, threshold)")


class ClosedFormStep(Step):
    """A step of one number with a closed-form slope, which the fast kernels know by its ``kind``."""

    kind: str
    number: float

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """The soft decision for probabilities ``p``, in [0, 1]."""
        check_threshold(threshold)
        return VALUE[self.kind](p, threshold, self.number)

    def slope(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """The derivative of the step with respect to ``p``."""
        check_threshold(threshold)
        return SLOPE[self.kind](p, threshold, self.number)


class Linear(ClosedFormStep):
    r"""Piecewise linear through (0, 0), (a, delta), (t, 1/2), (b, 1 - delta), (1, 1). Tsoi et al. 2022, Eq. 5.

    With :math:`t_m = \min(t, 1-t)`, :math:`a = t - t_m/2` and :math:`b = t + t_m/2`. Lipschitz with the largest
    of its three slopes (Theorem 4.1). ``delta`` is how much of the step is left to the outer pieces: the gradient
    of a confidently wrong sample is proportional to it.

    >>> Linear(delta=0.1)(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
    tensor([0.0000, 0.1000, 0.5000, 0.9000, 1.0000])
    """

    kind = "linear"

    def __init__(self, delta: float = 0.1) -> None:
        super().__init__()
        if not 0.0 < delta < 0.5:
            raise ValueError(f"Linear needs 0 < delta < 0.5, got {delta}")
        self.delta = self.number = float(delta)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"delta={self.delta:g}"


class Sigmoid(ClosedFormStep):
    r"""The logistic curve :math:`1/(1+e^{-k(p-t)})`. Tsoi et al. 2022; Han et al. 2024 (AnyLoss) with k = 73.

    Gradients come from both tails, so that k = 73 does not die in float32. Above about 50 training often
    collapses all the same: 10 to 30 is a good range.

    >>> Sigmoid(k=10)(torch.tensor([0.5]))
    tensor([0.5000])
    """

    kind = "sigmoid"

    def __init__(self, k: float = 10.0) -> None:
        super().__init__()
        if not (k > 0.0 and math.isfinite(k)):
            raise ValueError(f"Sigmoid needs a finite k > 0, got {k}")
        self.k = self.number = float(k)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"k={self.k:g}"


class Identity(ClosedFormStep):
    """The probability itself, whatever the threshold: soft Dice, macro soft F-beta (Lee et al. 2021, Eq. 24).

    >>> Identity()(torch.tensor([0.3]))
    tensor([0.3000])
    """

    kind = "identity"
    number = 0.0


class RaisedCosine(ClosedFormStep):
    r"""0 below t - width, 1 above t + width, and between them, with u = (p - t)/width,
    :math:`\frac12(1 + u + \sin(\pi u)/\pi)`. The score-oriented loss of Marchetti et al. 2022.

    Its gradient is exactly 0 outside the window: start from a model whose scores reach it, or anneal towards it.

    >>> RaisedCosine(width=0.1)(torch.tensor([0.3, 0.5, 0.7]))
    tensor([0.0000, 0.5000, 1.0000])
    """

    kind = "raised_cosine"

    def __init__(self, width: float = 0.1) -> None:
        super().__init__()
        if not (width > 0.0 and math.isfinite(width)):
            raise ValueError(f"RaisedCosine needs a finite width > 0, got {width}")
        self.width = self.number = float(width)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"width={self.width:g}"


class StraightThrough(Step):
    """The hard decision forward, another step's gradient backward (Bengio et al. 2013).

    >>> StraightThrough(Linear())(torch.tensor([0.3, 0.5]))
    tensor([0., 1.])
    """

    def __init__(self, step: Step | None = None) -> None:
        super().__init__()
        self.step = Linear() if step is None else _check_step(step, "StraightThrough")

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """The hard decision, with the inner step's gradient."""
        soft: Tensor = self.step(p, threshold)
        return (p >= threshold).to(soft.dtype) + (soft - soft.detach())


class Annealed(Step):
    """``(1 - a) start + a end``, with ``a`` going from 0 to 1 as ``advance(fraction)`` is called.

    ``a`` is a buffer: it moves with ``.to()``, is saved in ``state_dict`` and can differ between the members of a
    stacked population.

    >>> step = Annealed(Identity(), Sigmoid(k=50))
    >>> step.advance(0.25)
    >>> step.a
    tensor(0.2500)
    """

    a: Tensor

    def __init__(self, start: Step, end: Step) -> None:
        super().__init__()
        self.start = _check_step(start, "Annealed")
        self.end = _check_step(end, "Annealed")
        self.register_buffer("a", torch.zeros(()))

    def advance(self, fraction: float) -> None:
        """Set how far the training has come, from 0 (all ``start``) to 1 (all ``end``)."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"advance takes the fraction of training done, from 0 to 1, got {fraction}")
        self.a.fill_(fraction)

    def forward(self, p: Tensor, threshold: Threshold = 0.5) -> Tensor:
        """The mixture of the two steps."""
        return torch.lerp(self.start(p, threshold), self.end(p, threshold), self.a.to(p.dtype))


def check_threshold(threshold: Threshold) -> None:
    """Refuse a number that is not strictly between 0 and 1: no decision is left to make there."""
    if not isinstance(threshold, Tensor) and not 0.0 < threshold < 1.0:
        raise ValueError(
            f"a threshold must lie strictly between 0 and 1, got {threshold}; thresholds apply to probabilities, "
            "so convert a threshold on logits with sigmoid"
        )


def _check_step(step: object, owner: str) -> Step:
    if not isinstance(step, Step):
        raise TypeError(f"{owner} needs a step such as steps.Linear(), got {step!r}")
    return step


# The formulas. Each value is written so that it is exact in its lower tail; the upper one belongs to the complement.


@overload
def linear_pieces(t: float, delta: float) -> tuple[float, ...]: ...
@overload
def linear_pieces(t: Tensor, delta: float) -> tuple[Tensor, ...]: ...
def linear_pieces(t: Any, delta: float) -> tuple[Any, ...]:
    """Linear's kinks a, b and the slopes of its three pieces."""
    nearest_end = torch.minimum(t, 1 - t) if isinstance(t, Tensor) else min(t, 1 - t)
    a, b = t - nearest_end / 2, t + nearest_end / 2
    return a, b, delta / a, (1 - 2 * delta) / nearest_end, delta / (1 - b)


def _linear(p: Tensor, t: Threshold, delta: float) -> Tensor:
    a, b, m1, m2, m3 = linear_pieces(t, delta)
    return m1 * p + (m2 - m1) * torch.relu(p - a) + (m3 - m2) * torch.relu(p - b)


def _linear_slope(p: Tensor, t: Threshold, delta: float) -> Tensor:
    a, b, m1, m2, m3 = linear_pieces(t, delta)
    return m1 + (m2 - m1) * (p > a).to(p.dtype) + (m3 - m2) * (p > b).to(p.dtype)


def _linear_threshold_slope(p: Tensor, t: Threshold, delta: float) -> Tensor:
    """For t <= 1/2: up to b the step is a function of p/t, above it of (1 - p)/(1 - 3t/2)."""
    _, b, *_ = linear_pieces(t, delta)
    return -_linear_slope(p, t, delta) * torch.where(p > b, 1.5 * (1 - p) / (1 - b), p / t)


def _sigmoid(p: Tensor, t: Threshold, k: float) -> Tensor:
    return stable_sigmoid(k * (p - t))


def _sigmoid_slope(p: Tensor, t: Threshold, k: float) -> Tensor:
    return k * stable_sigmoid(k * (p - t)) * stable_sigmoid(k * (t - p))


def _identity(p: Tensor, t: Threshold, _: float) -> Tensor:
    return p


def _no_slope(p: Tensor, t: Threshold, _: float) -> Tensor:
    return torch.zeros_like(p)


def _identity_slope(p: Tensor, t: Threshold, _: float) -> Tensor:
    return torch.ones_like(p)


def _raised_cosine(p: Tensor, t: Threshold, width: float) -> Tensor:
    # With v = u + 1, sin(pi u) = -sin(pi v): exactly 0 at the window's lower end, where sin(pi u) only nearly is.
    v = ((p - t) / width + 1).clamp(0.0, 2.0)
    return ((v - torch.sin(math.pi * v) / math.pi) / 2).clamp(min=0.0)  # the difference of equals can round below 0


def _raised_cosine_slope(p: Tensor, t: Threshold, width: float) -> Tensor:
    v = ((p - t) / width + 1).clamp(0.0, 2.0)
    return (1 - torch.cos(math.pi * v)) / (2 * width)


VALUE: dict[str, StepFunction] = {
    "linear": _linear,
    "sigmoid": _sigmoid,
    "identity": _identity,
    "raised_cosine": _raised_cosine,
}
SLOPE: dict[str, StepFunction] = {
    "linear": _linear_slope,
    "sigmoid": _sigmoid_slope,
    "identity": _identity_slope,
    "raised_cosine": _raised_cosine_slope,
}
#: The derivative with respect to a threshold of at most 1/2.
THRESHOLD_SLOPE: dict[str, StepFunction] = {
    "linear": _linear_threshold_slope,
    "sigmoid": lambda p, t, k: -_sigmoid_slope(p, t, k),
    "identity": _no_slope,
    "raised_cosine": lambda p, t, width: -_raised_cosine_slope(p, t, width),
}
