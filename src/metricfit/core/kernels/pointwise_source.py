"""The Triton programs of ``pointwise_triton``; imported only if there is a CUDA device."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _parts(x):
    """Return sigmoid(x), sigmoid(-x), softplus(x) and softplus(-x), each accurate where it is small."""
    e = tl.exp(-tl.abs(x))
    near = 1.0 / (1.0 + e)
    far = e * near
    rounded = 1.0 + e
    # log1p(e) by Kahan: the error of 1 + e cancels in the quotient.
    log = tl.where(rounded == 1.0, e, tl.log(rounded) * (e / tl.where(rounded == 1.0, 1.0, rounded - 1.0)))
    p = tl.where(x > 0, near, far)
    q = tl.where(x > 0, far, near)
    return p, q, tl.maximum(x, 0.0) + log, tl.maximum(-x, 0.0) + log


@triton.jit
def _losses(x, c2, c3, KIND: tl.constexpr):
    """Return the loss of each logit as a positive and as a negative."""
    if KIND == 0:
        positive = _parts(x - c2)[3]
        negative = _parts(x + c3)[2]
    else:
        p, q, sp, sn = _parts(x)  # sp = -log q, sn = -log p
        if KIND == 1:
            positive = tl.exp(-c2 * sp) * sn
            negative = tl.exp(-c3 * sn) * sp
        elif KIND == 2:
            positive = 2.0 * q
            negative = 2.0 * p
        elif KIND == 3:
            positive = sn
            negative = tl.log(c2 + p)
        elif KIND == 5:
            positive = 0.5 * q * q
            negative = 0.5 * p * p
        else:
            positive = _minus_expm1(-c3 * sn) / c3
            negative = -_minus_expm1(c3 * tl.log(c2 + p)) / c3
    return positive, negative


@triton.jit
def _minus_expm1(v):
    """Return 1 - exp(v), by Kahan."""
    u = tl.exp(v)
    safe = tl.where((u == 1.0) | (u == 0.0), 2.0, u)
    return tl.where(u == 1.0, -v, tl.where(u == 0.0, 1.0, (1.0 - safe) * (v / tl.log(safe))))


@triton.jit
def _slopes(x, c2, c3, KIND: tl.constexpr):
    """Return the derivative by the logit of the loss as a positive and as a negative."""
    if KIND == 0:
        positive = -_parts(x - c2)[1]
        negative = _parts(x + c3)[0]
    else:
        p, q, sp, sn = _parts(x)
        if KIND == 1:
            positive = -tl.exp(-c2 * sp) * (c2 * p * sn + q)
            negative = tl.exp(-c3 * sn) * (c3 * q * sp + p)
        elif KIND == 2:
            positive = -2.0 * p * q
            negative = 2.0 * p * q
        elif KIND == 3:
            positive = -q
            negative = p * q / (c2 + p)
        elif KIND == 5:
            positive = -p * q * q
            negative = p * p * q
        else:
            positive = -tl.exp(-c3 * sn) * q
            negative = tl.exp(c3 * tl.log(c2 + p)) * (p * q / (c2 + p))
    return positive, negative


@triton.jit
def sum_kernel(
    X, Y, W, Partial, n, c0, c1, c2, c3,
    KIND: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the sum of the losses of each block."""
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(X + offsets, mask=inside, other=0.0)
    y = tl.load(Y + offsets, mask=inside, other=0.0)
    positive, negative = _losses(x, c2, c3, KIND)
    loss = y * (c0 * positive) + (1.0 - y) * (c1 * negative)
    if WEIGHTED:
        loss = loss * tl.load(W + offsets, mask=inside, other=0.0)
    tl.store(Partial + block, tl.sum(tl.where(inside, loss, 0.0)))


@triton.jit
def slope_kernel(
    X, Y, W, Upstream, Result, n, scale, c0, c1, c2, c3,
    KIND: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit, from the gradient of the sum."""
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(X + offsets, mask=inside, other=0.0)
    y = tl.load(Y + offsets, mask=inside, other=0.0)
    positive, negative = _slopes(x, c2, c3, KIND)
    slope = (y * (c0 * positive) + (1.0 - y) * (c1 * negative)) * (tl.load(Upstream) * scale)
    if WEIGHTED:
        slope = slope * tl.load(W + offsets, mask=inside, other=0.0)
    tl.store(Result + offsets, slope, mask=inside)
