"""The formulas of the closed-form steps, as pure functions of probabilities and a threshold.

Each takes ``p`` together with ``q = 1 - p`` and ``t`` together with ``u = 1 - t``, each accurate where it is small; the
complement is the same formula with both pairs swapped. float32 cannot represent a threshold of 1 - 1e-8, but it can
represent u = 1e-8. Each value is exact in its lower tail; the upper one belongs to the complement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from metricfit.core.tensor_numerics import stable_sigmoid

Threshold = float | Tensor

#: A step with one number, as a pure function of (p, 1 - p, t, 1 - t, number).
StepFunction = Callable[[Tensor, Tensor, Threshold, Threshold, float], Tensor]


@overload
def both_ends(threshold: float, dtype: torch.dtype) -> tuple[float, float]: ...
@overload
def both_ends(threshold: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]: ...
@overload
def both_ends(threshold: Threshold, dtype: torch.dtype) -> tuple[Any, Any]: ...
def both_ends(threshold: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a threshold's distances t from 0 and u = 1 - t from 1, so that arithmetic in ``dtype`` can divide by them.

    The smaller distance of a Python float is exact for any dtype. A threshold in (0, 1) that is nearer to 0 or to 1
    than the smallest positive normal number of the dtype (1e-38 in float32) is treated as if it were at about that
    distance: the dtype has no normal number below it. Tensors keep a distance of at least the square root of that
    number, because their gradient divides by the square of the distance. Of a tensor of float64 thresholds, one per
    label, both distances are rounded to the dtype, so that the arithmetic stays in it.
    """
    tiny = torch.finfo(dtype).tiny
    if isinstance(threshold, Tensor):
        nearest = 2 * math.sqrt(tiny)
        ends = threshold, 1 - threshold
        if threshold.dim() and threshold.dtype != dtype:
            ends = threshold.to(dtype), (1 - threshold).to(dtype)
        return ends[0].clamp(min=nearest), ends[1].clamp(min=nearest)
    return max(threshold, 4 * tiny), max(1 - threshold, 4 * tiny)


class LinearPieces(NamedTuple):
    """The three pieces of Linear: up to ``a``, over a ``width`` around the threshold, and the last ``c`` up to 1."""

    a: Any
    c: Any
    width: Any

    def slopes(self, delta: float) -> tuple[Any, Any, Any]:
        """Return the slopes of the three pieces."""
        return delta / self.a, (1 - 2 * delta) / self.width, delta / self.c


def linear_pieces(t: Threshold, u: Threshold) -> LinearPieces:
    """Return the pieces of Linear at a threshold t = 1 - u; in the notation of its docstring c = 1 - b."""
    if isinstance(t, Tensor):
        width: Any = torch.minimum(t, torch.as_tensor(u))
    else:
        width = min(t, u)
    return LinearPieces(t - width / 2, u - width / 2, width)


def _outer_pieces(p: Tensor, q: Tensor, t: Threshold, u: Threshold) -> tuple[Tensor, Tensor]:
    """Return which probabilities lie on the first and on the last piece of Linear; its kinks belong to these."""
    a, c, width = linear_pieces(t, u)
    if not isinstance(t, Tensor):
        return (p <= a, p >= t + width / 2) if t <= u else (q >= u + width / 2, q <= c)
    from_zero = t <= u
    on_first = torch.where(from_zero, p <= a, q >= u + width / 2)
    return on_first, torch.where(from_zero, p >= t + width / 2, q <= c)


def _linear(p: Tensor, q: Tensor, t: Threshold, u: Threshold, delta: float) -> Tensor:
    """Select one of three lines, which start from 0, from a kink and from 1: no digits cancel."""
    a, c, _ = pieces = linear_pieces(t, u)
    first, middle, last = pieces.slopes(delta)
    on_first, on_last = _outer_pieces(p, q, t, u)
    if not isinstance(t, Tensor):
        between = delta + middle * (p - a) if t <= u else (1 - delta) - middle * (q - c)
    else:
        between = torch.where(t <= u, delta + middle * (p - a), (1 - delta) - middle * (q - c))
    return torch.where(on_first, first * p, torch.where(on_last, 1 - last * q, between))


def masses(kind: str, p: Tensor, q: Tensor, t: Threshold, u: Threshold, number: float) -> tuple[Tensor, Tensor]:
    """Return a step's value and its complement."""
    return VALUE[kind](p, q, t, u, number), VALUE[kind](q, p, u, t, number)


def _linear_slope(p: Tensor, q: Tensor, t: Threshold, u: Threshold, delta: float) -> Tensor:
    """Select one of the three slopes; a sum of differences would cancel where one of them is large."""
    first, middle, last = linear_pieces(t, u).slopes(delta)
    on_first, on_last = _outer_pieces(p, q, t, u)
    if isinstance(t, Tensor):
        return torch.where(on_first, first, torch.where(on_last, last, middle))
    outer = torch.where(on_last, p.new_tensor(last), p.new_tensor(middle))
    return torch.where(on_first, p.new_tensor(first), outer)


def _sigmoid(p: Tensor, q: Tensor, t: Threshold, u: Threshold, k: float) -> Tensor:
    return stable_sigmoid(k * _above(p, q, t, u))


def _sigmoid_slope(p: Tensor, q: Tensor, t: Threshold, u: Threshold, k: float) -> Tensor:
    above = k * _above(p, q, t, u)
    return k * stable_sigmoid(above) * stable_sigmoid(-above)


def _above(p: Tensor, q: Tensor, t: Threshold, u: Threshold) -> Tensor:
    """Return p - t, from whichever pair holds the digits of the threshold."""
    return u - q if not isinstance(t, Tensor) and t > u else p - t


def _identity(p: Tensor, q: Tensor, t: Threshold, u: Threshold, _: float) -> Tensor:
    return p


def _identity_slope(p: Tensor, q: Tensor, t: Threshold, u: Threshold, _: float) -> Tensor:
    return torch.ones_like(p)


def _raised_cosine(p: Tensor, q: Tensor, t: Threshold, u: Threshold, width: float) -> Tensor:
    # With v = u + 1, sin(pi u) = -sin(pi v): exactly 0 at the window's lower end, where sin(pi u) only nearly is.
    v = (_above(p, q, t, u) / width + 1).clamp(0.0, 2.0)
    return ((v - torch.sin(math.pi * v) / math.pi) / 2).clamp(0.0, 1.0)  # the difference of equals can round below 0


def _raised_cosine_slope(p: Tensor, q: Tensor, t: Threshold, u: Threshold, width: float) -> Tensor:
    v = (_above(p, q, t, u) / width + 1).clamp(0.0, 2.0)
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
