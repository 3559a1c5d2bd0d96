"""Evaluation of a formula over the counts of a batch, with its gradient and without a graph of small tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.formula_recording import CannotRecordError, FormulaKey, record
from metricfit.core.formula_source import as_function
from metricfit.core.kernels.formula_triton import SMALL_BATCH, FormulaOfBinaryBatch
from metricfit.core.numerics import counting_dtype, has_storage
from metricfit.core.ordinary_batch import BinaryOnGPU, FourNumbers, OrdinaryBatch, check_sums

#: More classes are faster with tensors.
MOST_CLASSES = 256

#: A function of counts, and of further tensors.
Formula = Callable[..., Tensor]
#: The recorded function of counts and further numbers, which returns the value and derivatives, or its Triton program.
Recorded = Any


class CountsFormula:
    """Evaluates formulas over the counts of a batch by their recordings (``core.formula_recording``).

    A formula is recorded at its first call for each number of classes and each type. A derivative that is itself
    differentiated is computed with tensors.
    """

    def __init__(self) -> None:
        self._recorded: dict[Hashable, tuple[FormulaKey, Recorded | None]] = {}

    def __reduce__(self) -> tuple[type[CountsFormula], tuple[()]]:
        """Copies record their formulas again."""
        return CountsFormula, ()

    def __call__(
        self, formula: Formula, batch: OrdinaryBatch, key: FormulaKey, *further: Tensor
    ) -> tuple[Tensor, FourNumbers | Tensor] | None:
        """Evaluate a formula of the counts of a batch.

        Args:
            formula: A function of Counts, and of further tensors, that returns one number. It must compute the same
                whenever it is called.
            batch: The batch.
            key: What identifies the formula.
            *further: Further arguments, with one number or one per class. The value has no gradient with respect to
                them.

        Returns:
            The value with its gradient, and the counts; None if the formula has to be evaluated with tensors.
        """
        if batch.kind.classes > MOST_CLASSES:
            return None
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in further):
            return None
        logits = batch.logits
        places = logits.device, *[tensor.device for tensor in further]
        case = id(key[0]), key[1], type(batch.kind), batch.kind.classes, logits.dtype, places
        if case not in self._recorded:
            self._recorded[case] = key, _record(formula, batch, further)
        if (recorded := self._recorded[case][1]) is None:
            return None
        counts: list[Any] = []
        call = _Call(batch.kind, batch.is_checked, recorded, formula, further, counts)
        try:
            function = _choose_function(batch)
            value: Tensor = function.apply(batch.logits, batch.target, batch.weight, call)  # type: ignore
        except ArithmeticError:  # a division by 0, which tensors perform without an error
            return None
        return value, counts[0]


class _Call:
    """What one evaluation needs besides the batch."""

    __slots__ = ("counts", "formula", "further", "is_checked", "kind", "recorded")

    def __init__(
        self,
        kind: Any,
        is_checked: bool,
        recorded: Recorded,
        formula: Formula,
        further: tuple[Tensor, ...],
        counts: list[Any],
    ) -> None:
        self.kind, self.is_checked, self.recorded = kind, is_checked, recorded
        self.formula, self.further, self.counts = formula, further, counts

    def differentiable_gradient(
        self, logits: Tensor, target: Tensor, weight: Tensor | None, grad: Tensor, read: Sequence[Any]
    ) -> Tensor:
        """Compute the gradient of the logits with tensors, for a backward pass that is itself differentiated.

        Args:
            logits: The logits.
            target: The target.
            weight: The weights, or None.
            grad: The gradient of the value.
            read: What the further arguments held in the forward pass; by now they may hold something else.
        """
        stacked = self.kind.soft_counts(logits, target, weight)
        further = [
            torch.as_tensor(numbers, dtype=given.dtype, device=logits.device).view(given.shape)
            for given, numbers in zip(self.further, read, strict=True)
        ]
        value = self.formula(Counts(*stacked, exclusive=self.kind.exclusive), *further)
        return torch.autograd.grad(value, logits, grad, create_graph=True)[0]


class _ValueOfBatch(torch.autograd.Function):
    """From logits to the value of a formula, and back, each in one step.

    A ``forward`` with ctx saves torch the inspection of its signature in every call, which transforms would need.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, call: _Call) -> Tensor:
        sums, kept = call.kind.sums(logits, target, weight)
        if call.is_checked:
            check_sums(sums, logits)
        read = [tensor.item() if tensor.numel() == 1 else tensor.tolist() for tensor in call.further]
        value, *slopes = call.recorded(*sums, *read)
        call.counts.append(sums)
        ctx.save_for_backward(logits, target, weight)
        ctx.call, ctx.read, ctx.slopes, ctx.kept = call, read, slopes, kept
        return torch.scalar_tensor(value, dtype=logits.dtype, device="cpu")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight = ctx.saved_tensors
        call = ctx.call
        if torch.is_grad_enabled():
            of_logits = call.differentiable_gradient(logits, target, weight, grad, ctx.read)
        elif has_storage(grad):
            of_logits = call.kind.gradient(logits, target, weight, ctx.kept, _scaled(ctx.slopes, float(grad)))
        else:  # vmapped over several gradients
            of_logits = call.kind.gradient(logits, target, weight, ctx.kept, ctx.slopes) * grad
        return of_logits, None, None, None


