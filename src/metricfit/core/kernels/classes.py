"""Soft confusion counts of exclusive classes, with a closed-form backward through the dynamic threshold.

For one sample with softmax probabilities p, the threshold is t = (p_1 + p_2)/2, the mean of the two largest, or a
number; h_k = step(p_k, t), and the soft decision is h_k / s with s = sum_k h_k (multiclass soft sets, Eq. 5). With
the true class y and weight w,

    tp_y += w h_y/s     fn_y += w (1 - h_y/s)     fp_k += w h_k/s  and  tn_k += w (1 - h_k/s)  for k != y.

The class axis of the logits is the last one, ``(..., n, c)``, or the last but one, ``(..., images, c, pixels)``. Counts
are stacked, ``(4, ..., c)``, or per image ``(4, ..., images, c)``.

The gradient with respect to h_k is r_k = (G_k - sum_j G_j h_j/s)/s, where G_k is w (g_fp - g_tn)_k, or w (g_tp -
g_fn)_k for the true class. With respect to p_k it is r_k step'(p_k), plus half of sum_j r_j dstep(p_j)/dt for the two
largest; the backward pass of the softmax does the rest. On the CPU forward and backward process the samples in blocks,
so that intermediate results stay in the cache. No confusion matrix is built, and nothing of size samples x classes is
kept in between, but for Identity on the CPU (``keeps_probabilities``). Plain operations serve other steps on the CPU,
other devices, and a gradient that is differentiated again.

A compiler cannot find the two largest probabilities and the counts in one pass by itself, so that on a CUDA device the
Triton kernels are much faster than what it makes of plain operations. Under ``vmap`` and ``grad`` of torch.func it gets
plain operations: operators with a registered backward do not support these transforms.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_cpu, triton
from metricfit.core.kernels.soft_classes import (
    StepAt,
    block_size,
    blocks,
    decisions,
    has_blocks,
    in_blocks,
    keeps_images,
    move_inside,
    sum_decisions,
)
from metricfit.core.steps import Identity, Step, closed_form, is_unchanged
from metricfit.core.tensor_numerics import (
    differentiates_forward,
    full_precision,
    has_storage,
    is_transformed,
    leading,
    traces_transform,
)
from metricfit.core.types import Layout

#: Up to this number of logits the probabilities may be kept for the gradient.
KEPT = 2**23
#: The largest number of classes of Triton's programs; more take plain operations.
MOST_CLASSES = 2048


def takes_triton(logits: Tensor, layout: Layout) -> bool:
    """Return whether Triton's programs are for these logits: float32 or half precision on a CUDA device."""
    return (
        triton.runs_on(logits)
        and logits.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and logits.numel() > 0
        and logits.shape[layout.class_axis] <= MOST_CLASSES
        and math.prod(logits.shape[:-2]) < 2**16  # images are the second axis of the grid
    )


def _programs() -> Any:
    """Return the module of Triton's programs, which is imported only where there is Triton."""
    from metricfit.core.kernels.triton import classes as programs

    return programs


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
    if not (closed is None or isinstance(threshold, Tensor) or plain or differentiates_forward()):
        step_at = StepAt(closed.kind, closed.number, threshold)
        if torch.compiler.is_compiling():
            if handles_compiled(logits, layout):
                return compiled_counts(logits, target, weight, step_at, layout)
        elif takes_triton(logits, layout) or (logits.is_cpu and has_blocks(step_at)):
            return closed_class_counts(logits, target, weight, step_at, layout)
    return sum_decisions(decisions(logits, step, threshold, layout), target, weight, layout)


def _plain_counts(logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout) -> Tensor:
    return sum_decisions(decisions(logits, step, step.threshold, layout), target, weight, layout)


def closed_class_counts(logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout) -> Tensor:
    """Return soft counts by the closed form of a step; the other arguments are as in ``class_counts``."""
    kept = torch.is_grad_enabled() and keeps_something(logits, step, layout)
    counts: Tensor = _ClassCounts.apply(logits, target, weight, step, layout, kept)[0]  # type: ignore[no-untyped-call]
    return counts


