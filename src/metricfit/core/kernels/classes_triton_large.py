"""The Triton programs of ``classes_triton`` for more classes than one block holds."""
# mypy: ignore-errors
# ruff: noqa: RUF059

import triton
import triton.language as tl

from metricfit.core.kernels.classes_triton_source import (
    _add,
    _coefficients,
    _logits,
    _samples,
    _slopes,
    _step,
    _tile,
    _write,
)


@triton.jit
def _scan(
    X, image, sample, inside, counted, x_image, x_sample, x_class, threshold,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, DYNAMIC: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Return each sample's largest logit, 1 / sum of exponentials, threshold, and the classes of the two largest."""
    highest = tl.full((SAMPLES,), float("-inf"), tl.float32)
    next_highest = tl.full((SAMPLES,), float("-inf"), tl.float32)
    first = tl.full((SAMPLES,), -1, tl.int32)
    second = tl.full((SAMPLES,), -1, tl.int32)
    total = tl.zeros((SAMPLES,), tl.float32)
    for start in range(0, C, BLOCK):
        classes = start + tl.arange(0, BLOCK)
        x = _logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
        block_highest, block_first = tl.max(x, 1, return_indices=True)
        block_first += start
        if DYNAMIC:
            rest = tl.where(classes[None, :] == block_first[:, None], float("-inf"), x)
            block_next, block_second = tl.max(rest, 1, return_indices=True)
            block_second += start
            # The two largest of the block against those of the blocks before; equal ones keep the first class.
            higher = block_highest > highest
            keeps_next = tl.where(higher, highest >= block_next, next_highest >= block_highest)
            candidate, candidate_class = tl.where(higher, highest, next_highest), tl.where(higher, first, second)
            other = tl.where(higher, block_next, block_highest)
            other_class = tl.where(higher, block_second, block_first)
            next_highest = tl.where(keeps_next, candidate, other)
            second = tl.where(keeps_next, candidate_class, other_class)
            first = tl.where(higher, block_first, first)
        new = tl.maximum(highest, block_highest)
        reference = tl.where(new == float("-inf"), 0.0, new)  # minus infinity less itself would be NaN
        total = total * tl.exp(highest - reference) + tl.sum(tl.exp(x - reference[:, None]), 1)
        highest = new
    one_over_sum = 1.0 / total
    if DYNAMIC:
        t = (1.0 + tl.exp(next_highest - highest)) * (0.5 * one_over_sum)
    else:
        t = tl.full((SAMPLES,), 0.0, tl.float32) + threshold
    return highest, one_over_sum, t, first, second


@triton.jit
def _masses(
    X, image, sample, inside, counted, classes, x_image, x_sample, x_class, highest, one_over_sum, t, number,
    C: tl.constexpr, KIND: tl.constexpr, FROM_ONE: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Return probabilities and masses of a block of classes."""
    x = _logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
    p = tl.exp(x - highest[:, None]) * one_over_sum[:, None]
    return p, tl.where((classes < C)[None, :], _step(p, t[:, None], number, KIND, FROM_ONE), 0.0)


@triton.jit
def scores_kernel(
    X, Y, W, Scores, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Write the largest logit, 1 / sum of exponentials, threshold and sum of masses into Scores[4, images, samples]."""
    image = tl.program_id(1).to(tl.int64)
    sample = (tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
    inside = sample < samples
    y, w, counted = _samples(
        Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, False, IGNORES
    )
    highest, one_over_sum, t, first, second = _scan(
        X, image, sample, inside, counted, x_image, x_sample, x_class, threshold, C, BLOCK, SAMPLES, DYNAMIC, DENSE
    )
    total = tl.zeros((SAMPLES,), tl.float32)
    for start in range(0, C, BLOCK):
        classes = start + tl.arange(0, BLOCK)
        p, mass = _masses(
            X, image, sample, inside, counted, classes, x_image, x_sample, x_class, highest, one_over_sum, t, number,
            C, KIND, FROM_ONE, DENSE,
        )  # fmt: skip
        total += tl.sum(mass, 1)
    place, size = Scores + image * samples + sample, tl.num_programs(1).to(tl.int64) * samples
    tl.store(place, highest, mask=inside)
    tl.store(place + size, one_over_sum, mask=inside)
    tl.store(place + 2 * size, t, mask=inside)
    tl.store(place + 3 * size, total, mask=inside)


@triton.jit
def sums_kernel(
    X, Y, W, Scores, Partial, Weights, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Write the partial sums of ``counts_kernel`` for one block of classes per program."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    classes = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    tp = tl.zeros((SAMPLES, BLOCK), tl.float32)
    fp = tl.zeros((SAMPLES, BLOCK), tl.float32)
    fn = tl.zeros((SAMPLES, BLOCK), tl.float32)
    weights = tl.zeros((SAMPLES,), tl.float32)
    size = tl.num_programs(1).to(tl.int64) * samples
    for tile in range(program, tl.cdiv(samples, SAMPLES), programs):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        place = Scores + image * samples + sample
        highest = tl.load(place, mask=inside, other=0.0)
        one_over_sum = tl.load(place + size, mask=inside, other=0.0)
        t = tl.load(place + 2 * size, mask=inside, other=0.5)
        total = tl.load(place + 3 * size, mask=inside, other=1.0)
        p, mass = _masses(
            X, image, sample, inside, counted, classes, x_image, x_sample, x_class, highest, one_over_sum, t, number,
            C, KIND, FROM_ONE, DENSE,
        )  # fmt: skip
        tp, fp, fn = _add(mass, total, y, w, classes, tp, fp, fn)
        weights += w
    row = image * programs + program
    _write(Partial, Weights, row, tp, fp, fn, weights, classes, C, tl.program_id(2) == 0)


@triton.jit
def large_gradient_kernel(
    X, Y, W, Grad, Result, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, grad_count, grad_image, grad_class,
    out_image, out_sample, out_class, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit, in four passes over the classes of a tile."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    for tile in range(program, tl.cdiv(samples, SAMPLES), programs):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        highest, one_over_sum, t, first, second = _scan(
            X, image, sample, inside, counted, x_image, x_sample, x_class, threshold, C, BLOCK, SAMPLES, DYNAMIC, DENSE
        )
        total = tl.zeros((SAMPLES,), tl.float32)
        mean = tl.zeros((SAMPLES,), tl.float32)
        for start in range(0, C, BLOCK):
            classes = start + tl.arange(0, BLOCK)
            if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
            p, mass = _masses(
                X, image, sample, inside, counted, classes, x_image, x_sample, x_class, highest, one_over_sum, t,
                number, C, KIND, FROM_ONE, DENSE,
            )  # fmt: skip
            total += tl.sum(mass, 1)
            true = classes[None, :] == y[:, None]
            mean += tl.sum(tl.where(true, if_true[None, :], if_other[None, :]) * mass, 1)
        mean = mean / total
        scale = w / total
        inner = tl.zeros((SAMPLES,), tl.float32)
        of_threshold = tl.zeros((SAMPLES,), tl.float32)
        largest_p = tl.zeros((SAMPLES,), tl.float32)
        for start in range(0, C, BLOCK):
            classes = start + tl.arange(0, BLOCK)
            p, of_mass, slope, threshold_slope = _of_block(
                X, Grad, image, sample, inside, counted, y, classes, x_image, x_sample, x_class,
                grad_count, grad_image, grad_class, highest, one_over_sum, t, mean, scale, number,
                C, KIND, FROM_ONE, DENSE,
            )  # fmt: skip
            inner += tl.sum(p * of_mass * slope, 1)
            if DYNAMIC:
                of_threshold += tl.sum(of_mass * threshold_slope, 1)
                largest = (classes[None, :] == first[:, None]) | (classes[None, :] == second[:, None])
                largest_p += tl.sum(tl.where(largest, p, 0.0), 1)
        half = 0.5 * of_threshold
        inner += half * largest_p
        for start in range(0, C, BLOCK):
            classes = start + tl.arange(0, BLOCK)
            p, of_mass, slope, threshold_slope = _of_block(
                X, Grad, image, sample, inside, counted, y, classes, x_image, x_sample, x_class,
                grad_count, grad_image, grad_class, highest, one_over_sum, t, mean, scale, number,
                C, KIND, FROM_ONE, DENSE,
            )  # fmt: skip
            largest = (classes[None, :] == first[:, None]) | (classes[None, :] == second[:, None])
            of_p = of_mass * slope + tl.where(largest, half[:, None], 0.0)
            result = p * (of_p - inner[:, None])
            place = Result + _tile(image, sample, classes, out_image, out_sample, out_class, C, DENSE)
            tl.store(place, result.to(Result.dtype.element_ty), mask=inside[:, None] & (classes < C)[None, :])


@triton.jit
def _of_block(
    X, Grad, image, sample, inside, counted, y, classes, x_image, x_sample, x_class, grad_count, grad_image, grad_class,
    highest, one_over_sum, t, mean, scale, number,
    C: tl.constexpr, KIND: tl.constexpr, FROM_ONE: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Return probabilities, the gradients of the masses, and the slopes of the step, of a block of classes."""
    x = _logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
    p = tl.exp(x - highest[:, None]) * one_over_sum[:, None]
    if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
    of_decided = tl.where(classes[None, :] == y[:, None], if_true[None, :], if_other[None, :])
    of_mass = (of_decided - mean[:, None]) * scale[:, None]
    of_mass = tl.where((classes < C)[None, :], of_mass, 0.0)
    slope, threshold_slope = _slopes(p, t[:, None], number, KIND, FROM_ONE)
    return p, of_mass, slope, threshold_slope
