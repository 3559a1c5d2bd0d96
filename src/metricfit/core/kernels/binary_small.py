"""Binary soft counts of a small batch with NumPy, whose operations start several times faster than torch's.

The formulas are those of ``step_formulas``, and tests compare the two. Without NumPy ``binary_cpu`` counts small
batches too.
"""

from __future__ import annotations

import importlib
import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from metricfit.core.step_formulas import linear_pieces

#: The largest number of logits for which this is faster.
SMALL = 2**13
#: The distance of the threshold from 0 and 1 from which float32 holds all numbers of a step.
INSIDE = 1e-3
#: Beyond these the smaller tail of the sigmoid is of no importance.
LIMIT = 80.0

Array = Any


@cache
def load_numpy() -> Any:
    """Return NumPy, or None: torch does not need it, so metricfit.core does not either."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def handles(logits: Tensor, threshold: float) -> bool:
    """Return whether the kernel is for these logits, which are contiguous on the CPU."""
    return logits.numel() <= SMALL and INSIDE <= threshold <= 1 - INSIDE and load_numpy() is not None


def counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float
) -> tuple[list[Any], Array]:
    """Return soft counts, and what ``gradient`` needs: four numbers for logits ``(n,)``, four lists for ``(n, c)``."""
    mass, rest, slope = _decide(x.detach().numpy(), kind, number, threshold)
    weight = None if w is None else w.numpy()
    return _sum(mass, rest, y.numpy(), weight), slope if weight is None else slope * weight


def hard_counts(decided: Tensor, y: Tensor, w: Tensor | None) -> list[Any]:
    """Return the counts of boolean decisions, exactly, in the form in which ``counts`` returns them."""
    mass = decided.numpy().astype("float64")
    return _sum(mass, 1.0 - mass, y.numpy().astype("float64"), None if w is None else w.numpy().astype("float64"))


def _sum(mass: Array, rest: Array, positive: Array, weight: Array | None) -> list[Any]:
    negative = 1.0 - positive
    if weight is not None:
        positive, negative = positive * weight, negative * weight
    if positive.ndim == 1:
        return [float(labels.dot(amount)) for amount in (mass, rest) for labels in (positive, negative)]
    ones = load_numpy().ones(len(positive), positive.dtype)
    return [ones.dot(labels * amount).tolist() for amount in (mass, rest) for labels in (positive, negative)]


def gradient(y: Tensor, of_positive: Any, of_negative: Any, slope: Array) -> Array:
    """Return the gradient of the logits, from the gradients of a positive's and a negative's mass in each column."""
    labels = y.numpy()
    result = labels * of_positive
    result += (1.0 - labels) * of_negative  # exact for the labels 0 and 1
    result *= slope
    return result


def _decide(x: Array, kind: str, number: float, t: float) -> tuple[Array, Array, Array]:
    """Return the soft decisions, their complements, and the derivatives of the decisions by the logits."""
    np = load_numpy()
    against = np.maximum(x, -LIMIT)
    np.minimum(against, LIMIT, out=against)
    np.negative(against, out=against)
    np.exp(against, out=against)
    p = against + 1.0
    np.divide(1.0, p, out=p)
    against *= p
    q = against
    if kind == "linear":
        return _decide_linearly(p, q, number, t)
    if kind == "identity":
        return p, q, p * q
    above = p - t if t <= 0.5 else (1 - t) - q
    if kind == "sigmoid":
        above *= -number
        np.maximum(above, -LIMIT, out=above)
        np.minimum(above, LIMIT, out=above)
        odds_against = np.exp(above)
        mass = 1.0 / (1.0 + odds_against)
        rest = odds_against * mass
        return mass, rest, mass * rest * (p * q * number)
    v = np.minimum(np.maximum(above / number + 1.0, 0.0), 2.0)
    mass, rest = (
        np.minimum(np.maximum((side - np.sin(math.pi * side) / math.pi) / 2.0, 0.0), 1.0) for side in (v, 2.0 - v)
    )
    return mass, rest, (1.0 - np.cos(math.pi * v)) / (2.0 * number) * (p * q)


class _LinearNumbers(NamedTuple):
    """Kinks and slopes of Linear at a threshold of at most 1/2, and the values of its last two lines at 0."""

    a: float
    b: float
    first: float
    middle: float
    last: float
    middle_at_0: float
    last_at_0: float


@lru_cache(maxsize=64)
def _linear_numbers(t: float, delta: float) -> _LinearNumbers:
    pieces = linear_pieces(t, 1 - t)
    first, middle, last = pieces.slopes(delta)
    return _LinearNumbers(pieces.a, t + pieces.width / 2, first, middle, last, delta - middle * pieces.a, 1 - last)


def _decide_linearly(p: Array, q: Array, delta: float, t: float) -> tuple[Array, Array, Array]:
    np = load_numpy()
    near, end = (p, t) if t <= 0.5 else (q, 1 - t)  # the step is odd about its threshold
    numbers = _linear_numbers(end, delta)
    if delta <= 0.25:  # then the middle line is clamped between the outer two
        first = near * numbers.first
        if numbers.first > 1:
            np.minimum(first, delta, out=first)
        mass = near * numbers.middle
        mass += numbers.middle_at_0
        np.maximum(mass, first, out=mass)
        last = near * numbers.last
        last += numbers.last_at_0
        np.minimum(mass, last, out=mass)
    else:
        corners = (0.0, numbers.a, numbers.b, 1.0), (0.0, delta, 1 - delta, 1.0)
        mass = np.interp(near, *corners).astype(p.dtype)
    rest = 1.0 - mass
    slope = (near > numbers.a) * (numbers.middle - numbers.first)
    slope = slope.astype(p.dtype)
    slope += numbers.first
    np.copyto(slope, numbers.last, where=near >= numbers.b)
    slope *= p
    slope *= q
    return (mass, rest, slope) if t <= 0.5 else (rest, mass, slope)
