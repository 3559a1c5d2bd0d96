"""A batch in its final shape: independent columns, or exclusive classes. Code below does not depend on the task.

Both make soft and hard counts, stacked ``(4, ..., c)``. With group numbers the counts are ``(4, groups, c)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.kernels.binary import hard_counts, masses, soft_counts
from metricfit.core.kernels.classes import class_counts
from metricfit.core.kernels.soft_classes import Layout, decisions, hard_decisions, sum_decisions
from metricfit.core.numerics import ROUNDING
from metricfit.core.steps import Linear, Step, StraightThrough, is_unchanged
from metricfit.core.tensor_numerics import exact_dtype, is_positive


@dataclass(frozen=True)
class Columns:
    """Independent yes-or-no questions: logits, target and weight ``(..., c, n)``.

    They are of one floating type, or on a CUDA device of the types that the user passed, if the batch is only counted.
    """

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    group: Tensor | None = None
    groups: int = 0

    default_step: ClassVar[Step] = Linear(delta=0.1)

    @property
    def labels(self) -> int:
        """The number of columns."""
        return self.logits.shape[-2]

    @property
    def exclusive(self) -> bool:
        """Whether the classes exclude each other, which is true of a single column."""
        return self.labels == 1

    def soft(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Return soft counts at one threshold; None is 0.5."""
        t = 0.5 if threshold is None else threshold
        if self.group is None:
            return soft_counts(self.logits, self.target, self.weight, step, t)
        if is_unchanged(step, StraightThrough):
            soft = self.soft(step.step, t)
            return self.hard(t).to(soft.dtype) + (soft - soft.detach())
        return self._count_groups(*masses(self.logits, step, t))

    def hard(self, threshold: float | Tensor | None) -> Tensor:
        """Return the counts of the decisions sigmoid(logit) >= threshold; None is 0.5."""
        t = 0.5 if threshold is None else threshold
        exact = self.exact()
        if self.group is None:
            return hard_counts(exact.logits, exact.target, exact.weight, t)
        positive = is_positive(self.logits, t).to(exact.target.dtype)
        return exact._count_groups(positive, 1 - positive)

    def exact(self) -> Columns:
        """Return a copy with target and weight detached and in the type of hard counts."""
        exact = exact_dtype(self.logits.device)
        weight = None if self.weight is None else self.weight.detach().to(exact)
        return replace(self, target=self.target.detach().to(exact), weight=weight)

    def _count_groups(self, mass: Tensor, rest: Tensor) -> Tensor:
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
    labels: ClassVar[None] = None

    def soft(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Return soft counts at one threshold; None is the dynamic one."""
        if self.group is None:
            return class_counts(self.logits, self.target, self.weight, step, threshold, self.layout)
        return self._count_groups(decisions(self.logits, step, threshold, self.layout))

    def hard(self, threshold: float | Tensor | None) -> Tensor:
        """Return the counts of the decisions argmax, which do not depend on the threshold."""
        exact = self.exact()
        if exact.target.is_floating_point():
            decided = exact.decided()
            if self.group is not None:
                return exact._count_groups(decided)
            return sum_decisions(decided, exact.target, exact.weight, self.layout)
        return exact._count_labels()

    def soft_matrix(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Return the soft confusion matrix at one threshold, of which ``soft`` returns the diagonal and the margins."""
        return self.confusion(decisions(self.logits, step, threshold, self.layout))

    def hard_matrix(self) -> Tensor:
        """Return the confusion matrix of the decisions argmax."""
        exact = self.exact()
        if exact.target.is_floating_point():
            return exact.confusion(exact.decided())
        classes, chosen, weight, rows, row = exact._labelled()
        place = ((row * classes + exact.target) * classes + chosen).reshape(-1)
        matrices = weight.new_zeros(rows * classes * classes).index_add(0, place, weight.reshape(-1))
        kept = self.group is not None or _keeps_images(self.layout)
        return matrices.reshape((rows, classes, classes) if kept else (classes, classes))

    def _labelled(self) -> tuple[int, Tensor, Tensor, int, Tensor]:
        """Return the number of classes, decisions and weights, the number of groups or images, and that of a sample."""
        axis, true = self.layout.class_axis, self.target
        classes, chosen = self.logits.shape[axis], self.logits.max(axis).indices  # on a CPU much faster than argmax
        dtype = exact_dtype(self.logits.device)
        weight = torch.ones_like(true, dtype=dtype) if self.weight is None else self.weight
        if self.group is not None:
            return classes, chosen, weight, self.groups, self.group.reshape(true.shape)
        if _keeps_images(self.layout):
            image = torch.arange(true.shape[0], device=true.device).unsqueeze(1).expand(true.shape)
            return classes, chosen, weight, true.shape[0], image
        return classes, chosen, weight, 1, torch.zeros_like(true)

    def _count_labels(self) -> Tensor:
        """Count each sample in its class, without an array of size samples times classes."""
        true, dtype = self.target, exact_dtype(self.logits.device)
        classes, chosen, weight, rows, row = self._labelled()
        right = chosen == true
        empty = torch.zeros(rows * classes, dtype=dtype, device=true.device)
        tp, fn, fp = (
            empty.index_add(0, (row * classes + label).reshape(-1), (weight * counted).reshape(-1)).reshape(
                rows, classes
            )
            for label, counted in ((true, right), (true, ~right), (chosen, ~right))
        )
        n = (tp + fn).sum(-1, keepdim=True)
        rest = n - tp - fn - fp
        counts = torch.stack([tp, fp, fn, torch.where(rest > ROUNDING * n, rest, 0.0)])
        return counts if self.group is not None or _keeps_images(self.layout) else counts.squeeze(1)

    def decided(self) -> Tensor:
        """Return the hard decisions: 1 for the argmax, the first of equal ones, and 0 for the other classes."""
        return hard_decisions(self.logits, self.layout, exact_dtype(self.logits.device))

    def exact(self) -> Classes:
        """Return a copy with target and weight detached and in the type of hard counts."""
        exact = exact_dtype(self.logits.device)
        target = self.target.to(exact) if self.target.is_floating_point() else self.target
        weight = None if self.weight is None else self.weight.detach().to(exact)
        return replace(self, target=target.detach(), weight=weight)

    def confusion(self, decided: Tensor) -> Tensor:
        """Return the c x c confusion matrix: row i, column j holds the samples of class i that were decided to be j.

        Counts per image or per group add a leading axis.
        """
        axis = self.layout.class_axis
        target = self._shares(decided)
        if self.weight is not None:
            target = target * self.weight.unsqueeze(axis)
        rows, columns = target.movedim(axis, -1), decided.movedim(axis, -1)
        if _keeps_images(self.layout):
            return rows.transpose(-1, -2) @ columns
        rows, columns = rows.flatten(0, -2), columns.flatten(0, -2)
        if self.group is None:
            return rows.T @ columns
        member = self.group.unsqueeze(-1) == torch.arange(self.groups, device=rows.device)
        by_group = (member.unsqueeze(-1) * rows.unsqueeze(-2)).flatten(1)
        return (by_group.T @ columns).reshape(self.groups, rows.shape[-1], columns.shape[-1])

    def _shares(self, decided: Tensor) -> Tensor:
        if self.target.is_floating_point():
            return self.target
        axis = self.layout.class_axis
        return torch.zeros_like(decided, requires_grad=False).scatter(axis, self.target.unsqueeze(axis), 1.0)

    def _count_groups(self, decided: Tensor) -> Tensor:
        axis = self.layout.class_axis
        positive = self._shares(decided)
        negative = 1 - positive
        if self.weight is not None:
            positive, negative = (share * self.weight.unsqueeze(axis) for share in (positive, negative))
        rest = 1 - decided
        parts = torch.stack([positive * decided, negative * decided, positive * rest, negative * rest])
        parts = parts.movedim(axis, -1).flatten(1, -2)
        assert self.group is not None
        return parts.new_zeros(4, self.groups, parts.shape[-1]).index_add(1, self.group, parts)


def _keeps_images(layout: Layout) -> bool:
    return layout.class_axis == -2 and layout.sample_axes == (-1,)


Batch = Columns | Classes
