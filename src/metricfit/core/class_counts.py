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

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit.core.numerics import exact_dtype, has_storage, leading
from metricfit.core.steps import (
    SLOPE,
    THRESHOLD_SLOPE,
    VALUE,
    ClosedFormStep,
    Identity,
    Step,
    StraightThrough,
    linear_pieces,
)

BLOCK = {"cpu": 2**18, "cuda": 2**26}


class Layout(NamedTuple):
    """Where the class axis is and which axes hold samples to be summed, both counted from the end."""

    class_axis: int
    sample_axes: tuple[int, ...]


def class_counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, threshold: float | Tensor | None, layout: Layout
) -> Tensor:
    """Soft counts ``(4, ..., c)``; no threshold means the dynamic one.

    ``target`` holds class numbers, without the class axis, or class shares of the logits' shape and type.
    """
    if isinstance(step, Identity):
        threshold = 0.5  # which makes no difference to it, and spares the search for the dynamic one
    # With a fixed threshold a steep step can vanish for every class of a sample, and s with it.
    closed = isinstance(step, ClosedFormStep) and (threshold is None or step.kind in ("linear", "identity"))
    given_gradients = isinstance(threshold, Tensor) or (weight is not None and weight.requires_grad)
    # Plain operations for a compiler, for the reasons given in ``soft_counts``.
    if not closed or given_gradients or target.is_floating_point() or torch.compiler.is_compiling():
        return sum_decisions(decisions(logits, step, threshold, layout), target, weight, layout)
    counts, _ = _ClassCounts.apply(logits, target, weight, step.kind, step.number, threshold, layout)  # type: ignore
    return counts  # type: ignore[no-any-return]


def decisions(logits: Tensor, step: Step, threshold: float | Tensor | None, layout: Layout) -> Tensor:
    """Each sample's soft decisions, at least 0 and summing to 1 over the classes, in plain operations."""
    axis = layout.class_axis
    if isinstance(step, StraightThrough):
        soft = decisions(logits, step.step, threshold, layout)
        return hard_decisions(logits, layout, soft.dtype) + (soft - soft.detach())
    p = torch.softmax(logits, axis)
    t = p.gather(axis, _top_two(p, axis)).mean(axis, keepdim=True) if threshold is None else threshold
    mass = step(p, t)
    total = mass.sum(axis, keepdim=True)
    empty = total == 0
    return torch.where(empty, p, mass / torch.where(empty, 1.0, total))


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
        if not _in_blocks(logits, layout):
            return _counts(logits, target, weight, kind, number, threshold, layout)
        lead = logits.shape[:1] if _per_image(logits, layout) else ()
        total = logits.new_zeros(4, *lead, logits.shape[layout.class_axis], dtype=exact_dtype(logits.device))
        top = target.new_empty(_two_classes(logits, layout.class_axis) if _is_lean(kind, threshold) else (0,))
        with torch.autocast(logits.device.type, enabled=False):
            for at, x, y, w in _blocks(logits, target, weight, layout):
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
            gradient = partial(_linear_gradient, delta=number, layout=layout)
        if plain or not _in_blocks(logits, layout):
            return gradient(logits, target, weight, top, grad), *(None,) * 6
        result, per_image = torch.empty_like(logits), _per_image(logits, layout)
        with torch.autocast(logits.device.type, enabled=False):
            for at, x, y, w in _blocks(logits, target, weight, layout):
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
        return _linear_counts(x, y, w, number, layout)
    p, t, _ = _probabilities(x, threshold, layout.class_axis)
    mass = VALUE[kind](p, t, number)
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
    mass = VALUE[kind](p, t, number)
    total = mass.sum(axis, keepdim=True)
    true = torch.zeros_like(p).scatter(axis, y.unsqueeze(axis), 1.0)
    of_decided = (grad[1] - grad[3]) * (1 - true) + (grad[0] - grad[2]) * true
    if w is not None:
        of_decided = of_decided * w.unsqueeze(axis)
    of_mass = (of_decided - (of_decided * mass).sum(axis, keepdim=True) / total) / total
    of_p = of_mass * SLOPE[kind](p, t, number)
    if top is not None:
        of_threshold = (of_mass * THRESHOLD_SLOPE[kind](p, t, number)).sum(axis, keepdim=True)
        of_p = of_p.scatter_add(axis, top, (of_threshold / 2).expand(top.shape))
    return p * (of_p - (p * of_p).sum(axis, keepdim=True))