class _ClassCounts(torch.autograd.Function):
    """The autograd function of the closed forms; its vmapped or twice differentiated backward is plain operations."""

    @staticmethod
    def forward(
        logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout, kept: bool
    ) -> tuple[Tensor, Tensor | None]:
        p = memory_to_keep(logits, target, step, layout) if kept else None
        return counts(logits, target, weight, step, layout, p), p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        logits, target, weight, ctx.step, ctx.layout, _ = inputs
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
        if torch.is_grad_enabled() or not has_storage(grad):  # this backward is itself differentiated, or vmapped
            plain = partial(_plain_counts, target=target, weight=weight, step=ctx.step, layout=ctx.layout)
            (of_logits,) = torch.func.vjp(plain, logits)[1](grad)
        else:
            of_logits = gradient(logits, target, weight, grad, ctx.step, ctx.layout, p)
        return of_logits, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        """Make the vmapped axis a leading one; the axes of the layout are counted from the end."""
        tensors = [leading(tensor, dim, info.batch_size) for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        return _ClassCounts.apply(*tensors, *inputs[3:5], False), (1, None)  # type: ignore[no-untyped-call]


def counts(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    step: StepAt,
    layout: Layout,
    p: Tensor | None = None,
) -> Tensor:
    """Return the counts ``(4, ..., c)``; ``p``, what is kept for ``gradient``, is filled."""
    if takes_triton(logits, layout):
        return _programs().counts(logits, target, weight, step, layout, p)
    size = block_size(logits, layout, step)
    arrays = 3 + (weight is not None and step.kind == "identity") - (p is not None)
    scratch = classes_cpu.make_scratch(logits, layout, size, arrays)
    if not in_blocks(logits, layout, size):
        return classes_cpu.counts(logits, target, weight, step, layout, scratch, p)
    lead = logits.shape[:1] if keeps_images(logits, layout) else ()
    total = logits.new_zeros(4, *lead, logits.shape[layout.class_axis], dtype=torch.float64)
    with full_precision(logits.device):
        for block, x, y, w in blocks(logits, target, weight, layout, size):
            block_total = total[:, block[0]] if lead else total
            block_total += classes_cpu.counts(x, y, w, step, layout, scratch, None if p is None else p[block])
    return total.to(logits.dtype)


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    p: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the logits from the gradient of the counts."""
    if takes_triton(logits, layout):
        return _programs().gradient(logits, target, weight, grad, step, layout, p)
    for axis in sorted(layout.sample_axes, reverse=True):
        grad = grad.unsqueeze(axis)
    size = block_size(logits, layout, step)
    arrays = int(p is None) if step.kind == "identity" else 3
    scratch = classes_cpu.make_scratch(logits, layout, size, arrays)
    result, per_image = torch.empty_like(logits), keeps_images(logits, layout)
    if not in_blocks(logits, layout, size):
        classes_cpu.write_gradient(logits, target, weight, grad, step, layout, result, scratch, p)
        return result
    with full_precision(logits.device):
        for block, x, y, w in blocks(logits, target, weight, layout, size):
            of_counts, kept = grad[:, block[0]] if per_image else grad, None if p is None else p[block]
            classes_cpu.write_gradient(x, y, w, of_counts, step, layout, result[block], scratch, kept)
    return result


def memory_to_keep(logits: Tensor, target: Tensor, step: StepAt, layout: Layout) -> Tensor:
    """Return the memory for what ``counts`` keeps for ``gradient``."""
    if not takes_triton(logits, layout):
        return torch.empty_like(logits)
    size = _programs().kept_size(target.numel(), logits.shape[layout.class_axis], step.threshold)
    return logits.new_empty(size, dtype=torch.float32)


def keeps_something(logits: Tensor, step: StepAt, layout: Layout) -> bool:
    """Return whether the forward pass keeps something for the gradient."""
    if takes_triton(logits, layout):
        return logits.requires_grad and not is_transformed()
    return keeps_probabilities(logits, step, layout)


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


def handles_compiled(logits: Tensor, layout: Layout) -> bool:
    """Return whether a compiler should call the operator for these logits."""
    return takes_triton(logits, layout) and not traces_transform()


def compiled_counts(logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout) -> Tensor:
    """Return the counts ``(4, ..., c)``, differentiably."""
    settings = (*step, layout.class_axis, list(layout.sample_axes))
    result: Tensor = torch.ops.metricfit.class_counts(logits, target, weight, *settings)
    return result


# Operators of torch, which a compiler calls. torch.library.custom_op would define the same, but each of its calls
# passes through several functions in Python.


def _class_counts(logits: Tensor, target: Tensor, weight: Tensor | None, *settings: Any) -> Tensor:
    return counts(logits, target, weight, *_read_settings(*settings))


def _class_gradient(logits: Tensor, target: Tensor, weight: Tensor | None, grad: Tensor, *settings: Any) -> Tensor:
    return gradient(logits, target, weight, grad, *_read_settings(*settings)).contiguous()


def _read_settings(
    kind: str, number: float, threshold: float | None, class_axis: int, sample_axes: list[int]
) -> tuple[StepAt, Layout]:
    return StepAt(kind, number, threshold), Layout(class_axis, tuple(sample_axes))


def _empty_counts(logits: Tensor, *arguments: Any) -> Tensor:
    *_, class_axis, sample_axes = arguments
    kept = [
        size for axis, size in enumerate(logits.shape, -logits.dim()) if axis != class_axis and axis not in sample_axes
    ]
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.new_empty(4, *kept, logits.shape[class_axis], dtype=dtype)


def _empty_gradient(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    logits, target, weight, *ctx.settings = inputs
    ctx.save_for_backward(logits, target, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.metricfit.class_gradient(*ctx.saved_tensors, grad, *ctx.settings), *(None,) * 7


_LIBRARY = torch.library.Library("metricfit", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name, _grad, _function, _fake in (
    ("class_counts", "", _class_counts, _empty_counts),
    ("class_gradient", "Tensor grad, ", _class_gradient, _empty_gradient),
):
    _settings = "str kind, float number, float? threshold, int class_axis, int[] sample_axes"
    _LIBRARY.define(f"{_name}(Tensor logits, Tensor target, Tensor? weight, {_grad}{_settings}) -> Tensor")  # type: ignore[no-untyped-call]
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"metricfit::{_name}", _fake, lib=_LIBRARY)
torch.library.register_autograd("metricfit::class_counts", _backward, setup_context=_remember, lib=_LIBRARY)
