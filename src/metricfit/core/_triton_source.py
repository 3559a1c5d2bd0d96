"""The Triton programs behind ``triton_kernel``; imported only where there is a CUDA device."""
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
def _value(p, c0, c1, c2, c3, c4, KIND: tl.constexpr):
    if KIND == 0:
        return c2 * p + c3 * tl.maximum(p - c0, 0.0) + c4 * tl.maximum(p - c1, 0.0)
    elif KIND == 1:
        return 1.0 / (1.0 + tl.exp(-tl.minimum(tl.maximum(c1 * (p - c0), -80.0), 80.0)))
    elif KIND == 2:
        return p
    else:
        v = tl.minimum(tl.maximum((p - c0) / c1 + 1.0, 0.0), 2.0)
        return tl.maximum((v - tl.sin(3.141592653589793 * v) / 3.141592653589793) / 2.0, 0.0)


@triton.jit
def _slope(p, c0, c1, c2, c3, c4, KIND: tl.constexpr):
    if KIND == 0:
        return c2 + tl.where(p > c0, c3, 0.0) + tl.where(p > c1, c4, 0.0)
    elif KIND == 1:
        against = tl.exp(-tl.minimum(tl.maximum(c1 * (p - c0), -80.0), 80.0))
        s = 1.0 / (1.0 + against)
        return c1 * s * (against * s)
    elif KIND == 2:
        return tl.full(p.shape, 1.0, tl.float32)
    else:
        v = tl.minimum(tl.maximum((p - c0) / c1 + 1.0, 0.0), 2.0)
        return (1.0 - tl.cos(3.141592653589793 * v)) / (2.0 * c1)


@triton.jit
def counts_kernel(
    X, Y, W, Partial, n,
    c0, c1, c2, c3, c4, d0, d1, d2, d3, d4,
    KIND: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a block and row: four partial sums into Partial[4, rows, blocks]."""
    block, row = tl.program_id(0), tl.program_id(1)
    blocks, rows = tl.num_programs(0), tl.num_programs(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    at = at + row.to(tl.int64) * n
    x = tl.load(X + at, mask=inside, other=0.0)
    y = tl.load(Y + at, mask=inside, other=0.0)
    if WEIGHTED:
        w = tl.load(W + at, mask=inside, other=0.0)
    else:
        w = tl.where(inside, 1.0, 0.0)
    positive = w * y
    negative = w * (1.0 - y)
    p, q = _tails(x)
    mass = _value(p, c0, c1, c2, c3, c4, KIND)
    rest = _value(q, d0, d1, d2, d3, d4, KIND)
    to = Partial + row * blocks + block
    stride = rows * blocks
    tl.store(to, tl.sum(positive * mass))
    tl.store(to + stride, tl.sum(negative * mass))
    tl.store(to + 2 * stride, tl.sum(positive * rest))
    tl.store(to + 3 * stride, tl.sum(negative * rest))


@triton.jit
def gradient_kernel(
    X, Y, W, Coefficients, Result, n, rows,
    c0, c1, c2, c3, c4, d0, d1, d2, d3, d4,
    KIND: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a block and row: the gradient of each logit of it."""
    block, row = tl.program_id(0), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    at = at + row.to(tl.int64) * n
    x = tl.load(X + at, mask=inside, other=0.0)
    y = tl.load(Y + at, mask=inside, other=0.0)
    of_positive = tl.load(Coefficients + row)
    of_negative = tl.load(Coefficients + rows + row)
    p, q = _tails(x)
    grad = (y * of_positive + (1.0 - y) * of_negative) * _slope(p, c0, c1, c2, c3, c4, KIND) * p * q
    if WEIGHTED:
        grad = grad * tl.load(W + at, mask=inside, other=0.0)
    tl.store(Result + at, grad, mask=inside)
