"""The Triton programs of ``classes_triton``; imported only if there is a CUDA device.

A tile is ``(SAMPLES, BLOCK)``: samples of one image times classes. Strides say where its logits are, so that classes
may be the last axis or the middle one. ``BLOCK`` covers all classes in ``counts_kernel`` and ``gradient_kernel``; the
``large`` programs walk over blocks of classes instead. Ignored samples have the weight 0 and logits of 0, because 0
times NaN is NaN. A label out of range makes the weight NaN, and with it the loss.
"""
# mypy: ignore-errors
# ruff: noqa: RUF059
# ruff: noqa: SIM108

import triton
import triton.language as tl

from metricfit.core.kernels.triton_source import _raised_cosine, _sigmoid


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
def _step(p, t, number, KIND: tl.constexpr, DYNAMIC: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the soft decision at a threshold; for Linear ``t`` is at most 1/2, the distance from 1 if FROM_ONE."""
    if KIND == 0:
        over_t = 1.0 / t
        over_c = 1.0 / (1.0 - 1.5 * t)
        if DYNAMIC:  # the terms do not cancel, because p is at most 2t (see classes_cpu)
            first, middle = 2.0 * number * over_t, (1.0 - 2.0 * number) * over_t
            mass = first * p + (middle - first) * tl.maximum(p - 0.5 * t, 0.0)
            mass += (number * over_c - middle) * tl.maximum(p - 1.5 * t, 0.0)
        else:
            if FROM_ONE:
                near, far = 1.0 - p, p
            else:
                near, far = p, 1.0 - p
            lower = tl.minimum(near * (2.0 * over_t), 1.0)
            ramp = tl.minimum(tl.maximum((near - 0.5 * t) * over_t, 0.0), 1.0)
            upper = tl.minimum(far * over_c, 1.0)
            if FROM_ONE:
                mass = (1.0 - 2.0 * number) * (1.0 - ramp) + number * (upper + (1.0 - lower))
            else:
                mass = (1.0 - 2.0 * number) * ramp + number * (lower + (1.0 - upper))
    elif KIND == 1:
        mass = _sigmoid(number * (p - t))
    elif KIND == 2:
        mass = p
    else:
        mass = _raised_cosine(tl.minimum(tl.maximum((p - t) * (1.0 / number) + 1.0, 0.0), 2.0))
    return mass


@triton.jit
def _slope(p, t, number, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the derivative of the step with respect to p."""
    if KIND == 0:
        if FROM_ONE:
            near = 1.0 - p
        else:
            near = p
        first, middle, last = 2.0 * number / t, (1.0 - 2.0 * number) / t, number / (1.0 - 1.5 * t)
        slope = tl.where(near <= 0.5 * t, first, tl.where(near >= 1.5 * t, last, middle))
    elif KIND == 1:
        slope = number * _sigmoid(number * (p - t)) * _sigmoid(number * (t - p))
    elif KIND == 2:
        slope = tl.full(p.shape, 1.0, tl.float32)
    else:
        v = tl.minimum(tl.maximum((p - t) * (1.0 / number) + 1.0, 0.0), 2.0)
        slope = (1.0 - tl.cos(3.141592653589793 * v)) / (2.0 * number)
    return slope


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
def _logits(X, image, sample, inside, classes, x_image, x_sample, x_class, C: tl.constexpr, DENSE: tl.constexpr):
    """Return a tile of logits; those of classes that do not exist are minus infinity."""
    place = X + _tile(image, sample, classes, x_image, x_sample, x_class, C, DENSE)
    x = tl.load(place, mask=inside[:, None] & (classes < C)[None, :], other=0.0).to(tl.float32)
    return tl.where((classes < C)[None, :], x, float("-inf"))


@triton.jit
def _add(mass, y, w, classes, tp, fp, fn, place, C: tl.constexpr, SCATTERS: tl.constexpr):
    """Add a tile's masses to the counts of its classes, those of the true classes one by one or in a tile."""
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
def _write(place, Weights, row, tp, fp, fn, weights, classes, C: tl.constexpr, SCATTERS: tl.constexpr, first):
    tl.store(place + C + classes, tl.sum(fp, 0), mask=classes < C)
    if not SCATTERS:
        tl.store(place + classes, tl.sum(tp, 0), mask=classes < C)
        tl.store(place + 2 * C + classes, tl.sum(fn, 0), mask=classes < C)
    if first:
        tl.store(Weights + row, tl.sum(weights))


@triton.jit
def counts_kernel(
    X, Y, W, Partial, Weights, Kept, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
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
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        if IGNORES:
            x = tl.where(counted[:, None], x, tl.where(classes < C, 0.0, float("-inf"))[None, :])
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
        mass = tl.where((classes < C)[None, :], _step(p, t, number, KIND, DYNAMIC, FROM_ONE), 0.0)
        tp, fp, fn, total = _add(mass, y, w, classes, tp, fp, fn, output, C, SCATTERS)
        if KEEPS:
            place, size = Kept + image * samples + sample, tl.num_programs(1).to(tl.int64) * samples
            tl.store(place, highest, mask=inside)
            tl.store(place + size, next_highest, mask=inside)
            tl.store(place + 2 * size, one_over_sum, mask=inside)
            tl.store(place + 3 * size, total, mask=inside)
        weights += w
    _write(output, Weights, row, tp, fp, fn, weights, classes, C, SCATTERS, True)


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
    X, Y, W, Grad, Scale, Kept, Result, samples,
    x_image, x_sample, x_class, y_image, y_sample, w_image, w_sample, grad_count, grad_image, grad_class,
    out_image, out_sample, out_class, number, threshold, ignore,
    C: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, KIND: tl.constexpr, DYNAMIC: tl.constexpr,
    FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, IGNORES: tl.constexpr, DENSE: tl.constexpr,
    SCATTERS: tl.constexpr, STAGES: tl.constexpr, KEEPS: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit, multiplied by Scale; tiles are dealt to programs."""
    program, programs, image = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    classes = tl.arange(0, BLOCK)
    exists = (classes < C)[None, :]
    if_true, if_other = _coefficients(Grad, image, classes, grad_count, grad_image, grad_class, C)
    for tile in tl.range(program, tl.cdiv(samples, SAMPLES), programs, num_stages=STAGES):
        sample = (tile * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        inside = sample < samples
        x = _logits(X, image, sample, inside, classes, x_image, x_sample, x_class, C, DENSE)
        y, w, counted = _samples(
            Y, W, image, sample, inside, y_image, y_sample, w_image, w_sample, ignore, C, WEIGHTED, IGNORES
        )
        if SCALED:
            w = w * tl.load(Scale)
        if IGNORES:
            x = tl.where(counted[:, None], x, tl.where(classes < C, 0.0, float("-inf"))[None, :])
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
        mass = tl.where(exists, _step(p, t[:, None], number, KIND, DYNAMIC, FROM_ONE), 0.0)
        of_decided = tl.where(classes[None, :] == y[:, None], if_true[None, :], if_other[None, :])
        if KEEPS:
            seconds, mean = _sum_both(is_second, of_decided * mass)
        else:
            total, mean = _sum_both(mass, of_decided * mass)
        of_mass = tl.where(exists, (of_decided - (mean / total)[:, None]) * (w / total)[:, None], 0.0)
        of_p = of_mass * _slope(p, t[:, None], number, KIND, FROM_ONE)
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


# More classes than one block holds: the programs walk over blocks of classes.


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
