"""Linear at the dynamic threshold on the CPU: the masses of the classes, and the gradient of the logits.

With u = p/t, b = 3t/2 and beta = (1 - 4 delta)/(2 delta), the masses are, in units of 2 delta,

    h = u + beta relu(u - 1/2) + [p >= b] (m3 - m2) (p - b),    m2 = (1 + beta)/t,    m3 = 1/(2 (1 - b)).

Only the largest probability can exceed b, because the second largest is at most t. The terms do not cancel: no
probability exceeds 2t. The unit cancels in the decisions h/s.

Up to b the masses depend on p/t only, and so they do not depend on the normalisation of the softmax: with r the
gradient of the masses and q_k = r_k p_k dh_k/dp_k, the gradient of the logits is q_k - share_k p_k/t sum_j q_j, where
share_k is the derivative of t. The one mass h_1 beyond b depends on p_1 and t, with the derivatives m3 and -k, where
k = 3 m3 (1 - p_1)/(2 (1 - b)), and the softmax is normalised: dp_k/dx_j = p_k ([j = k] - p_j), dt/dx_j = p_j (share_j -
t). Together, with the sum over j without that mass,

    q_k + p_k (r_1 (k t - m3 p_1) - share_k (sum_j q_j/t + r_1 k)).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Up to this number of classes they are compared in turn to find the two largest probabilities.
FEW_CLASSES = 8

#: float32 counts exactly up to this number.
COUNTABLE = 2**24


class Largest(NamedTuple):
    """The two largest probabilities of each sample."""

    first: Tensor
    second: Tensor

    @property
    def threshold(self) -> Tensor:
        """The dynamic threshold, their mean."""
        return (self.first + self.second).mul_(0.5)

    def mark(self, p: Tensor, axis: int, out: Tensor) -> Tensor:
        """Write 1 for the two largest and 0 for the others, twice the derivatives of the threshold.

        Equal ones have equal shares of what is left for them.
        """
        marks = torch.ge(p, self.second, out=out)
        dtype = p.dtype if p.numel() <= COUNTABLE else torch.float64
        if float(marks.sum(dtype=dtype)) == 2 * self.first.numel():
            return marks
        equal = torch.eq(p, self.second, out=torch.empty_like(p))
        above = marks.sub_(equal)
        return above.add_(equal.mul_((2 - above.sum(axis, keepdim=True)) / equal.sum(axis, keepdim=True)))


def find_two_largest(p: Tensor, axis: int, spare: Tensor) -> Largest:
    """Return the two largest probabilities of each sample, with an axis of length 1 for the classes."""
    if axis == -2 and p.shape[axis] <= FEW_CLASSES:
        return _compare_in_turn(*p.chunk(p.shape[axis], axis))
    first = p.amax(axis, keepdim=True)
    is_first = torch.eq(p, first, out=spare)
    several = is_first.sum(axis, keepdim=True).gt_(1.5)
    second = torch.sub(p, is_first, out=spare).amax(axis, keepdim=True)
    return Largest(first, torch.maximum(second, several.mul_(first)))


def _compare_in_turn(p0: Tensor, p1: Tensor, *others: Tensor) -> Largest:
    first, second = torch.maximum(p0, p1), torch.minimum(p0, p1)
    lower = torch.empty_like(first) if others else first
    for p in others:
        torch.maximum(second, torch.minimum(first, p, out=lower), out=second)
        torch.maximum(first, p, out=first)
    return Largest(first, second)


class _Pieces(NamedTuple):
    """What the masses of a sample depend on: t, 1/t, b, m3 and m3 - m2 (see above)."""

    t: Tensor
    inverse: Tensor
    b: Tensor
    m3: Tensor
    bend: Tensor

    @classmethod
    def of(cls, largest: Largest, beta: float) -> _Pieces:
        t = largest.threshold
        inverse, b = t.reciprocal(), 1.5 * t
        m3 = torch.rsub(b, 1.0).reciprocal_().mul_(0.5)
        return cls(t, inverse, b, m3, torch.add(m3, inverse, alpha=-1 - beta))


def write_masses(p: Tensor, delta: float, axis: int, mass: Tensor, spare: Tensor) -> Tensor:
    """Write the masses, in units of 2 delta, over ``mass``."""
    largest, beta = find_two_largest(p, axis, spare), _beta(delta)
    return _write_masses(p, largest, _Pieces.of(largest, beta), beta, mass, spare)


def _beta(delta: float) -> float:
    return (1 - 4 * delta) / (2 * delta)


def _write_masses(p: Tensor, largest: Largest, pieces: _Pieces, beta: float, mass: Tensor, spare: Tensor) -> Tensor:
    torch.mul(p, pieces.inverse, out=mass)
    mass.add_(torch.ops.aten.softshrink.out(mass, 0.5, out=spare), alpha=beta)  # relu(u - 1/2), because u >= 0
    beyond = (largest.first - pieces.b).relu_().mul_(pieces.bend)
    return mass.addcmul_(torch.ge(p, pieces.b, out=spare), beyond)


def write_gradient(
    p: Tensor,
    of_decided: Tensor,
    weight: Tensor | None,
    delta: float,
    axis: int,
    result: Tensor,
    mass: Tensor,
    spare: Tensor,
) -> None:
    """Write the gradient of the logits from that of the decisions, which may be in the memory of ``result``."""
    largest, beta = find_two_largest(p, axis, spare), _beta(delta)
    pieces = _Pieces.of(largest, beta)
    t, inverse, b, m3, bend = pieces
    _write_masses(p, largest, pieces, beta, mass, spare)
    of_mass = to_masses(of_decided, mass, weight, axis, spare)
    mass.add_(torch.gt(p, 0.5 * t, out=spare), alpha=0.5 * beta)
    is_beyond = torch.ge(p, b, out=spare)
    p_times_slope = mass.addcmul_(is_beyond, bend.mul_(b))
    of_largest = is_beyond.mul_(of_mass).sum(axis, keepdim=True)  # of the mass beyond b, or 0
    q = p_times_slope.mul_(of_mass)
    steepness = m3 * largest.first
    q_of_others = q.sum(axis, keepdim=True).addcmul_(of_largest, steepness, value=-1)
    of_t = torch.rsub(largest.first, 1.0).mul_(m3).mul_(m3).mul_(3 * of_largest)
    for_all = torch.mul(of_t, t).addcmul_(of_largest, steepness, value=-1)
    for_two = q_of_others.mul_(inverse).add_(of_t)
    marks = largest.mark(p, axis, spare)
    torch.addcmul(q, p, torch.addcmul(for_all, marks, for_two, value=-0.5, out=spare), out=result)


def to_masses(of_decided: Tensor, mass: Tensor, weight: Tensor | None, axis: int, spare: Tensor) -> Tensor:
    """Write the gradient with respect to the masses over that of the decisions."""
    total = mass.sum(axis, keepdim=True)
    mean = torch.mul(of_decided, mass, out=spare).sum(axis, keepdim=True).div_(total)
    return of_decided.sub_(mean).mul_(total.reciprocal_() if weight is None else weight / total)
