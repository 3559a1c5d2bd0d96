"""Soft confusion counts of exclusive classes, with a closed-form backward through the dynamic threshold.

For one sample with softmax probabilities p, the threshold is t = (p_1 + p_2)/2, the mean of the two largest, or a
number; h_k = step(p_k, t), and the soft decision is h_k / s with s = sum_k h_k (multiclass soft sets, Eq. 5). With
the true class y and weight w,

    tp_y += w h_y/s     fn_y += w (1 - h_y/s)     fp_k += w h_k/s  and  tn_k += w (1 - h_k/s)  for k != y.

The gradient with respect to h_k is r_k = (G_k - sum_j G_j h_j/s)/s, where G_k is w (g_fp - g_tn)_k, or w (g_tp -
g_fn)_k for the true class. With respect to p_k it is r_k step'(p_k), plus half of sum_j r_j dstep(p_j)/dt for the two
largest; the softmax's backward does the rest. Nothing of size samples x classes is kept: forward and backward go
through the samples in blocks, so their intermediates stay in the cache, and no confusion matrix is built.

Logits have their class axis last, ``(..., n, c)``, or last but one, ``(..., images, c, pixels)``; counts come back
stacked, ``(4, ..., c)``, or ``(4, ..., images, c)`` when counted per image.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_linear as linear_classes
from metricfit.core.kernels.class_layout import Layout, blocks, in_blocks, keeps_images, two_classes
from metricfit.core.numerics import SMALLEST_DIVISOR, exact_dtype, has_storage, leading
from metricfit.core.step_formulas import SLOPE, THRESHOLD_SLOPE, VALUE, both_ends
from metricfit.core.steps import Identity, Step, StraightThrough, closed_form, is_unchanged

#: Fixed thresholds of classes are treated as if they were at least this far from 0 and 1. Each sample's decisions are
#: divided by their sum, so thresholds beyond it differ in nothing but slopes that float32 gradients have no room for.
NEAREST = 1e-6


def class_counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, threshold: float | Tensor | None, layout: Layout
) -> Tensor:
    """Soft counts ``(4, ..., c)``; no threshold means the dynamic one.

    ``target`` holds class numbers, without the class axis, or class shares of the logits' shape and type.
    """
    threshold = _inside(threshold)
    if is_unchanged(step, Identity):
        threshold = 0.5  # which makes no difference to it, and spares the search for the dynamic one
    closed = closed_form(step)
    if closed is not None and threshold is not None and closed.kind not in ("linear", "identity"):
        closed = None  # with a fixed threshold a steep step can vanish for every class of a sample, and s with it
    given_gradients = isinstance(threshold, Tensor) or (weight is not None and weight.requires_grad)
    # Plain operations for a compiler, for the reasons given in ``soft_counts``.
    if closed is None or given_gradients or target.is_floating_point() or torch.compiler.is_compiling():
        return sum_decisions(decisions(logits, step, threshold, layout), target, weight, layout)
    counts, _ = _ClassCounts.apply(logits, target, weight, closed.kind, closed.number, threshold, layout)  # type: ignore
    return counts  # type: ignore[no-any-return]


def decisions(logits: Tensor, step: Step, threshold: float | Tensor | None, layout: Layout) -> Tensor:
    """Each sample's soft decisions, at least 0 and summing to 1 over the classes, in plain operations."""
    axis, threshold = layout.class_axis, _inside(threshold)
    if is_unchanged(step, StraightThrough):
        soft = decisions(logits, step.step, threshold, layout)
        return hard_decisions(logits, layout, soft.dtype) + (soft - soft.detach())
    p = torch.softmax(logits, axis)
    t = p.gather(axis, linear_classes.top_two(p, axis)).mean(axis, keepdim=True) if threshold is None else threshold
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
    """1 for the argmax, the first on ties, and 0 for the other classes; no gradient."""
    axis = layout.class_axis
    chosen = logits.detach().argmax(axis, keepdim=True)
    return torch.zeros_like(logits, dtype=dtype, requires_grad=False).scatter(axis, chosen, 1.0)


