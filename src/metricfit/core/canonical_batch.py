"""A batch in its final shape: independent columns, or exclusive classes. Code below does not depend on the task.

Both make hard counts of tensors and of arrays, and soft counts of tensors, stacked ``(4, ..., c)``. With group numbers
the counts are ``(4, groups, c)``. Soft counts import the kernels when they are called, because arrays have none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from metricfit.core.arrays import (
    Array,
    arange,
    cast,
    exact,
    exact_type,
    full,
    is_floating,
    largest_along,
    move_axis,
    namespace,
    split_masses,
    sum_at,
    sum_groups,
    sum_masses,
)
from metricfit.core.numerics import ROUNDING, constant, is_positive, where
from metricfit.core.types import Layout

if TYPE_CHECKING:
    from torch import Tensor

    from metricfit.core.steps import Step


@dataclass(frozen=True)
class Columns:
    """Independent yes-or-no questions: logits, target and weight ``(..., c, n)``.

    They are of one floating type, or on a CUDA device of the types that the user passed, if the batch is only counted.
    """

    logits: Array
    target: Array
    weight: Array | None
    group: Array | None = None
    groups: int = 0

    @property
    def labels(self) -> int:
        """The number of columns."""
        return int(self.logits.shape[-2])

    @property
    def exclusive(self) -> bool:
        """Whether the classes exclude each other, which is true of a single column."""
        return self.labels == 1

    def soft(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Return soft counts at one threshold; None is 0.5."""
        from metricfit.core.kernels.binary import masses, soft_counts
        from metricfit.core.steps import StraightThrough, is_unchanged

        t = 0.5 if threshold is None else threshold
        if self.group is None:
            return soft_counts(self.logits, self.target, self.weight, step, t)
        if is_unchanged(step, StraightThrough):
            soft = self.soft(step.step, t)
            return self.hard(t).to(soft.dtype) + (soft - soft.detach())
        return self._count_groups(*masses(self.logits, step, t))

    def hard(self, threshold: float | Array | None) -> Array:
        """Return the counts of the decisions sigmoid(logit) >= threshold; None is 0.5."""
        batch = self.exact()
        positive = cast(is_positive(self.logits, 0.5 if threshold is None else threshold), batch.target.dtype)
        return batch._count_groups(positive, 1 - positive)

    def exact(self) -> Columns:
        """Return a copy with target and weight detached and in the type of hard counts."""
        weight = None if self.weight is None else exact(self.weight)
        return replace(self, target=exact(self.target), weight=weight)

    def _count_groups(self, mass: Array, rest: Array) -> Array:
        """Sum the masses of positive and negative decisions over all samples, or over the samples of each group."""
        if self.group is None:
            return sum_masses(mass, rest, self.target, self.weight)
        parts = namespace(mass).stack(split_masses(mass, rest, self.target, self.weight))
        return move_axis(sum_groups(parts, self.group, self.groups), -1, -2)


