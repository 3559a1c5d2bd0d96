"""Confusion counts, the value that every metric is a formula over. ``core.counting`` makes them from logits."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from metricfit.core.arrays import Array, exact, is_floating, is_tensor, namespace, one_number, to_numpy
from metricfit.core.numerics import Dual
from metricfit.errors import InvalidValueError

if TYPE_CHECKING:
    from metricfit.core.steps import Step
    from metricfit.core.types import Task, Thresholds


@dataclass(frozen=True, eq=False)
class Counts:
    """True positives, false positives, false negatives and true negatives, each of shape ``(..., c)``.

    They are NumPy arrays or torch tensors. The last axis is the class axis; a binary problem has one class, its
    positive one. Counts add: the counts of two batches are the sum of theirs, and ``sum(list_of_counts)`` is the sum of
    many.

    They are the right ones for sums of your own, over batches, groups or thresholds. For one number of outputs in
    memory there is ``metricfit.score``.

    Two Counts are equal if they hold the same numbers and ``exclusive`` is the same; the type and the device of the
    arrays do not matter. Counts cannot be hashed, because their arrays can change in place.

    Args:
        tp: True positives; numbers and sequences become float64 arrays.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        exclusive: Whether the classes exclude each other (multiclass), as opposed to several yes-or-no questions about
            each sample (multilabel). ``Counts.soft``, ``Counts.hard`` and all methods set it. If it is left out, it
            follows from the numbers, which add up to ``n`` over exclusive classes; under vmap and torch.compile, which
            hide the numbers, it is True.

    Raises:
        InvalidValueError: The four arrays differ in shape.

    Example:
        >>> batches = [Counts(tp=3, fp=1, fn=2, tn=4), Counts(tp=1, fp=0, fn=0, tn=9)]
        >>> sum(batches).positives
        array([6.])
        >>> batches[0] + batches[1] == sum(batches)
        True
    """

    tp: Array
    fp: Array
    fn: Array
    tn: Array
    exclusive: bool = field(default=None, kw_only=True)  # type: ignore[assignment]  # __post_init__ sets it

    def __post_init__(self) -> None:
        if isinstance(self.tp, Dual):
            return
        if not all(is_tensor(cell) for cell in self):
            for name in ("tp", "fp", "fn", "tn"):
                object.__setattr__(self, name, one_number(_as_cell(getattr(self, name), self)))
        shapes = {tuple(cell.shape) for cell in self}
        if len(shapes) > 1:
            raise InvalidValueError(f"tp, fp, fn and tn must have one shape, got {', '.join(map(str, sorted(shapes)))}")
        one_class = self.tp.ndim == 0 or self.tp.shape[-1] == 1
        if one_class or self.exclusive is None:
            object.__setattr__(
                self, "exclusive", one_class or _can_be_exclusive(self.positives, self.predicted, self.n)
            )

    def __iter__(self) -> Iterator[Array]:
        return iter((self.tp, self.fp, self.fn, self.tn))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        alike = len(self.tensors) == len(other.tensors) and self.exclusive == other.exclusive
        alike = alike and self.tp.shape == other.tp.shape
        cells = zip(self.tensors, other.tensors, strict=False)
        return alike and all(bool((to_numpy(a) == to_numpy(b)).all()) for a, b in cells)

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        shapes = [tuple(counts.tensors[0].shape) for counts in (self, other)]
        if shapes[0] != shapes[1]:
            raise InvalidValueError(f"counts of shapes {shapes[0]} and {shapes[1]} do not add")
        sums = (left + right for left, right in zip(self.tensors, other.tensors, strict=True))
        return (other if self.exclusive else self).with_tensors(sums)

    def __radd__(self, other: int) -> Counts:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # sum() starts from 0

    @property
    def tensors(self) -> tuple[Array, ...]:
        """The arrays that add up over batches and processes: tp, fp, fn and tn."""
        return self.tp, self.fp, self.fn, self.tn

    def with_tensors(self, tensors: Iterable[Array]) -> Counts:
        """Make counts of the same kind from other arrays.

        Args:
            tensors: The new arrays, in the order of ``tensors``.

        Returns:
            The new counts.
        """
        return Counts(*tensors, exclusive=self.exclusive)

    @classmethod
    def stack(cls, counts: Iterable[Counts], dim: int = 0) -> Counts:
        """Join counts of one shape along a new axis, as ``numpy.stack`` joins arrays.

        Args:
            counts: The counts to join.
            dim: Position of the new axis, before the class axis.

        Returns:
            Counts with one more axis. Their classes are exclusive if all parts have exclusive classes.

        Raises:
            InvalidValueError: There are no counts, or ``dim`` is out of range.

        Example:
            >>> Counts.stack([Counts(tp=3, fp=1, fn=2, tn=4), Counts(tp=1, fp=0, fn=0, tn=9)]).tp.shape
            (2, 1)
        """
        if not (parts := list(counts)):
            raise InvalidValueError("no counts to stack")
        axes = parts[0].tp.ndim
        if not -axes - 1 <= dim < axes or dim == -1:
            raise InvalidValueError(f"dim must be from 0 to {axes - 1}, before the class axis, got {dim}")
        columns = zip(*(part.tensors for part in parts), strict=True)
        joined = (namespace(*column).stack(column, dim % (axes + 1)) for column in columns)
        return next((part for part in parts if not part.exclusive), parts[0]).with_tensors(joined)

    def map(self, function: Callable[[Array], Array]) -> Counts:
        """Apply a function to each of the four counts; the result holds no confusion matrix.

        Args:
            function: A function of an array, such as ``numpy.negative``. It must keep the class axis last.

        Returns:
            The new counts.

        Example:
            >>> Counts(tp=3, fp=1, fn=2, tn=4).map(np.negative).tp
            array([-3.])
        """
        return Counts(*(function(cell) for cell in self), exclusive=self.exclusive)

    def to(self, *args: Any, **kwargs: Any) -> Counts:
        """Move the counts to another device or another type of torch; arrays become tensors.

        Args:
            *args: The arguments of ``Tensor.to``.
            **kwargs: The arguments of ``Tensor.to``.

        Returns:
            The new counts.

        Example:
            >>> Counts(tp=3, fp=1, fn=2, tn=4).to(torch.float32).tp
            tensor([3.])
        """
        import torch

        return self.with_tensors(torch.as_tensor(tensor).to(*args, **kwargs) for tensor in self.tensors)

    def sum_over_ranks(self) -> Counts:
        """Sum the counts of all processes of ``torch.distributed`` by one all-reduce.

        Every process must call it. Its gradient is the one that DistributedDataParallel needs.

        Returns:
            The sum; outside a distributed run the counts themselves.
        """
        if not is_tensor(self.tensors[0]):
            return self
        from metricfit.core.distributed import sum_over_ranks

        return self.with_tensors(sum_over_ranks(namespace(*self.tensors).stack(self.tensors)))

    @property
    def classes(self) -> int:
        """Number of classes; 1 for a binary problem."""
        cells = self.tp.value if isinstance(self.tp, Dual) else self.tp
        return int(cells.shape[-1]) if getattr(cells, "shape", ()) else 1

    @property
    def positives(self) -> Array:
        """Number of samples of the class: tp + fn."""
        return self.tp + self.fn

    @property
    def negatives(self) -> Array:
        """Number of samples that are not of the class: fp + tn."""
        return self.fp + self.tn

    @property
    def predicted(self) -> Array:
        """Number of samples that are predicted to be of the class: tp + fp."""
        return self.tp + self.fp

    @property
    def n(self) -> Array:
        """Number of samples: tp + fp + fn + tn."""
        return self.tp + self.fp + self.fn + self.tn

    @classmethod
    def soft(
        cls,
        logits: Array,
        target: Array,
        *,
        task: Task | None = None,
        step: Step | None = None,
        threshold: Thresholds = None,
        weight: Array | None = None,
        ignore_index: int | None = None,
        per_image: bool = False,
        group: Array | None = None,
        groups: int | None = None,
        validate: bool | None = None,
    ) -> Counts:
        """Count soft decisions, differentiably: a sample counts for a class by ``step(probability, threshold)``.

        Binary and multilabel probabilities are sigmoids, multiclass ones a softmax, with soft decisions that sum to 1.

        Args:
            logits: Outputs of the model: ``(n,)`` or ``(n, 1)`` for binary, else ``(n, c, ...)``, c classes or labels.
            target: Labels. They may be soft: a target of 0.3 is 0.3 of a positive and 0.7 of a negative sample.
            task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two of them.
            step: The soft decision; by default ``Linear(0.1)``, for multiclass ``Linear(0.2)``.
            threshold: A probability; by default 0.5, for multiclass "dynamic", the mean of the two largest
                probabilities of a sample. ``metrics.PerLabel([...])`` has one per label. Several numbers, or
                ``metrics.ThresholdGrid([...])``, are counted one by one.
            weight: One weight per sample, at least 0.
            ignore_index: Samples with this label are not counted.
            per_image: Whether to count each image separately.
            group: One group number per row of the batch, from 0 to ``groups - 1``; each group is counted separately.
            groups: Number of groups; by default the largest group number plus 1.
            validate: Whether to check labels and logits for values out of range and NaN; by default in eager mode on
                the CPU.

        Returns:
            Counts ``(c,)``. Several thresholds, images or groups add a leading axis: ``(thresholds, c)``, ``(n, c)`` or
            ``(groups, c)``.

        Raises:
            InvalidValueError: Shapes, labels, weights or thresholds do not fit; the message says what to do.
            InvalidTypeError: An argument is not a tensor, or the logits are integers.

        Example:
            >>> Counts.soft(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).tp
            tensor([0.9523])
        """
        # Imported here: counting needs Counts, and Counts as a value needs no kernels.
        from metricfit.core.counting import count_soft
        from metricfit.core.settings import CountSettings

        settings = CountSettings(task, step, threshold, ignore_index, per_image, groups, validate)
        return count_soft(logits, target, settings, weight=weight, group=group)

    @classmethod
    def hard(
        cls,
        logits: Array,
        target: Array,
        *,
        task: Task | None = None,
        threshold: Thresholds = None,
        weight: Array | None = None,
        ignore_index: int | None = None,
        per_image: bool = False,
        group: Array | None = None,
        groups: int | None = None,
        validate: bool | None = None,
    ) -> Counts:
        """Count hard decisions, exactly and without gradient.

        Binary and multilabel decisions are ``sigmoid(logit) >= threshold``, compared in float32 for a threshold that
        float32 can hold and in float64 for any other: a threshold that ``curves.best_threshold`` chose on
        ``logits.sigmoid()`` gives the value that it was chosen for. A multiclass decision is the argmax, the first of
        equal ones.

        Args:
            logits: As in ``soft``, tensors or NumPy arrays.
            target: As in ``soft``, of the kind of the logits.
            task: As in ``soft``.
            threshold: A number, by default 0.5; one per label with ``metrics.PerLabel([...])``; several numbers, or
                ``metrics.ThresholdGrid([...])``, are counted one by one.
            weight: As in ``soft``.
            ignore_index: As in ``soft``.
            per_image: As in ``soft``.
            group: As in ``soft``.
            groups: As in ``soft``.
            validate: As in ``soft``.

        Returns:
            Counts in float64, of the shapes that ``soft`` returns.

        Raises:
            InvalidValueError: Shapes, labels, weights or thresholds do not fit; the message says what to do.
            InvalidTypeError: An argument is not a tensor, or the logits are integers.

        Example:
            >>> Counts.hard(np.array([2.0, -2.0]), np.array([1, 0])).tn
            array([1.])
        """
        from metricfit.core.decisions import count_hard
        from metricfit.core.settings import CountSettings

        settings = CountSettings(task, None, threshold, ignore_index, per_image, groups, validate)
        return count_hard(logits, target, settings, weight=weight, group=group)

    @classmethod
    def from_labels(
        cls,
        predicted: Array,
        target: Array,
        *,
        num_classes: int | None = None,
        weight: Array | None = None,
    ) -> Counts:
        """Count predicted labels against true labels.

        Args:
            predicted: Predicted labels, ``(n,)`` or ``(n, 1)``, in an array, a tensor or a list.
            target: True labels of the same length.
            num_classes: Number of classes; without it labels are 0 and 1.
            weight: One weight per sample, at least 0.

        Returns:
            Counts ``(num_classes,)``, or ``(1,)`` of the positive class alone for 0/1 labels.

        Raises:
            InvalidValueError: The lengths differ, or labels or weights are out of range.

        Example:
            >>> Counts.from_labels([1, 1, 0], [1, 0, 0]).fp
            array([1.])
            >>> Counts.from_labels([2, 1, 0], [2, 0, 0], num_classes=3).tp
            array([1., 0., 1.])
        """
        from metricfit.core.decisions import count_labels

        return count_labels(predicted, target, num_classes=num_classes, weight=weight)


def _as_cell(cell: Any, cells: Iterable[Any]) -> Array:
    """Return a count as a tensor if one of the cells is one, and otherwise as a floating-point array."""
    if any(is_tensor(other) for other in cells):
        torch = sys.modules["torch"]
        cell = torch.as_tensor(cell, dtype=torch.float64)
        return cell.reshape(1) if cell.dim() == 0 else cell
    if isinstance(cell, np.ndarray) and is_floating(cell):
        return cell
    cell = np.asarray(cell, np.float64)
    return cell.reshape(1) if cell.ndim == 0 else cell


def _can_be_exclusive(positives: Array, predicted: Array, n: Array) -> bool:
    """Return whether the classes of counts can be exclusive: positives and predictions each add up to n over them."""
    if is_tensor(n) and sys.modules["torch"].compiler.is_compiling():
        return True
    xp, rounding = namespace(n), 0.0
    if is_floating(n):
        rounding = math.sqrt(xp.finfo(n.dtype).eps)
    positives, predicted, n = map(exact, (positives, predicted, n))
    total = xp.amax(n, -1)[..., None]
    differences = (n - total, positives.sum(-1)[..., None] - total, predicted.sum(-1)[..., None] - total)
    agree = xp.stack([(abs(difference) <= rounding * total).all() for difference in differences]).all()
    try:
        return bool(agree)
    except RuntimeError:  # vmap hides the numbers
        return True
