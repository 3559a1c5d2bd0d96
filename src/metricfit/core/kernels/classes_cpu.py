"""Soft counts of exclusive classes on the CPU, in a few passes over a block of logits.

All arrays of a block are added, multiplied and compared as a whole, which uses the vector units of the CPU: masks are
floats of 0 and 1, made by comparisons. A block has three arrays, which all blocks share, and its gradient is the
fourth, with one or two more for transposed rows: new memory for each operation would take most of the time. Sorting
takes ten times as long, and gathering and scattering along a class axis that is not the last one too.
``classes_linear_cpu`` has Linear at the dynamic threshold.

Counts are sums over the other classes wherever a difference would cancel: with d = w h/s, a false negative is the sum
of d over the classes that are not the true one. The rest of the formulas is that of ``classes_blocks``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.kernels import classes_linear_cpu
from metricfit.core.kernels.class_layout import Layout, StepAt, in_blocks, is_lean
from metricfit.core.kernels.classes_linear_cpu import find_two_largest
from metricfit.core.step_formulas import SLOPE, THRESHOLD_SLOPE, VALUE, Threshold, both_ends

#: Up to this number of classes, rows are transposed: sums and maxima over a short last axis take most of the time.
FEW = 15
#: The layout of transposed rows.
TRANSPOSED = Layout(-2, (-1,))
#: From this number of classes on, the true class of a sample is looked up instead of compared with all classes.
MANY = 64


def counts(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    step: StepAt,
    layout: Layout,
    scratch: Tensor,
    p: Tensor | None = None,
) -> Tensor:
    """Return the counts ``(4, ..., c)``; ``scratch`` has a row per array.

    The probabilities are written over ``p`` and kept there, which only Identity does.
    """
    if _has_short_rows(x, layout):
        x, layout = x.T.contiguous(), TRANSPOSED
    axis = layout.class_axis
    arrays = _views(scratch, x)
    p = torch.softmax(x, axis, out=arrays.pop(0) if p is None else p)
    weight = None if w is None else w.unsqueeze(axis)
    if step.kind == "identity":
        decided = p if weight is None else torch.mul(p, weight, out=arrays.pop(0))
        free, spare = arrays
    else:
        free, (mass, spare) = p, arrays
        if is_lean(step):
            decided = classes_linear_cpu.write_masses(p, step.number, axis, mass, spare)
        else:
            t: Threshold = find_two_largest(p, axis, spare).threshold if step.threshold is None else step.threshold
            decided = VALUE[step.kind](p, 1 - p, *both_ends(t, p.dtype), step.number)
        total = decided.sum(axis, keepdim=True)
        decided.mul_(total.reciprocal_() if weight is None else weight / total)
    over = layout.sample_axes
    if _has_rare_classes(x, axis):
        tp, fp, fn, positives = _sum_rows(decided, y, w)
    else:
        true = _find_true(y, free, axis)
        hit = torch.mul(decided, true, out=spare)
        tp = hit.sum(over)
        others = torch.sub(decided, hit, out=hit)
        fp = others.sum(over)
        fn = torch.mul(true, others.sum(axis, keepdim=True), out=others).sum(over)
        positives = (true if weight is None else true.mul_(weight)).sum(over)
    tn = (positives.sum(-1, keepdim=True) - positives - fp).clamp_(min=0)
    return torch.stack([tp, fp, fn, tn])


def _has_short_rows(x: Tensor, layout: Layout) -> bool:
    return layout.class_axis == -1 and x.dim() == 2 and x.shape[1] <= FEW


def _has_rare_classes(x: Tensor, axis: int) -> bool:
    """Return whether it is faster to visit the true class of each sample than to compare all classes with it."""
    return axis == -1 and x.dim() == 2 and x.shape[-1] >= MANY


def _sum_rows(decided: Tensor, y: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return tp, fp, fn and the positives of each class; the decisions for the true classes are overwritten."""
    label = y.unsqueeze(-1)
    hit = decided.gather(-1, label).squeeze(-1)
    others = decided.scatter_(-1, label, 0.0)
    present = torch.ones_like(hit) if w is None else w
    tp, fn, positives = decided.new_zeros(3, decided.shape[-1]).unbind()
    for total, amount in ((tp, hit), (fn, others.sum(-1)), (positives, present)):
        total.scatter_add_(0, y, amount)
    return tp, others.sum(0), fn, positives


