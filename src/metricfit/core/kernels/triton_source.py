"""The Triton programs of ``binary_triton``; imported only if there is a CUDA device."""
# mypy: ignore-errors
# ruff: noqa: SIM108

import triton
import triton.language as tl


@triton.jit
def _tails(x):
    against = tl.exp(-tl.minimum(tl.maximum(x, -80.0), 80.0))
    p = 1.0 / (1.0 + against)
    return p, against * p


@triton.jit
def _sigmoid(z):
    return 1.0 / (1.0 + tl.exp(-tl.minimum(tl.maximum(z, -80.0), 80.0)))


@triton.jit
def _raised_cosine(v):
    return tl.minimum(tl.maximum((v - tl.sin(3.141592653589793 * v) / 3.141592653589793) / 2.0, 0.0), 1.0)


@triton.jit
def _linear(p, q, a, over_a, over_width, over_c, delta, between):
    """Return the step at a threshold of at most 1/2 and its complement: sums of three ramps, none of them negative.

    ``over_a``, ``over_width`` and ``over_c`` are the reciprocals of the lengths of the pieces.
    """
    lower = tl.minimum(p * over_a, 1.0)
    middle = tl.minimum(tl.maximum((p - a) * over_width, 0.0), 1.0)
    upper = tl.minimum(q * over_c, 1.0)
    mass = between * middle + delta * (lower + (1.0 - upper))
    rest = between * (1.0 - middle) + delta * (upper + (1.0 - lower))
    return mass, rest


@triton.jit
def _masses(p, q, c0, c1, c2, c3, c4, c5, c6, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the soft decision and its complement."""
    if KIND == 0:
        if FROM_ONE:
            rest, mass = _linear(q, p, c0, c2, c3, c4, c5, c6)
        else:
            mass, rest = _linear(p, q, c0, c2, c3, c4, c5, c6)
    elif KIND == 1:
        mass = _sigmoid(c1 * (p - c0))
        rest = _sigmoid(c1 * (c0 - p))
    elif KIND == 2:
        mass = p
        rest = q
    else:
        v = tl.minimum(tl.maximum((p - c0) / c1 + 1.0, 0.0), 2.0)
        mass = _raised_cosine(v)
        rest = _raised_cosine(2.0 - v)
    return mass, rest


@triton.jit
def _slope(p, q, c0, c1, c7, c8, c9, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the derivative of the step by p; for Linear it is one of its three slopes, so that nothing cancels."""
    if KIND == 0:
        if FROM_ONE:
            near = q
        else:
            near = p
        slope = tl.where(near <= c0, c7, tl.where(near >= c1, c9, c8))
    elif KIND == 1:
        slope = c1 * _sigmoid(c1 * (p - c0)) * _sigmoid(c1 * (c0 - p))
    elif KIND == 2:
        slope = tl.full(p.shape, 1.0, tl.float32)
    else:
        v = tl.minimum(tl.maximum((p - c0) / c1 + 1.0, 0.0), 2.0)
        slope = (1.0 - tl.cos(3.141592653589793 * v)) / (2.0 * c1)
    return slope


@triton.jit
def add_masses(
    X, Y, W, offsets, inside, tp, fp, fn, tn,
    c0, c1, c2, c3, c4, c5, c6,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Add the masses of a block of samples to four counts per place of the block."""
    x = tl.load(X + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    y = tl.load(Y + offsets, mask=inside, other=0, eviction_policy="evict_first").to(tl.float32)
    if WEIGHTED:
        w = tl.load(W + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    else:
        w = tl.where(inside, 1.0, 0.0)
    positive = w * y
    negative = w * (1.0 - y)
    p, q = _tails(x)
    mass, rest = _masses(p, q, c0, c1, c2, c3, c4, c5, c6, KIND, FROM_ONE)
    return tp + positive * mass, fp + negative * mass, fn + positive * rest, tn + negative * rest


@triton.jit
def write_gradients(
    X, Y, W, Result, offsets, inside, of_positive, of_negative,
    c0, c1, c7, c8, c9,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of logits, from those of the mass of a positive and of a negative sample."""
    x = tl.load(X + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    y = tl.load(Y + offsets, mask=inside, other=0, eviction_policy="evict_first").to(tl.float32)
    p, q = _tails(x)
    # The slope times p q comes first: both factors can be extreme, but their product is not.
    slope = _slope(p, q, c0, c1, c7, c8, c9, KIND, FROM_ONE) * p * q
    grad = (y * of_positive + (1.0 - y) * of_negative) * slope
    if WEIGHTED:
        grad = grad * tl.load(W + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    tl.store(Result + offsets, grad.to(Result.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def counts_kernel(
    X, Y, W, Partial, n,
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, LOOPS: tl.constexpr,
):  # fmt: skip
    """Write four partial sums into Partial[4, rows, parts]; one program per LOOPS blocks of a row."""
    part, row = tl.program_id(0), tl.program_id(1)
    parts, rows = tl.num_programs(0), tl.num_programs(1)
    tp = tl.zeros([BLOCK], tl.float32)
    fp, fn, tn = tp, tp, tp
    for loop in tl.static_range(LOOPS):
        column = part.to(tl.int64) * (BLOCK * LOOPS) + loop * BLOCK + tl.arange(0, BLOCK)
        inside = column < n
        offsets = column + row.to(tl.int64) * n
        tp, fp, fn, tn = add_masses(
            X, Y, W, offsets, inside, tp, fp, fn, tn, c0, c1, c2, c3, c4, c5, c6, KIND, FROM_ONE, WEIGHTED
        )
    output = Partial + row * parts + part
    stride = rows * parts
    tl.store(output, tl.sum(tp))
    tl.store(output + stride, tl.sum(fp))
    tl.store(output + 2 * stride, tl.sum(fn))
    tl.store(output + 3 * stride, tl.sum(tn))


@triton.jit
def gradient_kernel(
    X, Y, W, Grad, Scale, Result, n,
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, LOOPS: tl.constexpr,
    SCALED: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit from those of the counts, Grad[4, rows]; one program per LOOPS blocks."""
    part, row = tl.program_id(0), tl.program_id(1)
    rows = tl.num_programs(1)
    of_positive = tl.load(Grad + row) - tl.load(Grad + 2 * rows + row)
    of_negative = tl.load(Grad + rows + row) - tl.load(Grad + 3 * rows + row)
    if SCALED:
        of_positive = of_positive * tl.load(Scale)
        of_negative = of_negative * tl.load(Scale)
    for loop in tl.static_range(LOOPS):
        column = part.to(tl.int64) * (BLOCK * LOOPS) + loop * BLOCK + tl.arange(0, BLOCK)
        inside = column < n
        offsets = column + row.to(tl.int64) * n
        write_gradients(
            X, Y, W, Result, offsets, inside, of_positive, of_negative, c0, c1, c7, c8, c9, KIND, FROM_ONE, WEIGHTED
        )