@dataclass(frozen=True)
class Classes:
    """Exclusive classes: logits ``(n, c)`` or ``(images, c, pixels)``, with class numbers or class shares as target."""

    logits: Array
    target: Array
    weight: Array | None
    layout: Layout
    group: Array | None = None
    groups: int = 0

    exclusive: ClassVar[bool] = True
    labels: ClassVar[None] = None

    def soft(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Return soft counts at one threshold; None is the dynamic one."""
        from metricfit.core.kernels.classes import class_counts
        from metricfit.core.kernels.soft_classes import decisions

        if self.group is None:
            return class_counts(self.logits, self.target, self.weight, step, threshold, self.layout)
        return self._count_groups(decisions(self.logits, step, threshold, self.layout))

    def hard(self, threshold: float | Array | None) -> Array:
        """Return the counts of the decisions argmax, which do not depend on the threshold."""
        batch = self.exact()
        return batch._count_groups(batch.decided()) if is_floating(batch.target) else batch._count_labels()

    def soft_matrix(self, step: Step, threshold: float | Tensor | None) -> Tensor:
        """Return the soft confusion matrix at one threshold, of which ``soft`` returns the diagonal and the margins."""
        from metricfit.core.kernels.soft_classes import decisions

        return self.confusion(decisions(self.logits, step, threshold, self.layout))

    def hard_matrix(self) -> Array:
        """Return the confusion matrix of the decisions argmax."""
        batch = self.exact()
        if is_floating(batch.target):
            return batch.confusion(batch.decided())
        classes, chosen, weight, rows, row = batch._labelled()
        place = ((row * classes + batch.target) * classes + chosen).reshape(-1)
        matrices = sum_at(place, weight.reshape(-1), rows * classes * classes)
        return matrices.reshape((rows, classes, classes) if self._has_rows else (classes, classes))

    @property
    def _keeps_images(self) -> bool:
        return self.layout.class_axis == -2 and self.layout.sample_axes == (-1,)

    @property
    def _has_rows(self) -> bool:
        """Whether there is one row of counts for each group or image."""
        return self.group is not None or self._keeps_images

    def _labelled(self) -> tuple[int, Array, Array, int, Array]:
        """Return the number of classes, decisions, weights, the number of groups or images, and the group of each."""
        axis, true = self.layout.class_axis, self.target
        classes, chosen = self.logits.shape[axis], largest_along(self.logits, axis)
        weight = full(true, true.shape, 1.0, exact_type(true)) if self.weight is None else self.weight
        if self.group is not None:
            return classes, chosen, weight, self.groups, self.group.reshape(true.shape)
        if self._keeps_images:
            image = namespace(true).broadcast_to(arange(true, 0, len(true))[:, None], true.shape)
            return classes, chosen, weight, len(true), image
        return classes, chosen, weight, 1, full(true, true.shape, 0)

    def _count_labels(self) -> Array:
        """Count each sample in its class, without an array of size samples times classes."""
        true, xp = self.target, namespace(self.target)
        classes, chosen, weight, rows, row = self._labelled()
        right = chosen == true
        tp, fn, fp = (
            sum_at((row * classes + label).reshape(-1), (weight * counted).reshape(-1), rows * classes).reshape(
                rows, classes
            )
            for label, counted in ((true, right), (true, ~right), (chosen, ~right))
        )
        n = (tp + fn).sum(-1)[..., None]
        rest = n - tp - fn - fp
        counts = xp.stack([tp, fp, fn, where(rest > ROUNDING * n, rest, 0.0)])
        return counts if self._has_rows else counts[:, 0]

    def decided(self) -> Array:
        """Return the hard decisions: 1 for the argmax, the first of equal ones, and 0 for the other classes."""
        return self._one_hot(largest_along(self.logits, self.layout.class_axis))

    def exact(self) -> Classes:
        """Return a copy without gradients, with class shares and weight in the type of hard counts."""
        target = exact(self.target) if is_floating(self.target) else self.target
        weight = None if self.weight is None else exact(self.weight)
        return replace(self, logits=constant(self.logits), target=target, weight=weight)

    def confusion(self, decided: Array) -> Array:
        """Return the c x c confusion matrix: row i, column j holds the samples of class i that were decided to be j.

        Counts per image or per group add a leading axis.
        """
        axis = self.layout.class_axis
        target = self._shares(decided)
        if self.weight is not None:
            target = target * move_axis(self.weight[..., None], -1, axis)
        rows, columns = (move_axis(part, axis, -1) for part in (target, decided))
        if self._keeps_images:
            return move_axis(rows, -1, -2) @ columns
        classes = rows.shape[-1]
        rows, columns = rows.reshape(-1, classes), columns.reshape(-1, classes)
        if self.group is None:
            return rows.T @ columns
        member = self.group[:, None] == arange(rows, 0, self.groups)
        by_group = (member[..., None] * rows[:, None]).reshape(len(rows), -1)
        return (by_group.T @ columns).reshape(self.groups, classes, classes)

    def _one_hot(self, numbers: Array) -> Array:
        """Return 1 for the class of each sample and 0 for the others, in the shape of the logits."""
        classes = self.logits.shape[self.layout.class_axis]
        chosen = numbers[..., None] == arange(numbers, 0, classes)
        return exact(move_axis(chosen, -1, self.layout.class_axis))

    def _shares(self, decided: Array) -> Array:
        return self.target if is_floating(self.target) else cast(self._one_hot(self.target), decided.dtype)

    def _count_groups(self, decided: Array) -> Array:
        """Sum decisions of the logits' shape over all samples, or over the samples of each group."""
        axis, xp = self.layout.class_axis, namespace(decided)
        positive = self._shares(decided)
        negative = 1 - positive
        if self.weight is not None:
            weight = move_axis(self.weight[..., None], -1, axis)
            positive, negative = positive * weight, negative * weight
        rest = 1 - decided
        parts = xp.stack([positive * decided, negative * decided, positive * rest, negative * rest])
        if self.group is None:
            return parts.sum(self.layout.sample_axes)
        parts = move_axis(parts, axis, 1)
        parts = parts.reshape(*parts.shape[:2], -1)
        return move_axis(sum_groups(parts, self.group, self.groups), -1, -2)


Batch = Columns | Classes