def write_gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    result: Tensor,
    scratch: Tensor,
    p: Tensor | None = None,
) -> None:
    """Write the gradient of the logits into ``result``. ``grad`` has axes of length 1 for the samples."""
    if _has_short_rows(x, layout):
        columns = x.T.contiguous()
        of_columns = torch.empty_like(columns)
        write_gradient(columns, y, w, grad.transpose(-1, -2), step, TRANSPOSED, of_columns, scratch)
        result.copy_(of_columns.T)
        return
    axis = layout.class_axis
    arrays = _views(scratch, x)
    p = torch.softmax(x, axis, out=arrays.pop(0)) if p is None else p
    of_decided = result if result.is_contiguous() else torch.empty_like(p)
    if_other = grad[1] - grad[3]
    if_true = grad[0] - grad[2] - if_other
    if _has_rare_classes(x, axis):
        label = y.unsqueeze(-1)
        of_decided.copy_(if_other.expand_as(x)).scatter_add_(-1, label, if_true.expand_as(x).gather(-1, label))
    else:
        _find_true(y, of_decided, axis).mul_(if_true).add_(if_other)
    weight = None if w is None else w.unsqueeze(axis)
    if step.kind == "identity":  # all masses have the slope 1 and the sum 1
        of_p = of_decided if weight is None else of_decided.mul_(weight)
        torch.ops.aten._softmax_backward_data.out(of_p, p, axis, p.dtype, grad_input=of_p)  # contiguous ones only
        if of_p is not result:
            result.copy_(of_p)
    elif is_lean(step):
        classes_linear_cpu.write_gradient(p, of_decided, weight, step.number, axis, result, *arrays)
    else:
        spare = arrays[-1]
        largest = find_two_largest(p, axis, spare) if step.threshold is None else None
        t: Threshold = 0.5 if step.threshold is None else step.threshold
        arguments = p, 1 - p, *both_ends(largest.threshold if largest else t, p.dtype), step.number
        mass = VALUE[step.kind](*arguments)
        of_mass = classes_linear_cpu.to_masses(of_decided, mass, weight, axis, spare)
        of_p = torch.mul(of_mass, SLOPE[step.kind](*arguments), out=mass)
        if largest is not None:
            of_threshold = of_mass.mul_(THRESHOLD_SLOPE[step.kind](*arguments)).sum(axis, keepdim=True)
            of_p.addcmul_(largest.mark(p, axis, spare), of_threshold, value=0.5)
        torch.mul(of_p.sub_(torch.mul(p, of_p, out=spare).sum(axis, keepdim=True)), p, out=result)


def make_scratch(logits: Tensor, layout: Layout, size: int, arrays: int) -> Tensor:
    """Return memory for the arrays of a block of this size."""
    at_least = logits.shape[layout.class_axis]
    return logits.new_empty(arrays, max(size, at_least) if in_blocks(logits, layout, size) else logits.numel())


def _views(scratch: Tensor, x: Tensor) -> list[Tensor]:
    return [row[: x.numel()].view(x.shape) for row in scratch.unbind()]


def _find_true(y: Tensor, out: Tensor, axis: int) -> Tensor:
    """Write 1 for the true classes and 0 for the others."""
    numbers = torch.arange(out.shape[axis], dtype=out.dtype)
    return torch.eq(y.to(out.dtype).unsqueeze(axis), numbers if axis == -1 else numbers.unsqueeze(-1), out=out)
