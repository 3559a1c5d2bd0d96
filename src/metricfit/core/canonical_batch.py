"""A batch whose shapes are settled: independent columns, or exclusive classes. Below here nobody asks which task it is.

Both count themselves, soft or hard, into counts stacked ``(4, ..., c)``, with a leading group axis where samples
carry group numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.kernels.binary import hard_counts, masses, soft_counts
from metricfit.core.kernels.class_layout import Layout
from metricfit.core.kernels.classes import class_counts, decisions, hard_decisions, sum_decisions
from metricfit.core.numerics import ROUNDING, exact_dtype, is_positive
from metricfit.core.steps import Linear, Step, StraightThrough, is_unchanged


@dataclass(frozen=True)
class Columns:
    """c independent yes-or-no questions: logits, target and weight ``(..., c, n)`` of one floating type."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    group: Tensor | None = None
    groups: int = 0

    default_step: ClassVar[Step] = Linear(delta=0.1)

    @property
    def exclusive(self) -> bool:
        """Whether the classes exclude each other; one column is one class and no other."""
        return self.logits.shape[-2] == 1

    def soft(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Soft counts at one threshold."""
        t = 0.5 if threshold is None else threshold
        if self.group is None:
            return soft_counts(self.logits, self.target, self.weight, step, t)
        if is_unchanged(step, StraightThrough):
            soft = self.soft(step.step, t)
            return self.hard(t).to(soft.dtype) + (soft - soft.detach())
        return self._by_group(*masses(self.logits, step, t))

    def hard(self, threshold: float | Tensor | None) -> Tensor:
        """Counts of the decisions sigmoid(logit) >= threshold."""
        t = 0.5 if threshold is None else threshold
        exact = self.exact()
        if self.group is None:
            return hard_counts(exact.logits, exact.target, exact.weight, t)
        positive = is_positive(self.logits, t).to(exact.target.dtype)
        return exact._by_group(positive, 1 - positive)

    def exact(self) -> Columns:
        """The same with target and weight detached and of the type hard counts are kept in."""
        exact = exact_dtype(self.logits.device)
        weight = None if self.weight is None else self.weight.detach().to(exact)
        return replace(self, target=self.target.detach().to(exact), weight=weight)

    def _by_group(self, mass: Tensor, rest: Tensor) -> Tensor:
        positive, negative = self.target, 1 - self.target
        if self.weight is not None:
            positive, negative = positive * self.weight, negative * self.weight
        parts = torch.stack([positive * mass, negative * mass, positive * rest, negative * rest])
        assert self.group is not None
        empty = parts.new_zeros(*parts.shape[:-1], self.groups)
        return empty.index_add(-1, self.group, parts).transpose(-1, -2)


@dataclass(frozen=True)
class Classes:
    """Exclusive classes: logits ``(n, c)`` or ``(images, c, pixels)``, with class numbers or class shares as target."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    layout: Layout
    group: Tensor | None = None
    groups: int = 0

    default_step: ClassVar[Step] = Linear(delta=0.2)
    exclusive: ClassVar[bool] = True

    def soft(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Soft counts at one threshold, or at the dynamic one."""
        if self.group is None:
            return class_counts(self.logits, self.target, self.weight, step, threshold, self.layout)
        return self._by_group(decisions(self.logits, step, threshold, self.layout))

    def hard(self, threshold: float | Tensor | None) -> Tensor:
        """Counts of the decisions argmax, whatever the threshold."""
        exact = self.exact()
        if exact.target.is_floating_point():
            decided = exact.decided()
            if self.group is not None:
                return exact._by_group(decided)
            return sum_decisions(decided, exact.target, exact.weight, self.layout)
        return exact._by_label()

    def _by_label(self) -> Tensor:
        """Hard counts by adding each sample to its class's, with no array of samples times classes."""
        axis = self.layout.class_axis
        classes, dtype = self.logits.shape[axis], exact_dtype(self.logits.device)
        chosen, true = self.logits.argmax(axis), self.target
        weight = torch.ones_like(true, dtype=dtype) if self.weight is None else self.weight
        if self.group is not None:
            lead, at = self.groups, self.group.reshape(true.shape)
        elif _keeps_images(self.layout):
            lead, at = true.shape[0], torch.arange(true.shape[0], device=true.device).unsqueeze(1).expand(true.shape)
        else:
            lead, at = 1, torch.zeros_like(true)
        right = chosen == true
        empty = torch.zeros(lead * classes, dtype=dtype, device=true.device)
        tp, fn, fp = (
            empty.index_add(0, (at * classes + which).reshape(-1), (weight * counted).reshape(-1)).reshape(
                lead, classes
            )
            for which, counted in ((true, right), (true, ~right), (chosen, ~right))
        )
        n = (tp + fn).sum(-1, keepdim=True)
        rest = n - tp - fn - fp
        counts = torch.stack([tp, fp, fn, torch.where(rest > ROUNDING * n, rest, 0.0)])
        return counts if self.group is not None or _keeps_images(self.layout) else counts.squeeze(1)

    def decided(self) -> Tensor:
        """The hard decisions: 1 for the argmax, the first on ties, and 0 for other classes."""
        return hard_decisions(self.logits, self.layout, exact_dtype(self.logits.device))

    def exact(self) -> Classes:
        """The same with target and weight detached and of the type hard counts are kept in."""
        exact = exact_dtype(self.logits.device)
        target = self.target.to(exact) if self.target.is_floating_point() else self.target
        weight = None if self.weight is None else self.weight.detach().to(exact)
        return replace(self, target=target.detach(), weight=weight)

    def confusion(self, decided: Tensor) -> Tensor:
        """The c x c matrix of decisions by true class: row i, column j holds what of class i was given to j."""
        axis = self.layout.class_axis
        target = self._shares(decided)
        if self.weight is not None:
            target = target * self.weight.unsqueeze(axis)
        rows, columns = (given.movedim(axis, -1).flatten(0, -2) for given in (target, decided))
        return rows.T @ columns

    def _shares(self, decided: Tensor) -> Tensor:
        if self.target.is_floating_point():
            return self.target
        axis = self.layout.class_axis
        return torch.zeros_like(decided, requires_grad=False).scatter(axis, self.target.unsqueeze(axis), 1.0)

    def _by_group(self, decided: Tensor) -> Tensor:
        axis = self.layout.class_axis
        positive = self._shares(decided)
        negative = 1 - positive
        if self.weight is not None:
            positive, negative = (given * self.weight.unsqueeze(axis) for given in (positive, negative))
        rest = 1 - decided
        parts = torch.stack([positive * decided, negative * decided, positive * rest, negative * rest])
        parts = parts.movedim(axis, -1).flatten(1, -2)
        assert self.group is not None
        return parts.new_zeros(4, self.groups, parts.shape[-1]).index_add(1, self.group, parts)


def _keeps_images(layout: Layout) -> bool:
    return layout.class_axis == -2 and layout.sample_axes == (-1,)


Batch = Columns | Classes