def _probabilities(x: Tensor, threshold: float | None, axis: int) -> tuple[Tensor, Any, Tensor | None]:
    """The softmax, the threshold, and if that is dynamic the classes of the two largest probabilities."""
    p = torch.softmax(x, axis)
    if threshold is not None:
        return p, threshold, None
    top = _top_two(p, axis)
    return p, p.gather(axis, top).mean(axis, keepdim=True), top


def _top_two(p: Tensor, axis: int) -> Tensor:
    """The classes of the two largest probabilities. A GPU and a compiler do two maxima faster than one topk of 2."""
    if p.device.type == "cpu" and not torch.compiler.is_compiling():
        return p.topk(2, dim=axis).indices
    first = p.detach().argmax(axis, keepdim=True)
    return torch.cat([first, p.detach().scatter(axis, first, -1.0).argmax(axis, keepdim=True)], axis)


# The default, Linear at the dynamic threshold, in few passes. With a = t/2 and b = 3t/2 its mass is
#     h = m1 p + (m2 - m1) relu(p - a) + (m3 - m2) relu(p - b),
# where p > b is possible for the largest probability alone, since the second is at most t. That term is handled for one
# entry a sample; the others enter only through sums, so that neither h nor h/s is ever written out.


class _Linear(NamedTuple):
    """What both passes need: p, relu(p - a) and, one a sample, the pieces, the last term and s."""

    p: Tensor
    above: Tensor
    t: Tensor
    b: Tensor
    m1: Tensor
    m2: Tensor
    m3: Tensor
    largest: Tensor
    p1: Tensor
    last_term: Tensor
    total: Tensor

    def mass_at(self, classes: Tensor, axis: int) -> Tensor:
        """h of one class a sample."""
        first_terms = self.m1 * self.p.gather(axis, classes) + (self.m2 - self.m1) * self.above.gather(axis, classes)
        return first_terms + (classes == self.largest).to(self.p.dtype) * self.last_term


def _linear(x: Tensor, top: Tensor | None, delta: float, axis: int) -> tuple[_Linear, Tensor]:
    p = torch.softmax(x, axis)
    top = _top_two(p, axis) if top is None else top
    t = p.gather(axis, top).mean(axis, keepdim=True)
    a, b, m1, m2, m3 = linear_pieces(t, delta)
    above = (p - a).relu_()
    largest = top.narrow(axis, 0, 1)
    p1 = p.gather(axis, largest)
    last_term = (m3 - m2) * torch.relu(p1 - b)
    total = m1 + (m2 - m1) * above.sum(axis, keepdim=True) + last_term
    return _Linear(p, above, t, b, m1, m2, m3, largest, p1, last_term, total), top


def _linear_counts(x: Tensor, y: Tensor, w: Tensor | None, delta: float, layout: Layout) -> tuple[Tensor, Tensor]:
    axis, over = layout
    soft, top = _linear(x, None, delta, axis)
    true = y.unsqueeze(axis)
    scale = soft.total.reciprocal() if w is None else w.unsqueeze(axis) / soft.total
    hit = soft.mass_at(true, axis)
    missed, hit = (soft.total - hit) * scale, hit * scale
    lead = tuple(size for at, size in enumerate(x.shape, -x.dim()) if at != axis and at not in over)
    flat = (*lead, math.prod(x.shape[at] for at in over))

    def per_class(classes: Tensor, amount: Tensor) -> Tensor:
        empty = x.new_zeros(*lead, x.shape[axis])
        return empty.scatter_add(-1, classes.reshape(flat), amount.reshape(flat))

    tp, fn = per_class(true, hit), per_class(true, missed)
    present = torch.ones_like(hit) if w is None else w.unsqueeze(axis)
    for given in (soft.p, soft.above):  # of the other classes alone, rather than of all less the hits
        given.scatter_(axis, true, 0.0)
    beyond = scale * soft.last_term * (soft.largest != true).to(x.dtype)
    fp = _over_samples(soft.p, scale * soft.m1, layout) + per_class(soft.largest, beyond)
    fp = fp + _over_samples(soft.above, scale * (soft.m2 - soft.m1), layout)
    positives = per_class(true, present)
    tn = (positives.sum(-1, keepdim=True) - positives - fp).clamp(min=0)
    return torch.stack([tp, fp, fn, tn]), top


