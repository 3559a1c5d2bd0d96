"""Soft counts of a small batch of exclusive classes with NumPy, for Linear at the dynamic threshold and for Identity.

As ``binary_small``: NumPy's operations start several times faster than torch's. The formulas are those of
``step_formulas`` and ``classes_blocks``, and tests compare them.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from metricfit.core.kernels.binary_small import SMALL, Array, load_numpy


class Kept(NamedTuple):
    """What the gradient needs: probabilities, decisions, sums of masses, true classes, and slopes for Linear."""

    p: Array
    decided: Array
    total: Array
    true: Array
    slope: Array | None = None
    threshold_slope: Array | None = None
    top: tuple[Array, Array] | None = None


def handles(logits: Tensor, kind: str) -> bool:
    """Return whether the kernel is for these logits ``(n, c)``, which are contiguous on the CPU."""
    return kind in ("linear", "identity") and logits.numel() <= SMALL and load_numpy() is not None


def counts(logits: Tensor, target: Tensor, kind: str, delta: float) -> tuple[list[list[float]], Kept]:
    """Return soft counts, four lists with one number per class, and what ``gradient`` needs."""
    np = load_numpy()
    x, rows = logits.detach().numpy(), np.arange(len(logits))
    first = x.argmax(1)
    p = np.exp(x - x[rows, first][:, None])
    p /= _sum_rows(p)
    true = np.zeros(p.shape, bool)
    true[rows, target.numpy()] = True
    kept = Kept(p, p, 1.0, true) if kind == "identity" else _decide_linearly(p, rows, first, true, delta)
    rest, false = 1.0 - kept.decided, ~true
    ones = np.ones(len(p), p.dtype)
    cells = [ones.dot(labels * amount).tolist() for amount in (kept.decided, rest) for labels in (true, false)]
    return cells, kept


def _decide_linearly(p: Array, rows: Array, first: Array, true: Array, delta: float) -> Kept:
    np = load_numpy()
    others = p.copy()
    others[rows, first] = -1.0
    second = others.argmax(1)
    t = ((p[rows, first] + others[rows, second]) / 2.0)[:, None]  # at most 1/2
    a, c = t / 2.0, 1.0 - 1.5 * t
    m1, m2, m3 = delta / a, (1.0 - 2.0 * delta) / t, delta / c
    q = 1.0 - p
    in_first, in_last = p <= a, p >= 1.5 * t
    mass = m2 * (p - a)
    mass += delta
    if delta <= 0.25:  # then m1, m3 <= m2 and m3 <= 1: the middle line is clamped between the outer two
        np.maximum(mass, m1 * p, out=mass)
        np.minimum(mass, 1.0 - m3 * q, out=mass)
    else:
        mass = np.where(in_first, m1 * p, np.where(in_last, 1.0 - m3 * q, mass))
    slope = np.where(in_first, m1, np.where(in_last, m3, m2))
    threshold_slope = np.where(in_last, 1.5 * q / c, p / t)
    threshold_slope *= slope
    total = _sum_rows(mass)
    mass /= total
    return Kept(p, mass, total, true, slope, threshold_slope, (first, second))


def gradient(kept: Kept, of_positive: list[float], of_negative: list[float]) -> Array:
    """Return the gradient of the logits, from the gradients of the decisions for true and for other samples."""
    np = load_numpy()
    p = kept.p
    of_decided = np.where(kept.true, np.array(of_positive, p.dtype), np.array(of_negative, p.dtype))
    of_p = of_decided - _sum_rows(of_decided * kept.decided)
    of_p /= kept.total
    if kept.top is not None:
        of_threshold = _sum_rows(of_p * kept.threshold_slope)[:, 0] / 2.0
        of_p *= kept.slope
        rows = np.arange(len(p))
        for largest in kept.top:
            of_p[rows, largest] -= of_threshold
    of_p -= _sum_rows(p * of_p)
    of_p *= p
    return of_p


def _sum_rows(array: Array) -> Array:
    """Return the sums over the classes, ``(n, 1)``; a product with ones is faster than a sum along an axis."""
    return array.dot(load_numpy().ones((array.shape[1], 1), array.dtype))
