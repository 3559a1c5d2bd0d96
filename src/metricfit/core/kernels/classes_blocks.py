"""Counts of exclusive classes and the gradient of the logits, for the closed-form steps: Triton, or blocks of samples.

The gradient with respect to h_k is r_k = (G_k - sum_j G_j h_j/s)/s, where G_k is w (g_fp - g_tn)_k, or w (g_tp -
g_fn)_k for the true class. With respect to p_k it is r_k step'(p_k), plus half of sum_j r_j dstep(p_j)/dt for the two
largest; the backward pass of the softmax does the rest. Forward and backward process the
samples in blocks, so that intermediate results stay in the cache, and no confusion matrix is built. Nothing of size
samples x classes is kept in between, but for Identity on the CPU (``keeps_probabilities``).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_cpu, classes_triton
from metricfit.core.kernels.class_layout import Layout, StepAt, block_size, blocks, in_blocks, is_lean, keeps_images
from metricfit.core.kernels.soft_classes import sum_decisions, top_two
from metricfit.core.numerics import exact_dtype, is_transformed
from metricfit.core.step_formulas import SLOPE, THRESHOLD_SLOPE, VALUE, both_ends

#: Up to this number of logits the probabilities may be kept for the gradient.
KEPT = 2**23


def counts(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    step: StepAt,
    layout: Layout,
    p: Tensor | None = None,
) -> Tensor:
    """Return the counts ``(4, ..., c)``; ``p``, if ``keeps_probabilities``, is filled for ``gradient``."""
    if classes_triton.handles(logits):
        return classes_triton.counts(logits, target, weight, step, layout)
    of_block, size = _counts, block_size(logits, layout, step)
    if logits.device.type == "cpu":
        arrays = 3 + (weight is not None and step.kind == "identity") - (p is not None)
        of_block = partial(classes_cpu.counts, scratch=classes_cpu.make_scratch(logits, layout, size, arrays))
    if not in_blocks(logits, layout, size):
        return of_block(logits, target, weight, step, layout, **_part(p, ...))
    lead = logits.shape[:1] if keeps_images(logits, layout) else ()
    total = logits.new_zeros(4, *lead, logits.shape[layout.class_axis], dtype=exact_dtype(logits.device))
    with torch.autocast(logits.device.type, enabled=False):
        for block, x, y, w in blocks(logits, target, weight, layout, size):
            block_total = total[:, block[0]] if lead else total
            block_total += of_block(x, y, w, step, layout, **_part(p, block))
    return total.to(logits.dtype)


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    *,
    plain: bool = False,
    p: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the logits from that of the counts; ``plain`` if it will be differentiated or vmapped."""
    if not plain and classes_triton.handles(logits):
        return classes_triton.gradient(logits, target, weight, grad, step, layout)
    for axis in sorted(layout.sample_axes, reverse=True):
        grad = grad.unsqueeze(axis)
    if plain:
        return _gradient(logits, target, weight, grad, step, layout)
    write, size = _write_gradient, block_size(logits, layout, step)
    if logits.device.type == "cpu":
        arrays = int(p is None) if step.kind == "identity" else 3 if is_lean(step) else 2
        write = partial(classes_cpu.write_gradient, scratch=classes_cpu.make_scratch(logits, layout, size, arrays))
    result, per_image = torch.empty_like(logits), keeps_images(logits, layout)
    if not in_blocks(logits, layout, size):
        write(logits, target, weight, grad, step, layout, result, **_part(p, ...))
        return result
    with torch.autocast(logits.device.type, enabled=False):
        for block, x, y, w in blocks(logits, target, weight, layout, size):
            of_counts = grad[:, block[0]] if per_image else grad
            write(x, y, w, of_counts, step, layout, result[block], **_part(p, block))
    return result


def keeps_probabilities(logits: Tensor, step: StepAt, layout: Layout) -> bool:
    """Return whether the probabilities are kept for the gradient, which takes little more than a softmax for Identity.

    Then blocks are whole images, so that each has its probabilities in one piece.
    """
    return (
        step.kind == "identity"
        and logits.device.type == "cpu"
        and layout.class_axis == -2
        and logits.dim() == 3
        and logits.is_contiguous()
        and math.prod(logits.shape[1:]) <= block_size(logits, layout, step)
        and logits.numel() <= KEPT
        and logits.requires_grad
        and not is_transformed()
    )


def _part(p: Tensor | None, block: Any) -> dict[str, Tensor]:
    return {} if p is None else {"p": p[block]}


def _counts(x: Tensor, y: Tensor, w: Tensor | None, step: StepAt, layout: Layout) -> Tensor:
    p, t, _ = _probabilities(x, step.threshold, layout.class_axis)
    t, u = both_ends(t, p.dtype)
    mass = VALUE[step.kind](p, 1 - p, t, u, step.number)
    return sum_decisions(mass / mass.sum(layout.class_axis, keepdim=True), y, w, layout)


def _write_gradient(
    x: Tensor, y: Tensor, w: Tensor | None, grad: Tensor, step: StepAt, layout: Layout, result: Tensor
) -> None:
    result.copy_(_gradient(x, y, w, grad, step, layout))


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
    top = top_two(p, axis)
    return p, p.gather(axis, top).mean(axis, keepdim=True), top
