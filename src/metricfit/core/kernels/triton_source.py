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
def counts_kernel(
    X, Y, W, Partial, n,
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write four partial sums into Partial[4, rows, blocks]; one program per block and row."""
    block, row = tl.program_id(0), tl.program_id(1)
    blocks, rows = tl.num_programs(0), tl.num_programs(1)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    offsets = offsets + row.to(tl.int64) * n
    x = tl.load(X + offsets, mask=inside, other=0.0)
    y = tl.load(Y + offsets, mask=inside, other=0.0)
    if WEIGHTED:
        w = tl.load(W + offsets, mask=inside, other=0.0)
    else:
        w = tl.where(inside, 1.0, 0.0)
    positive = w * y
    negative = w * (1.0 - y)
    p, q = _tails(x)
    mass, rest = _masses(p, q, c0, c1, c2, c3, c4, c5, c6, KIND, FROM_ONE)
    output = Partial + row * blocks + block
    stride = rows * blocks
    tl.store(output, tl.sum(positive * mass))
    tl.store(output + stride, tl.sum(negative * mass))
    tl.store(output + 2 * stride, tl.sum(positive * rest))
    tl.store(output + 3 * stride, tl.sum(negative * rest))


@triton.jit
def gradient_kernel(
    X, Y, W, Coefficients, Result, n, rows,
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit; one program per block and row."""
    block, row = tl.program_id(0), tl.program_id(1)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    offsets = offsets + row.to(tl.int64) * n
    x = tl.load(X + offsets, mask=inside, other=0.0)
    y = tl.load(Y + offsets, mask=inside, other=0.0)
    of_positive = tl.load(Coefficients + row)
    of_negative = tl.load(Coefficients + rows + row)
    p, q = _tails(x)
    # The slope times p q comes first: both factors can be extreme, but their product is not.
    grad = (y * of_positive + (1.0 - y) * of_negative) * (_slope(p, q, c0, c1, c7, c8, c9, KIND, FROM_ONE) * p * q)
    if WEIGHTED:
        grad = grad * tl.load(W + offsets, mask=inside, other=0.0)
    tl.store(Result + offsets, grad, mask=inside)
