"""Soft confusion counts of exclusive classes, with a closed-form backward through the dynamic threshold.

For one sample with softmax probabilities p, the threshold is t = (p_1 + p_2)/2, the mean of the two largest, or a
number; h_k = step(p_k, t), and the soft decision is h_k / s with s = sum_k h_k (multiclass soft sets, Eq. 5). With
the true class y and weight w,

    tp_y += w h_y/s     fn_y += w (1 - h_y/s)     fp_k += w h_k/s  and  tn_k += w (1 - h_k/s)  for k != y.

The gradient with respect to h_k is r_k = (G_k - sum_j G_j h_j/s)/s, where G_k is w (g_fp - g_tn)_k, or w (g_tp -
g_fn)_k for the true class. With respect to p_k it is r_k step'(p_k), plus half of sum_j r_j dstep(p_j)/dt for the two
largest; the backward pass of the softmax does the rest. Nothing of size samples x classes is kept: forward and backward
process the samples in blocks, so that intermediate results stay in the cache, and no confusion matrix is built.

The class axis of the logits is the last one, ``(..., n, c)``, or the last but one, ``(..., images, c, pixels)``. Counts
are stacked, ``(4, ..., c)``, or per image ``(4, ..., images, c)``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_linear
from metricfit.core.kernels.class_layout import Layout, blocks, in_blocks, keeps_images, two_classes
from metricfit.core.numerics import SMALLEST_DIVISOR, exact_dtype, has_storage, leading
from metricfit.core.step_formulas import SLOPE, THRESHOLD_SLOPE, VALUE, both_ends
from metricfit.core.steps import Identity, Step, StraightThrough, closed_form, is_unchanged

#: Fixed thresholds are moved to at least this distance from 0 and 1. The decisions of a sample are divided by their
#: sum, so nearer thresholds would change only the slopes, which would then overflow in float32.
NEAREST = 1e-6


def class_counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, threshold: float | Tensor | None, layout: Layout
) -> Tensor:
    """Return soft counts ``(4, ..., c)``; without a threshold the dynamic one is used.

    ``target`` holds class numbers, without the class axis, or class shares of the logits' shape and type.
    """
    threshold = _inside(threshold)
    if is_unchanged(step, Identity):
        threshold = 0.5  # Identity has no threshold; a number avoids the search for the dynamic one
    closed = closed_form(step)
    if closed is not None and threshold is not None and closed.kind not in ("linear", "identity"):
        closed = None  # with a fixed threshold a steep step, and then s, can be 0 for all classes of a sample
    other_gradients = isinstance(threshold, Tensor) or (weight is not None and weight.requires_grad)
    # Plain operations for a compiler, for the reasons given in ``soft_counts``.
    if closed is None or other_gradients or target.is_floating_point() or torch.compiler.is_compiling():
        return sum_decisions(decisions(logits, step, threshold, layout), target, weight, layout)
    counts, _ = _ClassCounts.apply(logits, target, weight, closed.kind, closed.number, threshold, layout)  # type: ignore
    return counts  # type: ignore[no-any-return]


def decisions(logits: Tensor, step: Step, threshold: float | Tensor | None, layout: Layout) -> Tensor:
    """Return the soft decisions of each sample, which sum to 1 over the classes, in plain operations."""
    axis, threshold = layout.class_axis, _inside(threshold)
    if is_unchanged(step, StraightThrough):
        soft = decisions(logits, step.step, threshold, layout)
        return hard_decisions(logits, layout, soft.dtype) + (soft - soft.detach())
    p = torch.softmax(logits, axis)
    t = p.gather(axis, classes_linear.top_two(p, axis)).mean(axis, keepdim=True) if threshold is None else threshold
    mass = step(p, t)
    total = mass.sum(axis, keepdim=True)
    empty = total < SMALLEST_DIVISOR[total.dtype]
    return torch.where(empty, p, mass / torch.where(empty, 1.0, total))


def _inside(threshold: float | Tensor | None) -> float | Tensor | None:
    """Move a fixed threshold to a distance of at least ``NEAREST`` from 0 and 1."""
    if isinstance(threshold, Tensor):
        return threshold.clamp(NEAREST, 1 - NEAREST)
    return None if threshold is None else min(max(threshold, NEAREST), 1 - NEAREST)


def hard_decisions(logits: Tensor, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Return 1 for the argmax, the first of equal ones, and 0 for the other classes; there is no gradient."""
    axis = layout.class_axis
    chosen = logits.detach().argmax(axis, keepdim=True)
    return torch.zeros_like(logits, dtype=dtype, requires_grad=False).scatter(axis, chosen, 1.0)


def sum_decisions(decided: Tensor, target: Tensor, weight: Tensor | None, layout: Layout) -> Tensor:
    """Return the counts ``(4, ..., c)`` of soft or hard decisions of the logits' shape, differentiably."""
    axis, over = layout
    if not target.is_floating_point():
        target = torch.zeros_like(decided, requires_grad=False).scatter(axis, target.unsqueeze(axis), 1.0)
    positive, negative = target, 1 - target
    if weight is not None:
        w = weight.unsqueeze(axis)
        positive, negative = positive * w, negative * w
    rest = 1 - decided
    parts = (positive * decided, negative * decided, positive * rest, negative * rest)
    return torch.stack([part.sum(over) for part in parts])


