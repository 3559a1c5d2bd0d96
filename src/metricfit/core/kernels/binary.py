"""Soft confusion counts of binary logits, with a closed-form backward.

With h = step(p, t), p = sigmoid(x), label y and weight w, the four counts are

    tp = sum w y h      fp = sum w (1-y) h      fn = sum w y (1-h)      tn = sum w (1-y) (1-h)

and for upstream gradients g the gradient with respect to a logit is

    w [ y (g_tp - g_fn) + (1-y) (g_fp - g_tn) ] step'(p) p (1-p).

The four counts share one slope, which is computed from both tails; autograd would differentiate each count through its
own saturated half. Only the input is saved for the backward pass, as in BCEWithLogitsLoss.

All functions take tensors ``(..., n)`` and sum over the last axis. Counts are stacked, ``(4, ...)``, in the order tp,
fp, fn, tn.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from metricfit.core import step_formulas
from metricfit.core.arrays import sum_masses
from metricfit.core.kernels import binary_cpu, triton
from metricfit.core.numerics import is_positive
from metricfit.core.step_formulas import SLOPE, Threshold, both_ends
from metricfit.core.steps import Annealed, Step, StraightThrough, closed_form, is_unchanged
from metricfit.core.tensor_numerics import (
    counting_dtype,
    differentiates_forward,
    has_storage,
    leading,
    tails,
)


def soft_counts(logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, threshold: Threshold) -> Tensor:
    """Return soft counts ``(4, ...)`` of logits ``(..., n)``; target and weight have the logits' shape.

    The closed forms are used only for the exact classes of ``metricfit.steps``. A subclass, or an instance with hooks,
    may compute something else, so it is called.
    """
    if is_unchanged(step, Annealed):  # counts are linear in the step
        start = soft_counts(logits, target, weight, step.start, threshold)
        end = soft_counts(logits, target, weight, step.end, threshold)
        return torch.lerp(start, end, step.a.to(start.dtype))
    if is_unchanged(step, StraightThrough):
        soft = soft_counts(logits, target, weight, step.step, threshold)
        return hard_counts(logits, target, weight, threshold).to(soft.dtype) + (soft - soft.detach())
    if isinstance(threshold, Tensor) and _is_number(threshold):
        threshold = float(threshold)
    closed = closed_form(step)
    # The closed forms differentiate with respect to the logits only.
    other_gradients = target.requires_grad or (weight is not None and weight.requires_grad)
    plain = other_gradients or differentiates_forward()
    learned = isinstance(threshold, Tensor) and (
        threshold.dim() != 2 or threshold.requires_grad or torch.compiler.is_compiling()
    )
    if closed is None or learned or plain:
        logits, target = _floating(logits, target)
        return sum_masses(*masses(logits, step, threshold), target, weight)
    if torch.compiler.is_compiling():
        _tell_compiler()
    return closed_counts(logits, target, weight, closed.kind, closed.number, threshold)


def closed_counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: Threshold
) -> Tensor:
    """Return soft counts by the closed form of a step; a tensor ``(c, 1)`` has one threshold per label.

    A compiler takes this call as one operation and fuses what it contains. Under ``compile(vmap)`` and the like, a
    Function that it saw directly would silently lose its backward (https://github.com/pytorch/pytorch/issues/193279).
    """
    counts: Tensor = _SoftCounts.apply(logits, target, weight, kind, number, threshold)  # type: ignore[no-untyped-call]
    return counts


def _tell_compiler() -> None:
    """Have the compiler take ``closed_counts`` as one operation; it runs this function while it traces."""
    torch.compiler.allow_in_graph(closed_counts)  # type: ignore[no-untyped-call]


# What torch.compiler.assume_constant_result does; calling it would import the compiler together with this package.
_tell_compiler._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _is_number(threshold: Tensor) -> bool:
    """Return whether a tensor can be used as a number: a constant that can be read without waiting for a device."""
    if threshold.dim() or threshold.requires_grad or threshold.device.type != "cpu":
        return False
    return not torch.compiler.is_compiling() and has_storage(threshold)


def masses(logits: Tensor, step: Step, threshold: Threshold) -> tuple[Tensor, Tensor]:
    """Return the soft decision of each logit and its complement, in plain differentiable operations."""
    if is_unchanged(step, Annealed):
        start, end = (masses(logits, part, threshold) for part in (step.start, step.end))
        progress = step.a.to(logits.dtype)
        return torch.lerp(start[0], end[0], progress), torch.lerp(start[1], end[1], progress)
    p, q = tails(logits)
    if closed := closed_form(step):
        return _closed_masses(p, q, threshold, closed.kind, closed.number)
    mass = step(p, threshold.to(p.dtype) if isinstance(threshold, Tensor) and threshold.dim() else threshold)
    return mass, 1 - mass


def _closed_masses(p: Tensor, q: Tensor, threshold: Threshold, kind: str, number: float) -> tuple[Tensor, Tensor]:
    return step_formulas.masses(kind, p, q, *both_ends(threshold, p.dtype), number)


def hard_counts(logits: Tensor, target: Tensor, weight: Tensor | None, threshold: Threshold) -> Tensor:
    """Return the counts ``(4, ...)`` of the decisions ``sigmoid(logits) >= threshold``; they have no gradient."""
    target = target.to(counting_dtype(target.dtype if target.is_floating_point() else logits.dtype))
    positive = is_positive(logits, threshold).to(target.dtype)
    return sum_masses(positive, 1 - positive, target, weight)


def _floating(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and target in the type that plain operations count in."""
    dtype = counting_dtype(logits.dtype)
    return logits.to(dtype), target.to(dtype)


def _slope_mass(logits: Tensor, weight: Tensor | None, kind: str, number: float, threshold: Threshold) -> Tensor:
    """Return ``w step'(p) p (1-p)``, the gradient of the weighted step with respect to the logits."""
    p, q = tails(logits)
    slope = SLOPE[kind](p, q, *both_ends(threshold, p.dtype), number) * p * q
    return slope if weight is None else slope * weight


def takes_triton(logits: Tensor) -> bool:
    """Return whether Triton's programs are for these logits: rows on a CUDA device, in float32 or half precision."""
    return (
        triton.runs_on(logits)
        and logits.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and logits.numel() > 0
        and logits.numel() // logits.shape[-1] < 2**16  # rows are the second axis of the grid
    )


def programs() -> Any:
    """Return the module of Triton's programs, which is imported only where there is Triton."""
    from metricfit.core.kernels.triton import binary as programs

    return programs


def _rows_on_cpu(
    logits: Tensor, target: Tensor, weight: Tensor | None, threshold: Threshold
) -> list[tuple[Tensor, Tensor, Tensor | None, float]] | None:
    """Return each row with its threshold if blocks of the CPU are for them; a compiler and vmap hide the memory."""
    if not (has_storage(logits) and binary_cpu.handles(logits)):
        return None
    shape = math.prod(logits.shape[:-1]), logits.shape[-1]
    x, y = logits.reshape(shape), target.reshape(shape).to(logits.dtype)
    weights = [None] * len(x) if weight is None else weight.reshape(shape)
    if isinstance(threshold, Tensor):
        thresholds = threshold.flatten().tolist() * (len(x) // len(threshold))
    else:
        thresholds = [threshold] * len(x)
    return list(zip(x, y, weights, thresholds, strict=True))


class _SoftCounts(torch.autograd.Function):
    """The autograd function of the closed forms: blocks on the CPU, Triton on a GPU, otherwise plain operations."""

    @staticmethod
    def forward(
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        kind: str,
        number: float,
        threshold: Threshold,
    ) -> Tensor:
        if not isinstance(threshold, Tensor) and takes_triton(logits) and has_storage(logits):
            return programs().counts(logits, target, weight, kind, number, threshold)
        if rows := _rows_on_cpu(logits, target, weight, threshold):
            counts = [binary_cpu.counts(x, y, w, kind, number, t) for x, y, w, t in rows]
            return (counts[0] if len(rows) == 1 else torch.stack(counts, 1)).reshape(4, *logits.shape[:-1])
        logits, target = _floating(logits, target)
        return sum_masses(*_closed_masses(*tails(logits), threshold, kind, number), target, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, target, weight, ctx.kind, ctx.number, threshold = inputs
        per_label = isinstance(threshold, Tensor)
        ctx.threshold = None if per_label else threshold
        ctx.save_for_backward(logits, target, weight, threshold if per_label else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, per_label = ctx.saved_tensors
        threshold = ctx.threshold if per_label is None else per_label
        # With gradients enabled this backward is itself differentiated, and for several gradients at once it is
        # vmapped. Both need plain operations.
        plain = torch.is_grad_enabled() or not has_storage(grad)
        if not plain and per_label is None and takes_triton(logits):
            of_logits = programs().gradient(logits, target, weight, grad, ctx.kind, ctx.number, threshold)
        elif rows := None if plain else _rows_on_cpu(logits, target, weight, threshold):
            ends = zip((grad[0] - grad[2]).reshape(-1), (grad[1] - grad[3]).reshape(-1), strict=True)
            parts = [
                binary_cpu.gradient(x, y, w, a, b, ctx.kind, ctx.number, t)
                for (x, y, w, t), (a, b) in zip(rows, ends, strict=True)
            ]
            of_logits = (parts[0] if len(rows) == 1 else torch.stack(parts)).reshape(logits.shape)
        else:
            x, y = _floating(logits, target)
            of_positive, of_negative = (grad[:2] - grad[2:]).unsqueeze(-1)
            slope = _slope_mass(x, weight, ctx.kind, ctx.number, threshold)
            of_logits = ((of_positive * y + of_negative * (1 - y)) * slope).to(logits.dtype)
        return of_logits, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """Make the vmapped axis a leading one, because the kernels sum over the last axis of any number of axes."""
        tensors = [leading(tensor, dim, info.batch_size) for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        kind, number, threshold = inputs[3:]
        if in_dims[5] is not None:
            threshold = leading(threshold, in_dims[5], info.batch_size)
        return _SoftCounts.apply(*tensors, kind, number, threshold), 1  # type: ignore[no-untyped-call]
