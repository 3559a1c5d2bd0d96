"""Soft confusion counts of exclusive classes, with a closed-form backward through the dynamic threshold.

For one sample with softmax probabilities p, the threshold is t = (p_1 + p_2)/2, the mean of the two largest, or a
number; h_k = step(p_k, t), and the soft decision is h_k / s with s = sum_k h_k (multiclass soft sets, Eq. 5). With
the true class y and weight w,

    tp_y += w h_y/s     fn_y += w (1 - h_y/s)     fp_k += w h_k/s  and  tn_k += w (1 - h_k/s)  for k != y.

The class axis of the logits is the last one, ``(..., n, c)``, or the last but one, ``(..., images, c, pixels)``. Counts
are stacked, ``(4, ..., c)``, or per image ``(4, ..., images, c)``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_blocks, classes_operator
from metricfit.core.kernels.class_layout import Layout, StepAt
from metricfit.core.kernels.soft_classes import decisions, move_inside, sum_decisions
from metricfit.core.numerics import differentiates_forward, has_storage, leading
from metricfit.core.steps import Identity, Step, closed_form, is_unchanged


def class_counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, threshold: float | Tensor | None, layout: Layout
) -> Tensor:
    """Return soft counts ``(4, ..., c)``; without a threshold the dynamic one is used.

    ``target`` holds class numbers, without the class axis, or class shares of the logits' shape and type.
    """
    threshold = move_inside(threshold)
    if is_unchanged(step, Identity):
        threshold = 0.5  # Identity has no threshold; a number avoids the search for the dynamic one
    closed = closed_form(step)
    if closed is not None and threshold is not None and closed.kind not in ("linear", "identity"):
        closed = None  # with a fixed threshold a steep step, and then s, can be 0 for all classes of a sample
    # The kernels differentiate with respect to the logits only.
    plain = (weight is not None and weight.requires_grad) or target.is_floating_point()
    plain = (
        plain or differentiates_forward() or (torch.compiler.is_compiling() and not classes_operator.handles(logits))
    )
    if closed is None or isinstance(threshold, Tensor) or plain:
        return sum_decisions(decisions(logits, step, threshold, layout), target, weight, layout)
    step_at = StepAt(closed.kind, closed.number, threshold)
    if torch.compiler.is_compiling():
        return classes_operator.counts(logits, target, weight, step_at, layout)
    return closed_class_counts(logits, target, weight, step_at, layout)


def closed_class_counts(logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout) -> Tensor:
    """Return soft counts by the closed form of a step; the other arguments are as in ``class_counts``."""
    kept = torch.is_grad_enabled() and classes_blocks.keeps_probabilities(logits, step, layout)
    counts: Tensor = _ClassCounts.apply(logits, target, weight, step, layout, kept)[0]  # type: ignore[no-untyped-call]
    return counts


class _ClassCounts(torch.autograd.Function):
    """The autograd function of the closed forms; its vmapped or twice differentiated backward is plain operations."""

    @staticmethod
    def forward(
        logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout, kept: bool
    ) -> tuple[Tensor, Tensor | None]:
        p = torch.empty_like(logits) if kept else None
        return classes_blocks.counts(logits, target, weight, step, layout, p), p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        logits, target, weight, *ctx.settings, _ = inputs
        p = output[1]
        if p is not None:
            ctx.mark_non_differentiable(p)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, weight, p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None, None, None
        logits, target, weight, p = ctx.saved_tensors
        plain = torch.is_grad_enabled() or not has_storage(grad)
        result = classes_blocks.gradient(logits, target, weight, grad, *ctx.settings, plain=plain, p=p)
        return result, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        """Make the vmapped axis a leading one; the axes of the layout are counted from the end."""
        tensors = [leading(tensor, dim, info.batch_size) for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        return _ClassCounts.apply(*tensors, *inputs[3:5], False), (1, None)  # type: ignore[no-untyped-call]