class _ClassCounts(torch.autograd.Function):
    """The autograd function of the closed forms: in blocks, or at once if vmapped or differentiated twice.

    Besides the counts it returns the classes of each sample's two largest probabilities, for the backward pass.
    """

    @staticmethod
    def forward(
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        kind: str,
        number: float,
        threshold: float | None,
        layout: Layout,
    ) -> tuple[Tensor, Tensor]:
        if not in_blocks(logits, layout):
            return _counts(logits, target, weight, kind, number, threshold, layout)
        lead = logits.shape[:1] if keeps_images(logits, layout) else ()
        total = logits.new_zeros(4, *lead, logits.shape[layout.class_axis], dtype=exact_dtype(logits.device))
        top = target.new_empty(two_classes(logits, layout.class_axis) if _has_own_kernel(kind, threshold) else (0,))
        with torch.autocast(logits.device.type, enabled=False):
            for block, x, y, w in blocks(logits, target, weight, layout):
                counts, block_top = _counts(x, y, w, kind, number, threshold, layout)
                block_total = total[:, block[0]] if lead else total
                block_total += counts
                if len(top):
                    top[block] = block_top
        return total.to(logits.dtype), top

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        logits, target, weight, *ctx.settings = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(logits, target, weight, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, top = ctx.saved_tensors
        kind, number, threshold, layout = ctx.settings
        for axis in sorted(layout.sample_axes, reverse=True):
            grad = grad.unsqueeze(axis)
        # A backward pass that is differentiated again, or vmapped, needs plain operations.
        plain = torch.is_grad_enabled() or not has_storage(grad)
        if plain or not _has_own_kernel(kind, threshold):
            gradient = partial(_gradient, kind=kind, number=number, threshold=threshold, layout=layout)
        else:
            gradient = partial(classes_linear.gradient, delta=number, layout=layout)
        if plain or not in_blocks(logits, layout):
            return gradient(logits, target, weight, top, grad), *(None,) * 6
        result, per_image = torch.empty_like(logits), keeps_images(logits, layout)
        with torch.autocast(logits.device.type, enabled=False):
            for block, x, y, w in blocks(logits, target, weight, layout):
                block_top = top[block] if len(top) else top
                result[block] = gradient(x, y, w, block_top, grad[:, block[0]] if per_image else grad)
        return result, *(None,) * 6

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Make the vmapped axis a leading one; the axes of the layout are counted from the end."""
        tensors = [leading(tensor, dim, info.batch_size) for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        return _ClassCounts.apply(*tensors, *inputs[3:]), (1, 0)  # type: ignore[no-untyped-call]


def _has_own_kernel(kind: str, threshold: float | None) -> bool:
    """Return whether ``classes_linear`` has a faster kernel for the step."""
    return kind == "linear" and threshold is None


def _counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float | None, layout: Layout
) -> tuple[Tensor, Tensor]:
    if _has_own_kernel(kind, threshold):
        return classes_linear.counts(x, y, w, number, layout)
    p, t, _ = _probabilities(x, threshold, layout.class_axis)
    t, u = both_ends(t, p.dtype)
    mass = VALUE[kind](p, 1 - p, t, u, number)
    decided = mass / mass.sum(layout.class_axis, keepdim=True)
    return sum_decisions(decided, y, w, layout), y.new_empty(0)


def _gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    _: Tensor,
    grad: Tensor,
    kind: str,
    number: float,
    threshold: float | None,
    layout: Layout,
) -> Tensor:
    """Return the gradient of the logits for any step. ``grad`` has axes of length 1 for the samples."""
    axis = layout.class_axis
    p, t, top = _probabilities(x, threshold, axis)
    t, u = both_ends(t, p.dtype)
    arguments = p, 1 - p, t, u, number
    mass = VALUE[kind](*arguments)
    total = mass.sum(axis, keepdim=True)
    true = torch.zeros_like(p).scatter(axis, y.unsqueeze(axis), 1.0)
    of_decided = (grad[1] - grad[3]) * (1 - true) + (grad[0] - grad[2]) * true
    if w is not None:
        of_decided = of_decided * w.unsqueeze(axis)
    of_mass = (of_decided - (of_decided * mass).sum(axis, keepdim=True) / total) / total
    of_p = of_mass * SLOPE[kind](*arguments)
    if top is not None:
        of_threshold = (of_mass * THRESHOLD_SLOPE[kind](*arguments)).sum(axis, keepdim=True)
        of_p = of_p.scatter_add(axis, top, (of_threshold / 2).expand(top.shape))
    return p * (of_p - (p * of_p).sum(axis, keepdim=True))


def _probabilities(x: Tensor, threshold: float | None, axis: int) -> tuple[Tensor, Any, Tensor | None]:
    """Return the softmax, the threshold, and for a dynamic one the classes of the two largest probabilities."""
    p = torch.softmax(x, axis)
    if threshold is not None:
        return p, threshold, None
    top = classes_linear.top_two(p, axis)
    return p, p.gather(axis, top).mean(axis, keepdim=True), top
