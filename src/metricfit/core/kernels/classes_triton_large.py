"""The Triton programs of ``classes_triton`` for more classes than one block holds."""
# mypy: ignore-errors
# ruff: noqa: RUF059

import triton
import triton.language as tl

from metricfit.core.kernels.classes_triton_source import (
    _coefficients,
    _larger_two,
    _logits,
    _of_threshold,
    _samples,
    _slope,
    _step,
    _sum_both,
    _threshold_terms,
    _tile,
    _two_largest,
    _write,
)


@triton.jit
def _counted_logits(
    X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C: tl.constexpr, DENSE: tl.constexpr
):
    """Return a block of logits; those of samples that do not count are 0."""
    x = _logits(X, image, sample, inside, classes, x_image, x_sample, x_class, C, DENSE)
    return tl.where(counted[:, None], x, tl.where(classes < C, 0.0, float("-inf"))[None, :])


@triton.jit
def _scan(
    X, image, sample, inside, counted, x_image, x_sample, x_class, threshold,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, DYNAMIC: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Return the two largest logits of each sample, 1 / sum of exponentials, and the threshold."""
    highest = tl.full((SAMPLES,), float("-inf"), tl.float32)
    next_highest = tl.full((SAMPLES,), float("-inf"), tl.float32)
    total = tl.zeros((SAMPLES,), tl.float32)
    for start in range(0, C, BLOCK):
        classes = start + tl.arange(0, BLOCK)
        x = _counted_logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
        block_highest, block_next = _two_largest(x)
        new, next_highest = _larger_two(highest, next_highest, block_highest, block_next)
        reference = tl.where(new == float("-inf"), 0.0, new)  # minus infinity less itself would be NaN
        total = total * tl.exp(highest - reference) + tl.sum(tl.exp(x - reference[:, None]), 1)
        highest = new
    one_over_sum = 1.0 / total
    if DYNAMIC:
        t = (1.0 + tl.exp(next_highest - highest)) * (0.5 * one_over_sum)
    else:
        t = tl.full((SAMPLES,), 0.0, tl.float32) + threshold
    return highest, next_highest, one_over_sum, t


@triton.jit
def _masses(
    x, classes, highest, one_over_sum, t, number,
    C: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr, FROM_ONE: tl.constexpr,
):  # fmt: skip
    """Return probabilities and masses of a block of classes."""
    p = tl.exp(x - highest[:, None]) * one_over_sum[:, None]
    return p, tl.where((classes < C)[None, :], _step(p, t[:, None], number, KIND, DYNAMIC, FROM_ONE), 0.0)


@triton.jit
def scores_kernel(
    X, Y, W, Scores, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
    SCATTERS: tl.constexpr, STAGES: tl.constexpr, KEEPS: tl.constexpr,
):  # fmt: skip
    """Write the largest logit, 1 / sum of exponentials, threshold and sum of masses into Scores[4, images, samples]."""
    image = tl.program_id(1).to(tl.int64)
    sample = (tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
    inside = sample < samples
    y, w, counted = _samples(
        Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, False, IGNORES
    )
    highest, next_highest, one_over_sum, t = _scan(
        X, image, sample, inside, counted, x_image, x_sample, x_class, threshold, C, BLOCK, SAMPLES, DYNAMIC, DENSE
    )
    total = tl.zeros((SAMPLES,), tl.float32)
    for start in range(0, C, BLOCK):
        classes = start + tl.arange(0, BLOCK)
        x = _counted_logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
        p, mass = _masses(x, classes, highest, one_over_sum, t, number, C, KIND, DYNAMIC, FROM_ONE)
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
    SCATTERS: tl.constexpr, STAGES: tl.constexpr, KEEPS: tl.constexpr,
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
        x = _counted_logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
        p, mass = _masses(x, classes, highest, one_over_sum, t, number, C, KIND, DYNAMIC, FROM_ONE)
        true = classes[None, :] == y[:, None]
        scale = (w / total)[:, None]
        tp += tl.where(true, mass * scale, 0.0)
        fp += tl.where(true, 0.0, mass * scale)
        fn += tl.where(true, tl.maximum(total[:, None] - mass, 0.0) * scale, 0.0)
        weights += w
    row = image * programs + program
    output = Partial + row * (3 * C)
    _write(output, Weights, row, tp, fp, fn, weights, classes, C, False, tl.program_id(2) == 0)


@triton.jit
def large_gradient_kernel(
    X, Y, W, Grad, Scale, Kept, Result, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, grad_count, grad_image, grad_class,
    out_image, out_sample, out_class, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
    SCATTERS: tl.constexpr, STAGES: tl.constexpr, KEEPS: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit, multiplied by Scale, in four passes over the classes of a tile."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    for tile in range(program, tl.cdiv(samples, SAMPLES), programs):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        if SCALED:
            w = w * tl.load(Scale)
        highest, next_highest, one_over_sum, t = _scan(
            X, image, sample, inside, counted, x_image, x_sample, x_class, threshold, C, BLOCK, SAMPLES, DYNAMIC, DENSE
        )
        total = tl.zeros((SAMPLES,), tl.float32)
        mean = tl.zeros((SAMPLES,), tl.float32)
        seconds = tl.zeros((SAMPLES,), tl.float32)
        for start in range(0, C, BLOCK):
            classes = start + tl.arange(0, BLOCK)
            x = _counted_logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
            p, mass = _masses(x, classes, highest, one_over_sum, t, number, C, KIND, DYNAMIC, FROM_ONE)
            if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
            of_decided = tl.where(classes[None, :] == y[:, None], if_true[None, :], if_other[None, :])
            block_total, block_mean = _sum_both(mass, of_decided * mass)
            total += block_total
            mean += block_mean
            if DYNAMIC:
                seconds += tl.sum(tl.where(x == next_highest[:, None], 1.0, 0.0), 1)
        mean = mean / total
        scale = w / total
        inner = tl.zeros((SAMPLES,), tl.float32)
        terms = tl.zeros((SAMPLES,), tl.float32)
        for start in range(0, C, BLOCK):
            classes = start + tl.arange(0, BLOCK)
            x = _counted_logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
            p, of_p = _of_block(
                x, Grad, image, y, classes, grad_count, grad_image, grad_class, highest, one_over_sum, t, mean, scale,
                number, C, KIND, FROM_ONE,
            )  # fmt: skip
            block_inner, block_terms = _sum_both(p * of_p, _threshold_terms(p, of_p, t[:, None], KIND))
            inner += block_inner
            terms += block_terms
        of_threshold = tl.zeros((SAMPLES,), tl.float32)
        share = tl.zeros((SAMPLES,), tl.float32)
        if DYNAMIC:
            of_threshold = _of_threshold(inner, terms, t, one_over_sum, KIND)
            inner += of_threshold * t
            share = tl.where(highest > next_highest, 0.5, 1.0) / seconds
        for start in range(0, C, BLOCK):
            classes = start + tl.arange(0, BLOCK)
            x = _counted_logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
            p, of_p = _of_block(
                x, Grad, image, y, classes, grad_count, grad_image, grad_class, highest, one_over_sum, t, mean, scale,
                number, C, KIND, FROM_ONE,
            )  # fmt: skip
            if DYNAMIC:
                is_second = tl.where(x == next_highest[:, None], share[:, None], 0.0)
                of_p += of_threshold[:, None] * tl.where(x > next_highest[:, None], 0.5, is_second)
            result = p * (of_p - inner[:, None])
            place = Result + _tile(image, sample, classes, out_image, out_sample, out_class, C, DENSE)
            tl.store(place, result.to(Result.dtype.element_ty), mask=inside[:, None] & (classes < C)[None, :])


@triton.jit
def _of_block(
    x, Grad, image, y, classes, grad_count, grad_image, grad_class, highest, one_over_sum, t, mean, scale, number,
    C: tl.constexpr, KIND: tl.constexpr, FROM_ONE: tl.constexpr,
):  # fmt: skip
    """Return probabilities of a block of classes and their gradients, without that of the threshold."""
    p = tl.exp(x - highest[:, None]) * one_over_sum[:, None]
    if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
    of_decided = tl.where(classes[None, :] == y[:, None], if_true[None, :], if_other[None, :])
    of_mass = tl.where((classes < C)[None, :], (of_decided - mean[:, None]) * scale[:, None], 0.0)
    return p, of_mass * _slope(p, t[:, None], number, KIND, FROM_ONE)
