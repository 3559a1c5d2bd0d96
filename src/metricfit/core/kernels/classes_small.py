"""Soft counts of a small batch of exclusive classes with NumPy, for Linear at the dynamic threshold and for Identity.

As ``binary_small``: NumPy's operations start several times faster than torch's. The formulas are those of
``step_formulas`` and ``classes_blocks``, and tests compare them. Arrays have one row per class, so that numbers of
samples are combined with them in long inner loops.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from metricfit.core.kernels.binary_small import Array, load_numpy

#: More logits are faster in ``classes_blocks``, on several threads and without arrays of the size of the logits.
SMALL = 2**16


class Kept(NamedTuple):
    """What the gradient needs: probabilities, decisions, sums of masses, labels, their positions, and for Linear more.

    Positions are those of one entry per sample in the raveled arrays.
    """

    p: Array
    decided: Array
    total: Array
    labels: Array
    true: Array
    linear: LinearKept | None = None


class LinearKept(NamedTuple):
    """The slopes, the threshold of each sample, the positions of its two largest probabilities, and a difference.

    The derivative of a decision by the threshold is its slope times -p / t, and for the largest probability of a
    sample, which alone can be on the last piece, ``correction`` more.
    """

    slope: Array
    t: Array
    first: Array
    second: Array
    correction: Array


def handles(logits: Tensor, kind: str) -> bool:
    """Return whether the kernel is for these logits ``(n, c)``, which are contiguous on the CPU."""
    return kind in ("linear", "identity") and logits.numel() <= SMALL and load_numpy() is not None


def counts(logits: Tensor, target: Tensor, kind: str, delta: float) -> tuple[list[list[float]], Kept]:
    """Return soft counts, four lists with one number per class, and what ``gradient`` needs."""
    np = load_numpy()
    x, labels = logits.detach().numpy(), target.numpy()
    (n, classes), samples = x.shape, _samples(len(x))
    first = x.argmax(1) * n + samples
    p = x.T.copy()
    p -= p.ravel()[first]
    np.exp(p, out=p)
    p /= _sum_classes(p)
    true = labels * n + samples
    kept = Kept(p, p, 1.0, labels, true)
    if kind == "linear":
        kept = _decide_linearly(kept, first, delta)
    tp = np.bincount(labels, kept.decided.ravel()[true], classes)  # in float64
    positives = np.bincount(labels, minlength=classes)
    of_others = kept.decided.copy()
    of_others.ravel()[true] = 0.0
    fp = of_others.sum(1)
    fn = np.bincount(labels, _sum_classes(of_others), classes)  # positives - tp would cancel
    tn = np.maximum(n - positives - fp, 0.0)
    return [tp.tolist(), fp.tolist(), fn.tolist(), tn.tolist()], kept


def hard_counts(logits: Tensor, target: Tensor) -> list[list[int]]:
    """Return the counts of the decisions argmax, four lists with one number per class."""
    np = load_numpy()
    labels, classes = target.numpy(), logits.shape[1]
    chosen = logits.detach().numpy().argmax(1)
    tp, predicted, positives = (
        np.bincount(numbers, minlength=classes) for numbers in (labels[chosen == labels], chosen, labels)
    )
    rest = len(labels) - predicted - positives + tp
    return [tp.tolist(), (predicted - tp).tolist(), (positives - tp).tolist(), rest.tolist()]


def _decide_linearly(kept: Kept, first: Array, delta: float) -> Kept:
    np, p = load_numpy(), kept.p
    others = p.copy()
    others.ravel()[first] = -1.0
    n = p.shape[1]
    second = others.argmax(0) * n + _samples(n)
    largest = p.ravel()[first]
    t = (largest + p.ravel()[second]) / 2.0  # at most 1/2
    a = t / 2.0
    m1, m2 = delta / a, (1.0 - 2.0 * delta) / t
    on_first = p <= a
    mass = p - a
    mass *= m2
    mass += delta
    if delta <= 0.25:  # then m1 <= m2, and the middle line is the larger one from its kink on
        np.maximum(mass, m1 * p, out=mass)
    else:
        mass = np.where(on_first, m1 * p, mass)
    slope = np.where(on_first, m1, m2)
    # The last piece starts at 3t/2, so that only the largest probability of a sample can be on it.
    on_last, rest, c = largest >= 1.5 * t, 1.0 - largest, 1.0 - 1.5 * t
    m3 = delta / c
    mass.ravel()[first] = np.where(on_last, 1.0 - m3 * rest, mass.ravel()[first])
    slope.ravel()[first] = np.where(on_last, m3, slope.ravel()[first])
    correction = np.where(on_last, 1.5 * rest / c - largest / t, 0.0)
    total = _sum_classes(mass)
    mass /= total
    return kept._replace(decided=mass, total=total, linear=LinearKept(slope, t, first, second, correction))


def gradient(kept: Kept, of_positive: list[float], of_negative: list[float]) -> Array:
    """Return the gradient of the logits, from the gradients of the decisions for true and for other samples."""
    np, p, linear = load_numpy(), kept.p, kept.linear
    of_p = np.empty_like(p)
    of_p[:] = np.array(of_negative, p.dtype)[:, None]
    of_p.ravel()[kept.true] = np.array(of_positive, p.dtype)[kept.labels]
    of_p -= _sum_classes(of_p * kept.decided)
    of_p /= kept.total
    if linear is not None:
        of_p *= linear.slope
    mean = _sum_classes(p * of_p)
    if linear is not None:
        of_threshold = (mean / linear.t + linear.correction * of_p.ravel()[linear.first]) / 2.0
        for largest in (linear.first, linear.second):
            of_p.ravel()[largest] -= of_threshold
        mean -= of_threshold * (2.0 * linear.t)
    of_p -= mean
    of_p *= p
    return of_p.T.copy()


def _sum_classes(array: Array) -> Array:
    """Return the sums over the classes, ``(n,)``; a product with ones is faster than a sum along an axis."""
    return _ones(len(array), array.dtype).dot(array)


@lru_cache(maxsize=16)
def _ones(n: int, dtype: Array) -> Array:
    return load_numpy().ones(n, dtype)


@lru_cache(maxsize=16)
def _samples(n: int) -> Array:
    return load_numpy().arange(n)
