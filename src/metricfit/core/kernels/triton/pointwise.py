"""Sums of pointwise losses on a CUDA device in one pass over the input, and their gradient in another.

Nothing is kept between the passes but the input. ``kernels.pointwise`` has the formulas. This module is imported only
if there is a CUDA device.
"""
# mypy: ignore-errors

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from metricfit.core.kernels.pointwise import PointwiseForm
from metricfit.core.kernels.triton import launch

KINDS = {"cross_entropy": 0, "focal": 1, "absolute_error": 2, "surrogate": 3, "power_surrogate": 4}
BLOCK = 1024


def weighted_sum(logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float) -> Tensor:
    """Return the weighted sum of the losses times ``scale``."""
    x, y, w = _flat(logits, target, weight)
    blocks = -(-x.numel() // BLOCK)
    partial = torch.empty(blocks, dtype=x.dtype, device=x.device)
    launch(sum_kernel, (blocks, 1, 1), (x, y, w, partial), (x.numel(), *_numbers(form)), _static(form, weight))
    return partial.sum(dtype=torch.float64).mul_(scale).to(x.dtype)


def gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, grad: Tensor
) -> Tensor:
    """Return the gradient of the logits, from the gradient of the sum."""
    x, y, w = _flat(logits, target, weight)
    result = torch.empty_like(x)
    grid, numbers = (-(-x.numel() // BLOCK), 1, 1), (x.numel(), scale, *_numbers(form))
    launch(slope_kernel, grid, (x, y, w, grad, result), numbers, _static(form, weight))
    return result.view(logits.shape)


def _flat(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    x, y = logits.contiguous().view(-1), target.contiguous().view(-1)
    return x, y, x if weight is None else weight.contiguous().view(-1)


def _numbers(form: PointwiseForm) -> tuple[float, ...]:
    first = math.exp(form.first) if form.kind == "surrogate" else form.first
    return form.positive_weight, form.negative_weight, first, form.second


def _static(form: PointwiseForm, weight: Tensor | None) -> dict[str, Any]:
    kind = "power_surrogate" if form.kind == "surrogate" and form.second else form.kind
    return {"KIND": KINDS[kind], "WEIGHTED": weight is not None, "BLOCK": BLOCK}


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