def _linear_gradient(
    x: Tensor, y: Tensor, w: Tensor | None, top: Tensor, grad: Tensor, delta: float, layout: Layout
) -> Tensor:
    """The logits' gradient, from r, the masses' gradient, written over the latter.

    Up to b the step is a function of p/t, so its derivative by t is -slope p/t, and what the softmax's backward takes
    off, sum_j p_j dL/dp_j, is sum_j slope_j p_j r_j + t dL/dt = 0: all that is taken off comes from a probability
    above b.
    """
    axis = layout.class_axis
    soft, _ = _linear(x, top, delta, axis)
    p, true = soft.p, y.unsqueeze(axis)
    of_other = grad[1] - grad[3]
    more_if_true = (grad[0] - grad[2] - of_other).expand(x.shape).gather(axis, true)
    mean = soft.m1 * _over_classes(p, of_other, axis) + (soft.m2 - soft.m1) * _over_classes(soft.above, of_other, axis)
    mean = mean + soft.last_term * of_other.expand(x.shape).gather(axis, soft.largest)
    mean = (mean + soft.mass_at(true, axis) * more_if_true) / soft.total
    scale = soft.total.reciprocal() if w is None else w.unsqueeze(axis) / soft.total
    r = (of_other - mean).scatter_add_(axis, true, more_if_true)
    beyond = (soft.p1 > soft.b).to(p.dtype) * scale * r.gather(axis, soft.largest)
    slope = soft.above.gt_(0).mul_((soft.m2 - soft.m1) * scale).add_(soft.m1 * scale)
    of_logits = r.mul_(slope).mul_(p)
    inner = of_logits.sum(axis, keepdim=True) - beyond * soft.m2 * soft.p1
    of_threshold = -inner / soft.t - beyond * 1.5 * soft.m3 * (1 - soft.p1) / (1 - soft.b)
    taken_off = inner + beyond * soft.m3 * soft.p1 + of_threshold * soft.t
    of_logits.scatter_add_(axis, soft.largest, beyond * (soft.m3 - soft.m2) * soft.p1)
    of_logits.scatter_add_(axis, top, p.gather(axis, top) * (of_threshold / 2))
    return of_logits.addcmul_(p, taken_off, value=-1)


def _over_classes(given: Tensor, by_class: Tensor, axis: int) -> Tensor:
    """The sum over classes of ``given`` times a number a class."""
    if axis == -1:
        return given @ by_class.transpose(-1, -2)
    return (given * by_class).sum(axis, keepdim=True)


def _over_samples(given: Tensor, by_sample: Tensor, layout: Layout) -> Tensor:
    """The sum over samples of ``given`` times a number a sample."""
    if layout.class_axis == -1:
        return (by_sample.transpose(-1, -2) @ given).squeeze(-2)
    return (given * by_sample).sum(layout.sample_axes)


def _per_image(logits: Tensor, layout: Layout) -> bool:
    """Whether the images' axis is kept."""
    return -min(layout.sample_axes) < logits.dim()


def _two_classes(x: Tensor, axis: int) -> tuple[int, ...]:
    """The shape of two entries a sample."""
    shape = list(x.shape)
    shape[axis] = 2
    return tuple(shape)


def _in_blocks(logits: Tensor, layout: Layout) -> bool:
    """Whether the logits are one batch, with no leading axes, of more than a block."""
    plain = logits.dim() == (2 if layout.class_axis == -1 else 3)
    return plain and logits.numel() > BLOCK.get(logits.device.type, BLOCK["cpu"])


def _blocks(
    logits: Tensor, target: Tensor, weight: Tensor | None, layout: Layout
) -> Iterator[tuple[tuple[slice, ...], Tensor, Tensor, Tensor | None]]:
    """Slices of samples, or of images and then of their pixels, of about a block's size, with what they select."""
    size = BLOCK.get(logits.device.type, BLOCK["cpu"])
    classes = logits.shape[layout.class_axis]
    if layout.class_axis == -1:
        rows = max(1, size // classes)
        for start in range(0, logits.shape[0], rows):
            at: tuple[slice, ...] = (slice(start, start + rows),)
            yield at, logits[at], target[at], None if weight is None else weight[at]
        return
    images, pixels = logits.shape[0], logits.shape[-1]
    images_at_once = max(1, size // (classes * pixels))
    pixels_at_once = max(1, size // classes)
    for first in range(0, images, images_at_once):
        for start in range(0, pixels, pixels_at_once):
            of_images, of_pixels = slice(first, first + images_at_once), slice(start, start + pixels_at_once)
            at, samples = (of_images, slice(None), of_pixels), (of_images, of_pixels)
            yield at, logits[at], target[samples], None if weight is None else weight[samples]