class _ValueOnGPU(torch.autograd.Function):
    """The same on a GPU, where no number is read back: one launch for the counts, one for the formula, one back."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, call: _Call) -> Tensor:
        value, output = call.recorded.evaluate_parts(call.kind.partial_counts(logits, target, weight), call.further)
        counts, slopes, read = output[:4], output[4:8], output[8:]
        call.counts.append(counts)
        ctx.save_for_backward(logits, target, weight, slopes, read)
        ctx.call = call
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, slopes, read = ctx.saved_tensors
        if torch.is_grad_enabled():
            of_logits = ctx.call.differentiable_gradient(logits, target, weight, grad, read)
        elif has_storage(grad):
            of_logits = ctx.call.kind.gradient(logits, target, weight, slopes, scale=grad)
        else:
            of_logits = ctx.call.kind.gradient(logits, target, weight, slopes) * grad
        return of_logits, None, None, None


class _ValueOfSmallBatchOnGPU(torch.autograd.Function):
    """The same for a small batch, whose gradient for a factor of 1 is computed with the value, in one launch."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, call: _Call) -> Tensor:
        value, output, gradient = call.recorded.evaluate_batch(
            logits, target, weight, call.kind, ctx.needs_input_grad[0], call.further
        )
        call.counts.append(output[:4] if call.further else output)
        ctx.save_for_backward(logits, target, weight, gradient, output)
        ctx.call = call
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, gradient, output = ctx.saved_tensors
        if torch.is_grad_enabled():
            return ctx.call.differentiable_gradient(logits, target, weight, grad, output[4:]), None, None, None
        return (gradient * grad).to(logits.dtype), None, None, None


def _choose_function(batch: OrdinaryBatch) -> type[torch.autograd.Function]:
    if not isinstance(batch.kind, BinaryOnGPU):
        return _ValueOfBatch
    return _ValueOfSmallBatchOnGPU if batch.logits.numel() <= SMALL_BATCH else _ValueOnGPU


def _scaled(slopes: FourNumbers, factor: float) -> FourNumbers:
    if factor == 1.0:
        return slopes
    if isinstance(slopes[0], float):
        return [slope * factor for slope in slopes]
    return [[slope * factor for slope in cell] for cell in slopes]


def _record(formula: Formula, batch: OrdinaryBatch, further: tuple[Tensor, ...]) -> Recorded | None:
    on_cpu, classes, exclusive = not isinstance(batch.kind, BinaryOnGPU), batch.kind.classes, batch.kind.exclusive
    on_device = [_is_on_device(tensor) for tensor in further]
    if any(there and tensor.device != batch.logits.device for tensor, there in zip(further, on_device, strict=True)):
        return None
    dtype = counting_dtype(batch.logits.dtype)
    examples = torch.linspace(1, 2, 4 * classes, dtype=dtype, device="cpu").view(4, -1)
    others = [torch.ones_like(tensor, device="cpu") for tensor in further]

    def of_cells(*arguments: Tensor) -> Tensor:
        return formula(Counts(*arguments[:4], exclusive=exclusive), *arguments[4:])

    try:
        recording = record(of_cells, [*examples, *others])
        return as_function(recording) if on_cpu else FormulaOfBinaryBatch(recording, on_device)
    except CannotRecordError:
        return None


def _is_on_device(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"
