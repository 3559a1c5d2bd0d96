"""The Triton programs of ``classes_triton``; imported only if there is a CUDA device.

A tile is ``(SAMPLES, BLOCK)``: samples of one image times classes. Strides say where its logits are, so that classes
may be the last axis or the middle one. ``BLOCK`` covers all classes in ``counts_kernel`` and ``gradient_kernel``; the
``large`` programs walk over blocks of classes instead. Ignored samples have the weight 0 and logits of 0, because 0
times NaN is NaN. A label out of range makes the weight NaN, and with it the loss.
"""
# mypy: ignore-errors
# ruff: noqa: SIM108, RUF059

import triton
import triton.language as tl

from metricfit.core.kernels.triton_source import _raised_cosine, _sigmoid


@triton.jit
def _step(p, t, number, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the soft decision at a threshold; for Linear ``t`` is at most 1/2, the distance from 1 if FROM_ONE."""
    if KIND == 0:
        if FROM_ONE:
            near, far = 1.0 - p, p
        else:
            near, far = p, 1.0 - p
        lower = tl.minimum(near * (2.0 / t), 1.0)
        middle = tl.minimum(tl.maximum((near - 0.5 * t) / t, 0.0), 1.0)
        upper = tl.minimum(far / (1.0 - 1.5 * t), 1.0)
        if FROM_ONE:
            mass = (1.0 - 2.0 * number) * (1.0 - middle) + number * (upper + (1.0 - lower))
        else:
            mass = (1.0 - 2.0 * number) * middle + number * (lower + (1.0 - upper))
    elif KIND == 1:
        mass = _sigmoid(number * (p - t))
    elif KIND == 2:
        mass = p
    else:
        mass = _raised_cosine(tl.minimum(tl.maximum((p - t) / number + 1.0, 0.0), 2.0))
    return mass


@triton.jit
def _slopes(p, t, number, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the derivatives of the step with respect to p and to a dynamic threshold."""
    if KIND == 0:
        if FROM_ONE:
            near = 1.0 - p
        else:
            near = p
        a, b = 0.5 * t, 1.5 * t
        slope = tl.where(near <= a, number / a, tl.where(near >= b, number / (1.0 - b), (1.0 - 2.0 * number) / t))
        of_threshold = -slope * tl.where(p >= b, 1.5 * (1.0 - p) / (1.0 - b), p / t)
    elif KIND == 1:
        slope = number * _sigmoid(number * (p - t)) * _sigmoid(number * (t - p))
        of_threshold = -slope
    elif KIND == 2:
        slope = tl.full(p.shape, 1.0, tl.float32)
        of_threshold = tl.full(p.shape, 0.0, tl.float32)
    else:
        v = tl.minimum(tl.maximum((p - t) / number + 1.0, 0.0), 2.0)
        slope = (1.0 - tl.cos(3.141592653589793 * v)) / (2.0 * number)
        of_threshold = -slope
    return slope, of_threshold


@triton.jit
def _samples(
    Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore,
    C: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr,
):  # fmt: skip
    """Return the labels and weights of a tile's samples, and which of them count."""
    y = tl.load(Y + image * y_image + sample * y_sample, mask=inside, other=0).to(tl.int32)
    if IGNORES:
        counted = inside & (y != ignore)
    else:
        counted = inside
    if WEIGHTED:
        w = tl.load(W + image * w_image + sample * w_sample, mask=counted, other=0.0).to(tl.float32)
    else:
        w = tl.where(counted, 1.0, 0.0)
    w = tl.where(counted & ((y < 0) | (y >= C)), float("nan"), w)
    return y, w, counted


@triton.jit
def _tile(image, sample, classes, image_stride, sample_stride, class_stride, C: tl.constexpr, DENSE: tl.constexpr):
    """Return the offsets of a tile; of dense rows the length is known when compiling, and loads become wider."""
    if DENSE:
        return image * image_stride + sample[:, None] * C + classes[None, :]
    return image * image_stride + sample[:, None] * sample_stride + classes[None, :].to(tl.int64) * class_stride


@triton.jit
def _logits(
    X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C: tl.constexpr, DENSE: tl.constexpr
):
    """Return a tile of logits: 0 for samples that do not count, minus infinity for classes that do not exist."""
    place = X + _tile(image, sample, classes, x_image, x_sample, x_class, C, DENSE)
    x = tl.load(place, mask=inside[:, None] & (classes < C)[None, :], other=0.0).to(tl.float32)
    return tl.where((classes < C)[None, :], tl.where(counted[:, None], x, 0.0), float("-inf"))


@triton.jit
def _probabilities(x, classes, threshold, DYNAMIC: tl.constexpr):
    """Return softmax, threshold and the classes of the two largest logits, from tiles with all classes."""
    if DYNAMIC:
        highest, first = tl.max(x, 1, return_indices=True)
        rest = tl.where(classes[None, :] == first[:, None], float("-inf"), x)
        next_highest, second = tl.max(rest, 1, return_indices=True)
    else:
        highest = tl.max(x, 1)
    e = tl.exp(x - highest[:, None])
    one_over_sum = 1.0 / tl.sum(e, 1)
    p = e * one_over_sum[:, None]
    if DYNAMIC:
        t = ((1.0 + tl.exp(next_highest - highest)) * (0.5 * one_over_sum))[:, None]
    else:
        first, second = tl.full(highest.shape, -1, tl.int32), tl.full(highest.shape, -1, tl.int32)
        t = threshold
    return p, t, first, second


@triton.jit
def _add(mass, total, y, w, classes, tp, fp, fn):
    """Add a tile's masses to the counts of its classes."""
    scale = (w / total)[:, None]
    true = classes[None, :] == y[:, None]
    decided = mass * scale
    missed = tl.maximum(total[:, None] - mass, 0.0) * scale
    return tp + tl.where(true, decided, 0.0), fp + tl.where(true, 0.0, decided), fn + tl.where(true, missed, 0.0)


@triton.jit
def _write(Partial, Weights, row, tp, fp, fn, weights, classes, C: tl.constexpr, first):
    place = Partial + row * (3 * C) + classes
    tl.store(place, tl.sum(tp, 0), mask=classes < C)
    tl.store(place + C, tl.sum(fp, 0), mask=classes < C)
    tl.store(place + 2 * C, tl.sum(fn, 0), mask=classes < C)
    if first:
        tl.store(Weights + row, tl.sum(weights))


@triton.jit
def counts_kernel(
    X, Y, W, Partial, Weights, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Write tp, fp, fn into Partial[images * programs, 3, C] and weights into Weights; tiles are dealt to programs."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    classes = tl.arange(0, BLOCK)
    tp = tl.zeros((SAMPLES, BLOCK), tl.float32)
    fp = tl.zeros((SAMPLES, BLOCK), tl.float32)
    fn = tl.zeros((SAMPLES, BLOCK), tl.float32)
    weights = tl.zeros((SAMPLES,), tl.float32)
    for tile in range(program, tl.cdiv(samples, SAMPLES), programs):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        x = _logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
        p, t, first, second = _probabilities(x, classes, threshold, DYNAMIC)
        mass = tl.where((classes < C)[None, :], _step(p, t, number, KIND, FROM_ONE), 0.0)
        tp, fp, fn = _add(mass, tl.sum(mass, 1), y, w, classes, tp, fp, fn)
        weights += w
    _write(Partial, Weights, image * programs + program, tp, fp, fn, weights, classes, C, True)


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
    X, Y, W, Grad, Result, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, grad_count, grad_image, grad_class,
    out_image, out_sample, out_class, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit; tiles are dealt to programs."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    classes = tl.arange(0, BLOCK)
    exists = (classes < C)[None, :]
    if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
    for tile in range(program, tl.cdiv(samples, SAMPLES), programs):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        x = _logits(X, image, sample, inside, counted, classes, x_image, x_sample, x_class, C, DENSE)
        p, t, first, second = _probabilities(x, classes, threshold, DYNAMIC)
        mass = tl.where(exists, _step(p, t, number, KIND, FROM_ONE), 0.0)
        total = tl.sum(mass, 1)
        of_decided = tl.where(classes[None, :] == y[:, None], if_true[None, :], if_other[None, :])
        mean = tl.sum(of_decided * mass, 1) / total
        of_mass = tl.where(exists, (of_decided - mean[:, None]) * (w / total)[:, None], 0.0)
        slope, threshold_slope = _slopes(p, t, number, KIND, FROM_ONE)
        of_p = of_mass * slope
        if DYNAMIC:
            half = 0.5 * tl.sum(of_mass * threshold_slope, 1)
            largest = (classes[None, :] == first[:, None]) | (classes[None, :] == second[:, None])
            of_p += tl.where(largest, half[:, None], 0.0)
        result = p * (of_p - tl.sum(p * of_p, 1)[:, None])
        place = Result + _tile(image, sample, classes, out_image, out_sample, out_class, C, DENSE)
        tl.store(place, result.to(Result.dtype.element_ty), mask=inside[:, None] & exists)
