"""Counts of exclusive classes and the gradient of the logits, for the closed-form steps: Triton, or blocks of samples.

The gradient with respect to h_k is r_k = (G_k - sum_j G_j h_j/s)/s, where G_k is w (g_fp - g_tn)_k, or w (g_tp -
g_fn)_k for the true class. With respect to p_k it is r_k step'(p_k), plus half of sum_j r_j dstep(p_j)/dt for the two
largest; the backward pass of the softmax does the rest. Nothing of size samples x classes is kept: forward and backward
process the samples in blocks, so that intermediate results stay in the cache, and no confusion matrix is built.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_linear, classes_pixels, classes_triton
from metricfit.core.kernels.class_decisions import sum_decisions
from metricfit.core.kernels.class_layout import (
    Layout,
    StepAt,
    block_size,
    blocks,
    in_blocks,
    in_planes,
    keeps_images,
    two_classes,
)
from metricfit.core.numerics import exact_dtype
from metricfit.core.step_formulas import SLOPE, THRESHOLD_SLOPE, VALUE, both_ends


def counts(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    step: StepAt,
    layout: Layout,
) -> tuple[Tensor, Tensor]:
    """Return the counts ``(4, ..., c)``, and for the gradient what it need not search again.

    That is the classes of each sample's two largest probabilities, or an empty tensor if they are not needed.
    """
    if classes_triton.handles(logits):
        return classes_triton.counts(logits, target, weight, step, layout), target.new_empty(0)
    kernel = _kernel(logits, step, layout)
    if not in_blocks(logits, layout):
        return kernel.counts(logits, target, weight)
    lead = logits.shape[:1] if keeps_images(logits, layout) else ()
    total = logits.new_zeros(4, *lead, logits.shape[layout.class_axis], dtype=exact_dtype(logits.device))
    top = target.new_empty(two_classes(logits, layout.class_axis) if kernel.keeps_top else (0,))
    with torch.autocast(logits.device.type, enabled=False):
        for block, x, y, w in blocks(logits, target, weight, layout):
            block_counts, block_top = kernel.counts(x, y, w)
            block_total = total[:, block[0]] if lead else total
            block_total += block_counts
            if kernel.keeps_top:
                top[block] = block_top
    return total.to(logits.dtype), top


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    top: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    *,
    plain: bool = False,
) -> Tensor:
    """Return the gradient of the logits from that of the counts; ``plain`` if it will be differentiated or vmapped."""
    if not plain and classes_triton.handles(logits):
        return classes_triton.gradient(logits, target, weight, grad, step, layout)
    for axis in sorted(layout.sample_axes, reverse=True):
        grad = grad.unsqueeze(axis)
    if plain:
        return _gradient(logits, target, weight, grad, step, layout)
    kernel, result, per_image = _kernel(logits, step, layout), torch.empty_like(logits), keeps_images(logits, layout)
    if not in_blocks(logits, layout):
        kernel.write_gradient(logits, target, weight, top, grad, result)
        return result
    with torch.autocast(logits.device.type, enabled=False):
        for block, x, y, w in blocks(logits, target, weight, layout):
            block_top = top[block] if top is not None and kernel.keeps_top else None
            of_block = grad[:, block[0]] if per_image else grad
            kernel.write_gradient(x, y, w, block_top, of_block, result[block])
    return result


class _AnyStep:
    """Counts of a block and the gradient of its logits, for any step."""

    #: Whether counts come with the classes of the two largest probabilities, which the gradient can use.
    keeps_top = False

    def __init__(self, step: StepAt, layout: Layout) -> None:
        self.step, self.layout = step, layout

    def counts(self, x: Tensor, y: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        p, t, _ = _probabilities(x, self.step.threshold, self.layout.class_axis)
        t, u = both_ends(t, p.dtype)
        mass = VALUE[self.step.kind](p, 1 - p, t, u, self.step.number)
        decided = mass / mass.sum(self.layout.class_axis, keepdim=True)
        return sum_decisions(decided, y, w, self.layout), y.new_empty(0)

    def write_gradient(
        self, x: Tensor, y: Tensor, w: Tensor | None, top: Tensor | None, grad: Tensor, result: Tensor
    ) -> None:
        result.copy_(_gradient(x, y, w, grad, self.step, self.layout))


class _LinearRows(_AnyStep):
    """Linear at the dynamic threshold, if the classes are the last axis."""

    keeps_top = True

    def counts(self, x: Tensor, y: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        return classes_linear.counts(x, y, w, self.step.number, self.layout)

    def write_gradient(
        self, x: Tensor, y: Tensor, w: Tensor | None, top: Tensor | None, grad: Tensor, result: Tensor
    ) -> None:
        result.copy_(classes_linear.gradient(x, y, w, top, grad, self.step.number, self.layout))


class _Planes(_AnyStep):
    """Any step on the CPU, if the classes are not the last axis."""

    def __init__(self, step: StepAt, layout: Layout, logits: Tensor) -> None:
        super().__init__(step, layout)
        size = block_size(logits) if in_blocks(logits, layout) else logits.numel()
        self.scratch = classes_pixels.make_scratch(logits, max(size, logits.shape[layout.class_axis]))

    def counts(self, x: Tensor, y: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        return classes_pixels.counts(x, y, w, self.step, self.layout, self.scratch), y.new_empty(0)

    def write_gradient(
        self, x: Tensor, y: Tensor, w: Tensor | None, top: Tensor | None, grad: Tensor, result: Tensor
    ) -> None:
        classes_pixels.write_gradient(x, y, w, grad, self.step, result, self.scratch)


def _kernel(logits: Tensor, step: StepAt, layout: Layout) -> _AnyStep:
    if in_planes(logits, layout):
        return _Planes(step, layout, logits)
    return (_LinearRows if step.kind == "linear" and step.threshold is None else _AnyStep)(step, layout)


def _gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
) -> Tensor:
    """Return the gradient of the logits for any step. ``grad`` has axes of length 1 for the samples."""
    axis = layout.class_axis
    p, t, top = _probabilities(x, step.threshold, axis)
    t, u = both_ends(t, p.dtype)
    arguments = p, 1 - p, t, u, step.number
    mass = VALUE[step.kind](*arguments)
    total = mass.sum(axis, keepdim=True)
    true = torch.zeros_like(p).scatter(axis, y.unsqueeze(axis), 1.0)
    of_decided = (grad[1] - grad[3]) * (1 - true) + (grad[0] - grad[2]) * true
    if w is not None:
        of_decided = of_decided * w.unsqueeze(axis)
    of_mass = (of_decided - (of_decided * mass).sum(axis, keepdim=True) / total) / total
    of_p = of_mass * SLOPE[step.kind](*arguments)
    if top is not None:
        of_threshold = (of_mass * THRESHOLD_SLOPE[step.kind](*arguments)).sum(axis, keepdim=True)
        of_p = of_p.scatter_add(axis, top, (of_threshold / 2).expand(top.shape))
    return p * (of_p - (p * of_p).sum(axis, keepdim=True))


def _probabilities(x: Tensor, threshold: float | None, axis: int) -> tuple[Tensor, Any, Tensor | None]:
    """Return the softmax, the threshold, and for a dynamic one the classes of the two largest probabilities."""
    p = torch.softmax(x, axis)
    if threshold is not None:
        return p, threshold, None
    top = classes_linear.top_two(p, axis)
    return p, p.gather(axis, top).mean(axis, keepdim=True), top
