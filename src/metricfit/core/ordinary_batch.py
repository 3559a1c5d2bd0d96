"""Batches that are counted in few operations, because on a small batch each operation costs more than its arithmetic.

A batch is ordinary if torch computes it eagerly, without groups, images or ignored labels, with a closed-form step, and
with one threshold that is a number, or dynamic for exclusive classes: on the CPU in float32 or float64, and on a GPU
with Triton if it is binary. Its shapes are settled once for all batches of the same shapes, its values are checked as
in ``core.tasks.canonical``, and the kernel takes it in the layout in which it was passed: on a small batch a view costs
as much as a computation. ``core.counting.count_soft`` counts all other batches, and tests compare the two.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge, inspects_targets
from metricfit.core.counts import Counts
from metricfit.core.kernels import binary_cpu, binary_small, binary_triton, classes_blocks, classes_small
from metricfit.core.kernels.binary import closed_counts, column_counts, hard_counts
from metricfit.core.kernels.class_layout import Layout, StepAt
from metricfit.core.kernels.classes import closed_class_counts
from metricfit.core.numerics import exact_dtype, is_positive, is_transformed
from metricfit.core.steps import Step, check_threshold, closed_form
from metricfit.core.tasks import read_task
from metricfit.core.types import Task, Thresholds
from metricfit.core.validation import check_finite, check_labels, check_weight

_PLAIN_TYPES = frozenset((Tensor, nn.Parameter))
_DTYPES = frozenset((torch.float32, torch.float64))

#: The layout of logits ``(n, c)`` of exclusive classes.
ROWS = Layout(-1, (-2,))

#: Four numbers, or four lists with one number per class.
FourNumbers = list[float] | list[list[float]]


class OrdinaryColumns(NamedTuple):
    """How to count a binary or multilabel batch: its number of classes, the step and the threshold."""

    classes: int
    kind: str
    number: float
    threshold: float

    @property
    def exclusive(self) -> bool:
        """Whether the classes exclude each other, which is true of a single one."""
        return self.classes == 1

    def soft_counts(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Return soft counts ``(4, c)`` with their gradient; the target has the logits' type."""
        return column_counts(logits, target, weight, *self)

    def sums(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[FourNumbers, Any]:
        """Return the same counts as numbers, and what ``gradient`` needs besides the batch."""
        x, y, w = binary_cpu.as_columns(logits, target, weight, self.classes)
        if binary_small.handles(x, self.threshold):
            return binary_small.counts(x, y, w, *self[1:])
        sums = binary_cpu.column_sums(x, y, w, *self[1:])
        return [cell.tolist() for cell in sums] if self.classes > 1 else sums, None

    def gradient(
        self, logits: Tensor, target: Tensor, weight: Tensor | None, kept: Any, of_counts: FourNumbers
    ) -> Tensor:
        """Return the gradient of the logits from the gradients of the counts."""
        of_positive, of_negative = self._of_masses(of_counts)
        x, y, w = binary_cpu.as_columns(logits, target, weight, self.classes)
        if kept is not None:
            result = torch.from_numpy(binary_small.gradient(y, of_positive, of_negative, kept))
        else:
            if self.classes > 1:
                of_positive, of_negative = torch.tensor([of_positive, of_negative], dtype=x.dtype, device="cpu")
            result = binary_cpu.column_gradient(x, y, w, of_positive, of_negative, *self[1:])
        return result if result.shape == logits.shape else result.view(logits.shape)

    def _of_masses(self, of_counts: FourNumbers) -> tuple[Any, Any]:
        """Return the gradients of the mass of a positive and of a negative sample, for each class."""
        tp, fp, fn, tn = of_counts
        if isinstance(tp, float):
            return tp - fn, fp - tn  # type: ignore[operator]
        pairs = (tp, fn), (fp, tn)
        return tuple([a - b for a, b in zip(*pair, strict=True)] for pair in pairs)  # type: ignore[arg-type, return-value]


class BinaryOnGPU(NamedTuple):
    """How to count a binary batch on a GPU: the step and the threshold."""

    kind: str
    number: float
    threshold: float

    @property
    def classes(self) -> int:
        """The number of classes."""
        return 1

    @property
    def exclusive(self) -> bool:
        """Whether the classes exclude each other, which is true of a single one."""
        return True

    def soft_counts(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Return soft counts ``(4, 1)`` with their gradient."""
        x, y, w = _one_row(logits, target, weight)
        return closed_counts(x, y, w, self.kind, self.number, self.threshold)

    def partial_counts(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Return the counts of the parts of the batch, ``(4, 1, parts)``."""
        x, y, w = _one_row(logits, target, weight)
        return binary_triton.partial_counts(x, y, w, self.kind, self.number, self.threshold)

    def gradient(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        of_counts: Tensor,
        scale: Tensor | None = None,
    ) -> Tensor:
        """Return the gradient of the logits from the gradients ``(4,)`` of the counts, multiplied by ``scale``."""
        x, y, w = _one_row(logits, target, weight)
        settings = self.kind, self.number, self.threshold
        gradient = binary_triton.gradient(x, y, w, of_counts, *settings, scale)
        return gradient.view(logits.shape)


def _one_row(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    return logits.view(1, -1), target.view(1, -1), None if weight is None else weight.view(1, -1)


class OrdinaryClasses(NamedTuple):
    """How to count a batch of exclusive classes at the dynamic threshold: their number and the step."""

    classes: int
    step: StepAt

    @property
    def exclusive(self) -> bool:
        """Whether the classes exclude each other."""
        return True

    def soft_counts(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Return soft counts ``(4, c)`` with their gradient."""
        return closed_class_counts(logits, target, weight, self.step, ROWS)

    def sums(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[FourNumbers, Any]:
        """Return the same counts as numbers, and what ``gradient`` needs besides the batch."""
        if weight is None and classes_small.handles(logits, self.step.kind):
            return classes_small.counts(logits, target, self.step.kind, self.step.number)
        return classes_blocks.counts(logits, target, weight, self.step, ROWS).tolist(), None

    def gradient(
        self, logits: Tensor, target: Tensor, weight: Tensor | None, kept: Any, of_counts: FourNumbers
    ) -> Tensor:
        """Return the gradient of the logits from the gradients of the counts."""
        if kept is not None:
            tp, fp, fn, tn = of_counts
            pairs = zip(tp, fn, strict=True), zip(fp, tn, strict=True)  # type: ignore[arg-type]
            of_positive, of_negative = ([a - b for a, b in pair] for pair in pairs)
            return torch.from_numpy(classes_small.gradient(kept, of_positive, of_negative))
        grad = torch.tensor(of_counts, dtype=logits.dtype, device="cpu")
        return classes_blocks.gradient(logits, target, weight, grad, self.step, ROWS)


class OrdinaryBatch(NamedTuple):
    """An ordinary batch with checked values: the target in the logits' type, and whether results are checked too."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    kind: OrdinaryColumns | OrdinaryClasses | BinaryOnGPU
    is_checked: bool

    def counts(self) -> Counts:
        """Return soft counts with their gradient."""
        stacked = self.kind.soft_counts(self.logits, self.target, self.weight)
        if self.is_checked:
            check_finite(stacked.detach(), self.logits)
        return Counts(*stacked, exclusive=self.kind.exclusive)

    def hard_counts(self) -> Tensor:
        """Return the exact counts ``(4, c)`` of the decisions ``sigmoid(logits) >= threshold``, or argmax."""
        if isinstance(self.kind, OrdinaryClasses):
            if self.weight is None and classes_small.handles(self.logits, self.kind.step.kind):
                cells = classes_small.hard_counts(self.logits, self.target)
                return torch.tensor(cells, dtype=torch.float64, device="cpu")
            return Classes(self.logits.detach(), self.target, self.weight, ROWS).hard(None)
        classes, threshold = self.kind.classes, self.kind.threshold
        if isinstance(self.kind, BinaryOnGPU):
            decisions = is_positive(self.logits, threshold)
            return binary_triton.hard_counts(decisions, self.target, self.weight).view(4, 1)
        x, y, w = binary_cpu.as_columns(self.logits, self.target, self.weight, classes)
        if binary_small.handles(x, threshold):
            cells = binary_small.hard_counts(is_positive(x, threshold), y, w)
            return torch.tensor(cells, dtype=torch.float64, device="cpu").view(4, classes)
        exact = exact_dtype(x.device)
        weight = None if w is None else w.to(exact)
        if classes > 1:
            x, y, weight = x.T, y.T, None if weight is None else weight.T
        return hard_counts(x, y.to(exact), weight, threshold).view(4, classes)


def read_ordinary(
    logits: Tensor,
    target: Tensor,
    *,
    task: Task | None,
    step: Step | None,
    threshold: Thresholds,
    weight: Tensor | None,
    validate: bool | None,
    judge: TargetJudge,
    matrix: bool = False,
) -> OrdinaryBatch | None:
    """Check a batch, or return None if it is not ordinary. The arguments are those of ``count_soft``."""
    if not (_is_plain(logits, target, weight) and (threshold is None or type(threshold) is float)):
        return None
    reading, classes = _read_shapes(logits.shape, target.shape, target.dtype, task)
    if reading == "multiclass":
        plain = matrix or threshold is not None or weight is not None
        return None if plain else _read_classes(logits, target, step, validate)
    closed = closed_form(Columns.default_step if step is None else step)
    if closed is None or classes == 0:
        return None
    if classes > 1 and task is None and not judge.settled and inspects_targets(logits, validate):
        judge.look(target)
    on_gpu = _is_on_gpu(logits)
    if on_gpu and (classes > 1 or validate or not binary_triton.handles(logits)):
        return None
    is_checked = not on_gpu and (validate is None or validate)
    if is_checked:
        check_labels(target, None)
        if weight is not None:
            check_weight(weight)
    if threshold is None:
        threshold = 0.5
    else:
        check_threshold(threshold)
    if on_gpu:
        return OrdinaryBatch(logits, target, weight, BinaryOnGPU(closed.kind, closed.number, threshold), False)
    if target.dtype != logits.dtype:
        target = target.to(logits.dtype)
    kind = OrdinaryColumns(classes, closed.kind, closed.number, threshold)
    return OrdinaryBatch(logits, target, weight, kind, is_checked)


def check_sums(sums: FourNumbers, logits: Tensor) -> None:
    """Raise an error if counts are not finite."""
    total = sum(map(sum, sums)) if isinstance(sums[0], list) else sum(sums)
    if not math.isfinite(total):
        check_finite(torch.tensor(total), logits)


def _is_plain(logits: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Return whether the tensors are plain ones, with gradients of the logits only, and torch computes them eagerly."""
    if torch.compiler.is_compiling() or type(logits) not in _PLAIN_TYPES or type(target) is not Tensor:
        return False
    device = logits.device
    return (
        (logits.dtype in _DTYPES if device.type == "cpu" else device.type == "cuda")
        and device == target.device
        and logits.is_contiguous()
        and target.is_contiguous()
        and not (target.requires_grad or target.is_complex() or is_transformed())
        and logits.numel() > 0
        and (weight is None or _is_plain_weight(weight, logits))
    )


def _is_on_gpu(logits: Tensor) -> bool:
    return logits.device.type == "cuda"


def _is_plain_weight(weight: Tensor, logits: Tensor) -> bool:
    return (
        type(weight) is Tensor
        and weight.shape == logits.shape
        and weight.dtype == logits.dtype
        and weight.device == logits.device
        and weight.is_contiguous()
        and not weight.requires_grad
    )


def _read_classes(logits: Tensor, target: Tensor, step: Step | None, validate: bool | None) -> OrdinaryBatch | None:
    """Check a batch of exclusive classes, or return None if it is not ordinary."""
    step = Classes.default_step if step is None else step
    closed = closed_form(step)
    has_class_numbers = target.dim() == 1 and not target.is_floating_point()  # not one-hot labels or shares
    if closed is None or logits.device.type != "cpu" or logits.dim() != 2 or not has_class_numbers:
        return None
    target = target.long()
    is_checked = validate is None or validate
    if is_checked:
        check_labels(target, logits.shape[1])
    threshold = 0.5 if closed.kind == "identity" else None  # as in ``class_counts``
    kind = OrdinaryClasses(logits.shape[1], StepAt(closed.kind, closed.number, threshold))
    return OrdinaryBatch(logits, target, None, kind, is_checked)


@lru_cache(maxsize=256)
def _read_shapes(
    shape: torch.Size, target_shape: torch.Size, target_dtype: torch.dtype, task: Task | None
) -> tuple[Task, int]:
    """Return the task, and the number of independent columns of a batch of these shapes; 0 if it has other axes."""
    logits = torch.empty(shape, device="meta")
    reading = read_task(logits, torch.empty(target_shape, dtype=target_dtype, device="meta"), task)
    columns = 1 if reading == "binary" else shape[1] if len(shape) == 2 else 0
    return reading, columns