def sum_decisions(decided: Tensor, target: Tensor, weight: Tensor | None, layout: Layout) -> Tensor:
    """Counts ``(4, ..., c)`` of decisions, soft or hard, of the logits' shape; differentiable."""
    axis, over = layout
    if not target.is_floating_point():
        target = torch.zeros_like(decided, requires_grad=False).scatter(axis, target.unsqueeze(axis), 1.0)
    positive, negative = target, 1 - target
    if weight is not None:
        w = weight.unsqueeze(axis)
        positive, negative = positive * w, negative * w
    rest = 1 - decided
    parts = (positive * decided, negative * decided, positive * rest, negative * rest)
    return torch.stack([given.sum(over) for given in parts])


class _ClassCounts(torch.autograd.Function):
    """The kernel's autograd face: in blocks, and whole when vmapped or differentiated twice.

    Besides the counts it gives the classes of each sample's two largest probabilities, for the backward pass.
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
        top = target.new_empty(two_classes(logits, layout.class_axis) if _is_lean(kind, threshold) else (0,))
        with torch.autocast(logits.device.type, enabled=False):
            for at, x, y, w in blocks(logits, target, weight, layout):
                counts, top_here = _counts(x, y, w, kind, number, threshold, layout)
                into = total[:, at[0]] if lead else total
                into += counts
                if len(top):
                    top[at] = top_here
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
        # Differentiated again, or vmapped, this backward may see plain operations only.
        plain = torch.is_grad_enabled() or not has_storage(grad)
        if plain or not _is_lean(kind, threshold):
            gradient = partial(_gradient, kind=kind, number=number, threshold=threshold, layout=layout)
        else:
            gradient = partial(linear_classes.gradient, delta=number, layout=layout)
        if plain or not in_blocks(logits, layout):
            return gradient(logits, target, weight, top, grad), *(None,) * 6
        result, per_image = torch.empty_like(logits), keeps_images(logits, layout)
        with torch.autocast(logits.device.type, enabled=False):
            for at, x, y, w in blocks(logits, target, weight, layout):
                top_here = top[at] if len(top) else top
                result[at] = gradient(x, y, w, top_here, grad[:, at[0]] if per_image else grad)
        return result, *(None,) * 6

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """A vmapped axis becomes a leading one: the axes below are counted from the end."""
        tensors = [leading(given, dim, info.batch_size) for given, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        return _ClassCounts.apply(*tensors, *inputs[3:]), (1, 0)  # type: ignore[no-untyped-call]


def _is_lean(kind: str, threshold: float | None) -> bool:
    return kind == "linear" and threshold is None


def _counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float | None, layout: Layout
) -> tuple[Tensor, Tensor]:
    if _is_lean(kind, threshold):
        return linear_classes.counts(x, y, w, number, layout)
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
    """The logits' gradient for any step. ``grad`` has axes of length 1 where the samples were summed."""
    axis = layout.class_axis
    p, t, top = _probabilities(x, threshold, axis)
    t, u = both_ends(t, p.dtype)
    at = p, 1 - p, t, u, number
    mass = VALUE[kind](*at)
    total = mass.sum(axis, keepdim=True)
    true = torch.zeros_like(p).scatter(axis, y.unsqueeze(axis), 1.0)
    of_decided = (grad[1] - grad[3]) * (1 - true) + (grad[0] - grad[2]) * true
    if w is not None:
        of_decided = of_decided * w.unsqueeze(axis)
    of_mass = (of_decided - (of_decided * mass).sum(axis, keepdim=True) / total) / total
    of_p = of_mass * SLOPE[kind](*at)
    if top is not None:
        of_threshold = (of_mass * THRESHOLD_SLOPE[kind](*at)).sum(axis, keepdim=True)
        of_p = of_p.scatter_add(axis, top, (of_threshold / 2).expand(top.shape))
    return p * (of_p - (p * of_p).sum(axis, keepdim=True))


def _probabilities(x: Tensor, threshold: float | None, axis: int) -> tuple[Tensor, Any, Tensor | None]:
    """The softmax, the threshold, and if that is dynamic the classes of the two largest probabilities."""
    p = torch.softmax(x, axis)
    if threshold is not None:
        return p, threshold, None
    top = linear_classes.top_two(p, axis)
    return p, p.gather(axis, top).mean(axis, keepdim=True), top
