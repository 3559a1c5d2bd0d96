"""Soft counts of exclusive classes on a CUDA device: one pass over the logits for the counts, one for the gradient.

Nothing of the size of the logits is stored but the gradient. Probabilities, the two largest of them and the step are
computed in registers, in float32 for logits of any type. Counts are sums without a matrix product, so that TF32 does
not matter. Each program adds its samples in float32 and writes one partial sum per class; a second small program adds
these in float64. Only the true classes of rows with many classes are counted by atomic additions, to memory of the
program, so that results differ at most in the order of these.

A tile is ``(SAMPLES, BLOCK)``: samples of one image times all classes. Strides say where its logits are, so that
classes may be the last axis or the middle one. A label out of range makes the weight NaN, and with it the loss.
"""
# mypy: ignore-errors

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from metricfit.core.kernels.soft_classes import Layout, StepAt
from metricfit.core.kernels.triton import launch
from metricfit.core.kernels.triton.binary import masses, slope, step_settings

#: From this number of classes on, true classes are counted by atomic additions to memory of the program.
SCATTERED = 64


class Launch(NamedTuple):
    """Logits per tile, warps per program, tiles that are loaded ahead, and programs per launch."""

    tile: int
    warps: int
    stages: int
    programs: int


COUNTS, GRADIENT = Launch(2048, 4, 3, 1056), Launch(1024, 2, 3, 2112)


class _Batch(NamedTuple):
    """A batch as the programs read it: without views, because each view costs as much as a launch."""

    #: Logits of two or three axes, and labels and weights without the class axis.
    x: Tensor
    y: Tensor
    w: Tensor
    weighted: bool
    #: The numbers of images, samples per image and classes, and the strides of the logits along these.
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    #: The leading shape of the counts: the images, or nothing if all samples are counted together.
    kept: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        y = _strides(self.y)
        return self.shape[1], *self.strides, *y, *(_strides(self.w) if self.weighted else y)

    @property
    def groups(self) -> int:
        return math.prod(self.kept)


def _strides(samples: Tensor) -> tuple[int, int]:
    """Return the strides of labels or weights along images and samples; a single image has stride 0.

    Triton knows of 0 that it keeps the alignment.
    """
    return 0 if samples.dim() == 1 or samples.shape[0] == 1 else samples.stride(0), samples.stride(-1)


def _class_strides(x: Tensor, layout: Layout) -> tuple[int, int, int]:
    """Return the strides of logits, or of their gradient, along images, samples and classes."""
    strides = x.stride()
    image = 0 if len(strides) == 2 or x.shape[0] == 1 else strides[0]
    return (image, strides[-2], strides[-1]) if layout.class_axis == -1 else (image, strides[-1], strides[-2])


def _batch(logits: Tensor, target: Tensor, weight: Tensor | None, layout: Layout) -> _Batch:
    x, y, w = logits, target, target if weight is None else weight
    if logits.dim() > 3:  # only leading axes that do not merge are copied
        x, y, w = x.reshape(-1, *x.shape[-2:]), y.reshape(-1, y.shape[-1]), w.reshape(-1, w.shape[-1])
    shape = x.shape
    samples, classes = shape[-2:] if layout.class_axis == -1 else (shape[-1], shape[-2])
    kept = logits.shape[: -3 if -3 in layout.sample_axes else -2]
    images = 1 if len(shape) == 2 else shape[0]
    return _Batch(x, y, w, weight is not None, (images, samples, classes), _class_strides(x, layout), tuple(kept))


def counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout, kept: Tensor | None = None
) -> Tensor:
    """Return soft counts ``(4, ..., c)`` in float32, as ``classes.class_counts`` does.

    ``kept`` is a tensor of ``kept_size`` numbers to fill, with which ``gradient`` is faster.
    """
    batch = _batch(logits, target, weight, layout)
    images, _, classes = batch.shape
    numbers, static = _settings(step, batch, COUNTS, kept)
    programs = _programs(batch, static["SAMPLES"], COUNTS)
    rows = images * programs
    partial = logits.new_empty(rows, 3, classes, dtype=torch.float32)
    weights = logits.new_empty(rows, dtype=torch.float32)
    tensors = batch.x, batch.y, batch.w, partial, weights, weights if kept is None else kept
    launch(counts_kernel, (programs, images, 1), tensors, (*batch.sizes, *numbers), static, COUNTS.warps)
    result = logits.new_empty(4, *batch.kept, classes, dtype=torch.float32)
    block = min(static["BLOCK"], 8)
    grid, sums = (-(-classes // block), batch.groups, 1), {"C": classes, "BLOCK": block, "ROWS": 256}
    launch(finish_kernel, grid, (partial, weights, result), (rows // batch.groups,), sums)
    return result


def kept_size(samples: int, classes: int, threshold: float | None) -> int:
    """Return how many numbers ``counts`` keeps: 16 bytes per sample, and nothing for few classes."""
    return 4 * samples if threshold is None and classes >= SCATTERED else 0


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    kept: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the logits from the gradient of the counts, ``(4, ..., c)``; ``kept`` as in ``counts``."""
    batch = _batch(logits, target, weight, layout)
    images = batch.shape[0]
    numbers, static = _settings(step, batch, GRADIENT, kept)
    of_counts, of_counts_strides = _repeat_for_images(grad, batch.groups, images)
    result = torch.empty_like(batch.x)  # dense with the strides of x if x is dense
    grid = _programs(batch, static["SAMPLES"], GRADIENT), images, 1
    numbers = *batch.sizes, *of_counts_strides, *_class_strides(result, layout), *numbers
    tensors = batch.x, batch.y, batch.w, of_counts, of_counts if kept is None else kept, result
    launch(gradient_kernel, grid, tensors, numbers, static, GRADIENT.warps)
    return result if result.dim() == logits.dim() else result.reshape(logits.shape)


def _repeat_for_images(grad: Tensor, groups: int, images: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the gradient of the counts, and its strides for counts, images and classes."""
    classes = grad.shape[-1]
    if groups == 1:
        return grad.contiguous(), (classes, 0, 1)
    repeated = grad.reshape(4, groups, 1, classes).expand(4, groups, images // groups, classes)
    return repeated.reshape(4, images, classes).contiguous(), (images * classes, classes, 1)


def _programs(batch: _Batch, samples_per_tile: int, shape: Launch) -> int:
    """Return the number of programs per image, which share its tiles."""
    images, samples, _ = batch.shape
    return min(-(-samples // samples_per_tile), -(-shape.programs // images))


def _settings(
    step: StepAt, batch: _Batch, shape: Launch, kept: Tensor | None
) -> tuple[tuple[float, float], dict[str, Any]]:
    """Return the numbers of a step for the programs, and the settings that they are compiled for."""
    classes = batch.shape[2]
    is_dense, keeps = batch.strides[1:] == (classes, 1), kept is not None and kept.numel() > 0
    return _make_settings(step, classes, is_dense, batch.weighted, shape, keeps, classes >= SCATTERED)


@lru_cache(maxsize=256)
def _make_settings(
    step: StepAt, classes: int, is_dense: bool, is_weighted: bool, shape: Launch, keeps: bool, scatters: bool
) -> tuple[tuple[float, float], dict[str, Any]]:
    block = 1 << (classes - 1).bit_length()
    numbers, static = step_settings(step.kind, step.number, 0.5 if step.threshold is None else step.threshold)
    static = {
        "C": classes,
        "BLOCK": block,
        "SAMPLES": max(1, shape.tile // block),
        **static,
        "DYNAMIC": step.threshold is None,
        "WEIGHTED": is_weighted,
        "DENSE": is_dense,
        "SCATTERS": scatters,
        "STAGES": shape.stages,
        "KEEPS": keeps,
    }
    return numbers, static


@triton.jit
def _larger_two(a, a_next, b, b_next):
    return tl.maximum(a, b), tl.maximum(tl.minimum(a, b), tl.maximum(a_next, b_next))


@triton.jit
def _both_sums(a, a_other, b, b_other):
    return a + b, a_other + b_other


@triton.jit
def _two_largest(x):
    """Return the two largest numbers of each sample."""
    return tl.reduce((x, tl.full(x.shape, float("-inf"), tl.float32)), 1, _larger_two)


@triton.jit
def _sum_both(a, b):
    """Return the sums over the classes of two tiles, in one reduction."""
    return tl.reduce((a, b), 1, _both_sums)


@triton.jit
def _masses(p, t, number, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    mass, _ = masses(p, 1.0 - p, t, number, KIND, FROM_ONE)
    return mass


@triton.jit
def _threshold_terms(p, of_p, t, KIND: tl.constexpr):
    """Return what ``_of_threshold`` needs the sum of: for Linear only the class beyond b = 3t/2 counts separately."""
    if KIND == 0:
        return tl.where(p >= 1.5 * t, of_p, 0.0)
    else:
        return of_p


@triton.jit
def _of_threshold(inner, terms, t, largest, KIND: tl.constexpr):
    """Return the gradient with respect to the dynamic threshold.

    Up to b Linear is a function of p/t, beyond b of (1 - p)/(1 - b), and the other steps are functions of p - t.
    """
    if KIND == 0:
        return terms * (largest / t - 1.5 * (1.0 - largest) / (1.0 - 1.5 * t)) - inner / t
    else:
        return -terms


@triton.jit
def _samples(
    Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, C: tl.constexpr, WEIGHTED: tl.constexpr
):
    """Return the labels and weights of a tile's samples."""
    y = tl.load(Y + image * y_image + sample * y_sample, mask=inside, other=0).to(tl.int32)
    if WEIGHTED:
        w = tl.load(W + image * w_image + sample * w_sample, mask=inside, other=0.0).to(tl.float32)
    else:
        w = tl.where(inside, 1.0, 0.0)
    return y, tl.where(inside & ((y < 0) | (y >= C)), float("nan"), w)


@triton.jit
def _tile(image, sample, classes, image_stride, sample_stride, class_stride, C: tl.constexpr, DENSE: tl.constexpr):
    """Return the offsets of a tile; of dense rows the length is known when compiling, and loads become wider."""
    if DENSE:
        return image * image_stride + sample[:, None] * C + classes[None, :]
    return image * image_stride + sample[:, None] * sample_stride + classes[None, :].to(tl.int64) * class_stride


@triton.jit
def _logits(X, image, sample, inside, classes, x_image, x_sample, x_class, C: tl.constexpr, DENSE: tl.constexpr):
    """Return a tile of logits; logits of classes that do not exist are minus infinity."""
    place = X + _tile(image, sample, classes, x_image, x_sample, x_class, C, DENSE)
    x = tl.load(place, mask=inside[:, None] & (classes < C)[None, :], other=0.0).to(tl.float32)
    return tl.where((classes < C)[None, :], x, float("-inf"))


@triton.jit
def _add(mass, y, w, classes, tp, fp, fn, place, C: tl.constexpr, SCATTERS: tl.constexpr):
    """Add a tile's masses to the counts of its classes; masses of the true classes one by one or in a tile."""
    true = classes[None, :] == y[:, None]
    total, hit = _sum_both(mass, tl.where(true, mass, 0.0))
    scale = w / total
    hit, missed = hit * scale, tl.maximum(total - hit, 0.0) * scale
    fp += tl.where(true, 0.0, mass * scale[:, None])
    if SCATTERS:
        label = tl.where((y < 0) | (y >= C), 0, y)
        tl.atomic_add(place + label, hit, mask=w != 0.0, sem="relaxed")
        tl.atomic_add(place + 2 * C + label, missed, mask=w != 0.0, sem="relaxed")
    else:
        tp += tl.where(true, hit[:, None], 0.0)
        fn += tl.where(true, missed[:, None], 0.0)
    return tp, fp, fn, total


@triton.jit
def counts_kernel(
    X, Y, W, Partial, Weights, Kept, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, number, threshold,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, DENSE: tl.constexpr,
    SCATTERS: tl.constexpr, STAGES: tl.constexpr, KEEPS: tl.constexpr,
):  # fmt: skip
    """Write tp, fp, fn into Partial[images * programs, 3, C] and weights into Weights; tiles are dealt to programs.

    Kept[4, images, samples] gets what ``gradient_kernel`` needs of each sample: its two largest logits, one over the
    sum of its exponentials, and the sum of its decisions.
    """
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    classes = tl.arange(0, BLOCK)
    tp = tl.zeros((SAMPLES, BLOCK), tl.float32)
    fp = tl.zeros((SAMPLES, BLOCK), tl.float32)
    fn = tl.zeros((SAMPLES, BLOCK), tl.float32)
    weights = tl.zeros((SAMPLES,), tl.float32)
    row = image * programs + program
    output = Partial + row * (3 * C)
    if SCATTERS:
        nothing = tl.zeros((BLOCK,), tl.float32)
        tl.store(output + classes, nothing, mask=classes < C)
        tl.store(output + 2 * C + classes, nothing, mask=classes < C)
        tl.debug_barrier()  # before the first addition
    for tile in tl.range(program, tl.cdiv(samples, SAMPLES), programs, num_stages=STAGES):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        x = _logits(X, image, sample, inside, classes, x_image, x_sample, x_class, C, DENSE)
        y, w = _samples(Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, C, WEIGHTED)
        if DYNAMIC:
            highest, next_highest = _two_largest(x)
            e = tl.exp(x - highest[:, None])
            one_over_sum = 1.0 / tl.sum(e, 1)
            t = ((1.0 + tl.exp(next_highest - highest)) * (0.5 * one_over_sum))[:, None]
        else:
            e = tl.exp(x - tl.max(x, 1)[:, None])
            one_over_sum = 1.0 / tl.sum(e, 1)
            t = threshold
        p = e * one_over_sum[:, None]
        mass = tl.where((classes < C)[None, :], _masses(p, t, number, KIND, FROM_ONE), 0.0)
        tp, fp, fn, total = _add(mass, y, w, classes, tp, fp, fn, output, C, SCATTERS)
        if KEEPS:
            place, size = Kept + image * samples + sample, tl.num_programs(1).to(tl.int64) * samples
            tl.store(place, highest, mask=inside)
            tl.store(place + size, next_highest, mask=inside)
            tl.store(place + 2 * size, one_over_sum, mask=inside)
            tl.store(place + 3 * size, total, mask=inside)
        weights += w
    tl.store(output + C + classes, tl.sum(fp, 0), mask=classes < C)
    if not SCATTERS:
        tl.store(output + classes, tl.sum(tp, 0), mask=classes < C)
        tl.store(output + 2 * C + classes, tl.sum(fn, 0), mask=classes < C)
    tl.store(Weights + row, tl.sum(weights))


@triton.jit
def finish_kernel(Partial, Weights, Counts, rows, C: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Add the partial sums of a group's rows in float64 into Counts[4, groups, C]; tn is the rest of the weights."""
    block, group, groups = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    classes = block * BLOCK + tl.arange(0, BLOCK)
    tp = tl.zeros((ROWS, BLOCK), tl.float64)
    fp = tl.zeros((ROWS, BLOCK), tl.float64)
    fn = tl.zeros((ROWS, BLOCK), tl.float64)
    weights = tl.zeros((ROWS,), tl.float64)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row < rows
        row = group.to(tl.int64) * rows + row
        place = Partial + row[:, None] * (3 * C) + classes[None, :]
        both = inside[:, None] & (classes < C)[None, :]
        tp += tl.load(place, mask=both, other=0.0).to(tl.float64)
        fp += tl.load(place + C, mask=both, other=0.0).to(tl.float64)
        fn += tl.load(place + 2 * C, mask=both, other=0.0).to(tl.float64)
        weights += tl.load(Weights + row, mask=inside, other=0.0).to(tl.float64)
    tp_sum, fp_sum, fn_sum = tl.sum(tp, 0), tl.sum(fp, 0), tl.sum(fn, 0)
    tn_sum = tl.sum(weights) - tp_sum - fp_sum - fn_sum
    tn_sum = tl.where(tn_sum < 0.0, 0.0, tn_sum)  # rounding; NaN stays NaN
    place, size = Counts + group * C + classes, groups * C
    tl.store(place, tp_sum.to(tl.float32), mask=classes < C)
    tl.store(place + size, fp_sum.to(tl.float32), mask=classes < C)
    tl.store(place + 2 * size, fn_sum.to(tl.float32), mask=classes < C)
    tl.store(place + 3 * size, tn_sum.to(tl.float32), mask=classes < C)


@triton.jit
def _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C: tl.constexpr):
    """Return the gradients of a class's decisions for its true samples and for the others."""
    place = Grad + image * grad_image + classes * grad_class
    tp = tl.load(place, mask=classes < C, other=0.0)
    fp = tl.load(place + grad_count, mask=classes < C, other=0.0)
    fn = tl.load(place + 2 * grad_count, mask=classes < C, other=0.0)
    tn = tl.load(place + 3 * grad_count, mask=classes < C, other=0.0)
    return tp - fn, fp - tn


@triton.jit
def gradient_kernel(
    X, Y, W, Grad, Kept, Result, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, grad_count, grad_image, grad_class,
    out_image, out_sample, out_class, number, threshold,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, DENSE: tl.constexpr,
    SCATTERS: tl.constexpr, STAGES: tl.constexpr, KEEPS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit; tiles are dealt to programs."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    classes = tl.arange(0, BLOCK)
    exists = (classes < C)[None, :]
    if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
    for tile in tl.range(program, tl.cdiv(samples, SAMPLES), programs, num_stages=STAGES):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        x = _logits(X, image, sample, inside, classes, x_image, x_sample, x_class, C, DENSE)
        y, w = _samples(Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, C, WEIGHTED)
        if KEEPS:
            place, size = Kept + image * samples + sample, tl.num_programs(1).to(tl.int64) * samples
            highest = tl.load(place, mask=inside, other=0.0)
            next_highest = tl.load(place + size, mask=inside, other=0.0)
            one_over_sum = tl.load(place + 2 * size, mask=inside, other=1.0)
            total = tl.load(place + 3 * size, mask=inside, other=1.0)
            e = tl.exp(x - highest[:, None])
            is_second = tl.where(x == next_highest[:, None], 1.0, 0.0)
        elif DYNAMIC:
            highest, next_highest = _two_largest(x)
            e = tl.exp(x - highest[:, None])
            is_second = tl.where(x == next_highest[:, None], 1.0, 0.0)
            sum_of_e, seconds = _sum_both(e, is_second)
            one_over_sum = 1.0 / sum_of_e
        else:
            e = tl.exp(x - tl.max(x, 1)[:, None])
            one_over_sum = 1.0 / tl.sum(e, 1)
        if DYNAMIC:
            t = (1.0 + tl.exp(next_highest - highest)) * (0.5 * one_over_sum)
        else:
            t = tl.full((SAMPLES,), 0.0, tl.float32) + threshold
        p = e * one_over_sum[:, None]
        mass = tl.where(exists, _masses(p, t[:, None], number, KIND, FROM_ONE), 0.0)
        of_decided = tl.where(classes[None, :] == y[:, None], if_true[None, :], if_other[None, :])
        if KEEPS:
            seconds, mean = _sum_both(is_second, of_decided * mass)
        else:
            total, mean = _sum_both(mass, of_decided * mass)
        of_mass = tl.where(exists, (of_decided - (mean / total)[:, None]) * (w / total)[:, None], 0.0)
        of_p = of_mass * slope(p, 1.0 - p, t[:, None], number, KIND, FROM_ONE)
        if DYNAMIC:
            # Half of the threshold is the largest probability and half the second; equal ones have equal shares.
            share = tl.where(highest > next_highest, 0.5, 1.0) / seconds
            shares = tl.where(x > next_highest[:, None], 0.5, is_second * share[:, None])
            inner, terms = _sum_both(p * of_p, _threshold_terms(p, of_p, t[:, None], KIND))
            of_threshold = _of_threshold(inner, terms, t, one_over_sum, KIND)
            result = p * (of_p + of_threshold[:, None] * shares - (inner + of_threshold * t)[:, None])
        else:
            result = p * (of_p - tl.sum(p * of_p, 1)[:, None])
        place = Result + _tile(image, sample, classes, out_image, out_sample, out_class, C, DENSE)
        tl.store(place, result.to(Result.dtype.element_ty), mask=inside[:, None] & exists)
