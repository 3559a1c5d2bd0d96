"""Batches that are counted in few operations, and formulas of their counts by dual numbers.

On a small batch each operation costs more than its arithmetic. A batch is ordinary if torch computes it eagerly,
without groups, images or ignored labels, with a closed-form step, and with one threshold that is a number, or dynamic
for exclusive classes: on the CPU in float32 or float64, and on a GPU with Triton if it is not multilabel. Shapes are
settled once for all batches of the same shapes, its values are checked as in ``core.tasks.canonical``, and the kernel
takes it in the layout in which it was passed. ``core.counting.count_soft`` counts all other batches, and tests compare
the two.

``BatchCounts`` become tensors only when somebody asks for them. The value of a formula and its gradient are computed
from the logits in one step: the kernel gives four numbers, the formula takes them as dual numbers, and the kernel turns
the four derivatives into the gradient of the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge, inspects_targets
from metricfit.core.counts import Counts
from metricfit.core.kernels import binary, binary_cpu, classes, classes_cpu
from metricfit.core.kernels.soft_classes import StepAt
from metricfit.core.numerics import NOT_FOR_DUALS, Dual, Slopes, duals, times
from metricfit.core.settings import CountSettings
from metricfit.core.steps import CLASSES_STEP, COLUMNS_STEP, Step, closed_form
from metricfit.core.tasks import read_task
from metricfit.core.tensor_numerics import has_storage, is_transformed
from metricfit.core.thresholds import check_threshold
from metricfit.core.types import Layout, Task
from metricfit.core.validation import check_finite, check_labels, check_weight

_PLAIN_TYPES = frozenset((Tensor, nn.Parameter))
_DTYPES = frozenset((torch.float32, torch.float64))

#: The layout of logits ``(n, c)`` of exclusive classes.
ROWS = Layout(-1, (-2,))

CELLS = ("tp", "fp", "fn", "tn")

#: Four numbers, or an array ``(4, c)``; on a GPU a tensor, ``(4,)`` of one class.
FourNumbers = Any


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
        """Return soft counts ``(4, c)`` with their gradient."""
        shape = (1, -1) if self.classes == 1 else (-1, self.classes)
        rows = (None if each is None else each.reshape(shape) for each in (logits, target, weight))
        x, y, w = rows if self.classes == 1 else (None if row is None else row.T.contiguous() for row in rows)
        return binary.closed_counts(x, y, w, *self[1:])  # type: ignore[arg-type]

    def sums(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[FourNumbers, Any]:
        """Return the same counts as numbers, and what ``gradient`` needs besides the batch."""
        x, y, w = binary_cpu.as_columns(logits, target, weight, self.classes)
        if _is_on_gpu(logits):
            return binary.programs().counts(x, y, w, *self[1:]), None
        if binary_cpu.handles_few(x, self.threshold):
            return binary_cpu.few_counts(x, y, w, *self[1:])
        sums = binary_cpu.sums(x, y, w, *self[1:])
        return torch.stack(sums).numpy() if self.classes > 1 else sums, None

    def gradient(self, logits: Tensor, target: Tensor, weight: Tensor | None, kept: Any, of_counts: Slopes) -> Tensor:
        """Return the gradient of the logits from the gradients of the counts."""
        if kept is not None:
            tp, fp, fn, tn = of_counts
            result = torch.from_numpy(binary_cpu.few_gradient(kept, tp - fn, fp - tn))
            return result if result.dim() == logits.dim() else result.view(logits.shape)
        x, y, w = binary_cpu.as_columns(logits, target, weight, self.classes)
        if _is_on_gpu(logits):
            return binary.programs().gradient(x, y, w, of_counts, *self[1:]).view(logits.shape)
        tp, fp, fn, tn = of_counts
        of_positive, of_negative = tp - fn, fp - tn
        if self.classes > 1:
            of_positive, of_negative = (torch.from_numpy(part).to(x.dtype) for part in (of_positive, of_negative))
        return binary_cpu.gradient(x, y, w, of_positive, of_negative, *self[1:]).view(logits.shape)

    def hard_counts(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Return the counts of hard decisions ``(4, c)``, without a gradient."""
        x, y, w = binary_cpu.as_columns(logits.detach(), target, weight, self.classes)
        if _is_on_gpu(logits):
            return Columns(x[None], y[None], None if w is None else w[None]).hard(self.threshold)
        return torch.from_numpy(binary_cpu.hard_counts(x, y, w, self.threshold))


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
        return classes.closed_class_counts(logits, target, weight, self.step, ROWS)

    def sums(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[FourNumbers, Any]:
        """Return the same counts as numbers, and what ``gradient`` needs besides the batch."""
        if _is_on_gpu(logits):
            kept = classes.memory_to_keep(logits, target, self.step, ROWS)
            return classes.counts(logits, target, weight, self.step, ROWS, kept), kept
        if weight is None and classes_cpu.handles_few(logits, self.step.kind):
            return classes_cpu.few_counts(logits, target, self.step.kind, self.step.number)
        return classes.counts(logits, target, weight, self.step, ROWS).double().numpy(), None

    def gradient(self, logits: Tensor, target: Tensor, weight: Tensor | None, kept: Any, of_counts: Slopes) -> Tensor:
        """Return the gradient of the logits from the gradients of the counts."""
        if isinstance(kept, classes_cpu.Kept):
            tp, fp, fn, tn = of_counts
            return torch.from_numpy(classes_cpu.few_gradient(kept, tp - fn, fp - tn))
        grad = of_counts if isinstance(of_counts, Tensor) else torch.from_numpy(of_counts).to(logits.dtype)
        return classes.gradient(logits, target, weight, grad, self.step, ROWS, kept)

    def hard_counts(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Return the counts of hard decisions ``(4, c)``, without a gradient."""
        if _is_on_gpu(logits):
            return Classes(logits, target, weight, ROWS).hard(None)
        x, y, w = logits.detach().numpy(), target.numpy(), None if weight is None else weight.numpy()
        return torch.from_numpy(Classes(x, y, w, ROWS).hard(None))


class OrdinaryBatch(NamedTuple):
    """An ordinary batch with checked values: the target in the logits' type, and whether results are checked too."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    kind: OrdinaryColumns | OrdinaryClasses
    is_checked: bool

    def counts(self) -> Counts:
        """Return soft counts with their gradient."""
        stacked = self.kind.soft_counts(self.logits, self.target, self.weight)
        if self.is_checked:
            check_finite(stacked.detach(), self.logits)
        return Counts(*stacked, exclusive=self.kind.exclusive)

    def hard_counts(self) -> Tensor:
        """Return the counts of hard decisions ``(4, c)``, without a gradient."""
        return self.kind.hard_counts(self.logits, self.target, self.weight)


def read_ordinary(
    logits: Tensor, target: Tensor, weight: Tensor | None, settings: CountSettings, judge: TargetJudge
) -> OrdinaryBatch | None:
    """Check a batch, or return None if it is not ordinary; ``judge`` is what a loss has seen of its targets so far."""
    task, step, threshold, ignore_index, per_image, groups, validate = settings
    if not (ignore_index is None and groups is None) or per_image:
        return None
    if not (_is_plain(logits, target, weight) and (threshold is None or type(threshold) is float)):
        return None
    reading, columns = _read_shapes(logits.shape, target.shape, target.dtype, task)
    if reading == "multiclass":
        plain = threshold is not None or weight is not None
        return None if plain else _read_classes(logits, target, step, validate)
    closed = closed_form(COLUMNS_STEP if step is None else step)
    if closed is None or columns == 0:
        return None
    if columns > 1 and task is None and not judge.settled and inspects_targets(logits, validate):
        judge.look(target)
    on_gpu = _is_on_gpu(logits)
    if on_gpu and (columns > 1 or validate or not binary.takes_triton(logits)):
        return None
    is_checked = not on_gpu and (validate is None or validate)
    labels = target
    if not on_gpu and target.dtype != logits.dtype:  # Triton's programs read any type
        target = target.to(logits.dtype)
    if is_checked:
        if not binary_cpu.are_few_bits(target):
            check_labels(labels, None)
        if weight is not None:
            check_weight(weight)
    if threshold is None:
        threshold = 0.5
    else:
        check_threshold(threshold)
    kind = OrdinaryColumns(columns, closed.kind, closed.number, threshold)
    return OrdinaryBatch(logits, target, weight, kind, is_checked)


def check_sums(sums: FourNumbers, logits: Tensor) -> None:
    """Raise an error if counts are not finite."""
    total = float(sums.sum()) if isinstance(sums, np.ndarray) else sum(sums)
    if not math.isfinite(total):
        check_finite(torch.tensor(total), logits)


def _is_plain(logits: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Return whether the tensors are plain ones, with gradients of the logits only, and torch computes them eagerly."""
    if torch.compiler.is_compiling() or type(logits) not in _PLAIN_TYPES or type(target) is not Tensor:
        return False
    return (
        (logits.dtype in _DTYPES and target.is_cpu if logits.is_cpu else logits.is_cuda)
        and (logits.is_cpu or logits.device == target.device)
        and logits.is_contiguous()
        and target.is_contiguous()
        and not (target.requires_grad or target.is_complex() or is_transformed())
        and logits.numel() > 0
        and (weight is None or _is_plain_weight(weight, logits))
    )


def _is_on_gpu(logits: Tensor) -> bool:
    return logits.is_cuda


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
    step = CLASSES_STEP if step is None else step
    closed = closed_form(step)
    has_class_numbers = target.dim() == 1 and not target.is_floating_point()  # not one-hot labels or shares
    if closed is None or closed.kind not in ("linear", "identity") or logits.dim() != 2 or not has_class_numbers:
        return None
    on_gpu = _is_on_gpu(logits)
    if on_gpu and (validate or not classes.takes_triton(logits, ROWS)):
        return None
    target = target.long()
    is_checked = not on_gpu and (validate is None or validate)
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


#: A function of counts of any kind of number.
Formula = Callable[[Counts], Any]
#: Larger derivatives by counts are left to tensors in float32, which would overflow: there denominators below 5e-31
#: count as 0.
STEEPEST = 1e30


class BatchCounts(Counts):
    """The counts of a batch, which are tensors with a gradient once one of them is read.

    Args:
        batch: The batch.

    Attributes:
        numbers: The counts as numbers, once ``evaluate`` has computed a formula of them.
    """

    batch: OrdinaryBatch
    numbers: FourNumbers | None
    _tensors: Counts | None

    def __init__(self, batch: OrdinaryBatch) -> None:
        vars(self).update(exclusive=batch.kind.exclusive, batch=batch, numbers=None, _tensors=None)  # it is frozen

    def read(self) -> Counts:
        """Return the counts as tensors."""
        if self._tensors is None:
            vars(self)["_tensors"] = self.batch.counts()
        return vars(self)["_tensors"]

    def __getattr__(self, name: str) -> Any:
        """Return tp, fp, fn or tn, which become tensors when they are first read."""
        if name not in CELLS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.read(), name)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.batch.kind.classes

    def __repr__(self) -> str:
        return repr(self.read())

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (*self.tensors, self.exclusive)

    def evaluate(self, formula: Formula) -> Tensor | None:
        """Evaluate a formula of the counts by dual numbers.

        Args:
            formula: A function of counts.

        Returns:
            The value with its gradient; None if the formula has to be evaluated with tensors, because it does not take
            dual numbers, does not give one number, or is too steep for the type of the logits.
        """
        value: Tensor | None = _apply(*self.batch[:3], self, formula)
        return value


def evaluate(formula: Formula, counts: Counts) -> Tensor:
    """Evaluate a formula of counts that gives one number, by dual numbers where that is faster.

    Args:
        formula: A function of counts. Dual numbers are tried first; a formula that calls functions of torch does not
            take them and is evaluated with tensors.
        counts: The counts.

    Returns:
        The value with its gradient.
    """
    value = counts.evaluate(formula) if isinstance(counts, BatchCounts) else None
    return formula(counts) if value is None else value


def value_and_slopes(formula: Formula, numbers: FourNumbers, exclusive: bool) -> Dual | None:
    """Return the value of a formula with its derivatives; None if it does not take dual numbers."""
    counts = object.__new__(Counts)
    vars(counts).update(zip(CELLS, duals(numbers), strict=True), exclusive=exclusive)  # the class is frozen
    try:
        if isinstance(numbers, np.ndarray):
            with np.errstate(all="ignore"):  # tensors divide by 0 without a word, too
                value = formula(counts)
        else:
            value = formula(counts)
    except NOT_FOR_DUALS:
        return None
    if type(value) is not Dual or not (isinstance(value.value, float) or _is_one_number(value.value)):
        return None
    if type(value.slopes) is tuple and not isinstance(numbers[0], float):
        value = Dual(value.value, times(value.slopes, 0.0 * numbers[0] + 1.0))
    return value


def _is_one_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0


class _ValueOfBatch(torch.autograd.Function):
    """From logits to the value of a formula, and back, each in one step.

    A ``forward`` with ctx saves torch the inspection of its signature in every call, which transforms would need.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, counts: BatchCounts, formula: Formula
    ) -> Tensor | None:
        kind = counts.batch.kind
        numbers, kept = kind.sums(logits, target, weight)
        vars(counts)["numbers"] = numbers  # the class is frozen
        if counts.batch.is_checked:
            check_sums(numbers, logits)
        result = value_and_slopes(formula, numbers, counts.exclusive)
        if result is None:
            return None
        ctx.save_for_backward(logits, target, weight)
        ctx.kind, ctx.formula, ctx.slopes, ctx.kept = kind, formula, result.slopes, kept
        if isinstance(result.value, Tensor):
            return result.value if result.value._base is None else result.value.clone()
        return torch.scalar_tensor(result.value, dtype=logits.dtype, device="cpu")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight = ctx.saved_tensors
        is_differentiated, in_one = torch.is_grad_enabled(), has_storage(grad)  # not if vmapped over several gradients
        slopes = ctx.slopes
        if in_one and not is_differentiated:
            slopes = times(slopes, grad if isinstance(slopes, Tensor) else float(grad))
        if is_differentiated or (logits.dtype == torch.float32 and _is_steep(slopes)):
            with torch.enable_grad():
                stacked = ctx.kind.soft_counts(logits, target, weight)
                value = ctx.formula(Counts(*stacked, exclusive=ctx.kind.exclusive))
            of_logits = torch.autograd.grad(value, logits, grad, create_graph=is_differentiated)[0]
        else:
            of_logits = ctx.kind.gradient(logits, target, weight, ctx.kept, slopes)
            of_logits = of_logits if in_one else of_logits * grad
        return of_logits, None, None, None, None


def _find_apply() -> Callable[..., Any]:
    """Return ``_ValueOfBatch.apply`` of torch's base class, which does not search for transforms, if it has one.

    An ordinary batch is under no transform.
    """
    apply: Callable[..., Any] = getattr(super(torch.autograd.Function, _ValueOfBatch), "apply", _ValueOfBatch.apply)
    return apply


_apply = _find_apply()


def _is_steep(slopes: Slopes) -> bool:
    """Return whether derivatives are too large for float32; those on a GPU, which was in float32 already, are not."""
    if isinstance(slopes, tuple):
        return not -STEEPEST < min(slopes) <= max(slopes) < STEEPEST
    return isinstance(slopes, np.ndarray) and not np.abs(slopes).max() < STEEPEST


def _unpickle(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, exclusive: bool) -> Counts:
    return Counts(tp, fp, fn, tn, exclusive=exclusive)
