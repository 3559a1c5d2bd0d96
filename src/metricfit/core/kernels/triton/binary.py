"""Binary soft counts on a CUDA device in one pass over the input: O(n) time, 16 bytes of scratch memory per part.

Plain operations make about fifty passes over memory. These programs read logits, target and weight once for the counts
and once for the gradient. The formulas are the same as in ``core.steps``, and tests compare the two. Linear is
evaluated from the nearer end, with (p, t) or (1 - p, 1 - t); the programs get the smaller of t and 1 - t, and
``FROM_ONE``.
"""
# mypy: ignore-errors
# ruff: noqa: SIM108

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from metricfit.core.kernels.triton import launch
from metricfit.core.step_formulas import both_ends

KINDS = {"linear": 0, "sigmoid": 1, "identity": 2, "raised_cosine": 3}
#: Logits per iteration and iterations of one program, and its warps, by measurements on an H200.
BLOCK, LOOPS, WARPS = 1024, 4, 4
PART = BLOCK * LOOPS


def counts(logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Return soft counts ``(4, ...)`` of logits ``(..., n)`` in float32; the sums of parts are added in float64.

    Target and weight may be of any type, and are read as they are.
    """
    x, y, w = _dense(logits, target, weight)
    n = x.shape[-1]
    parts = -(-n // PART)
    shape = (4, *x.shape[:-1], parts) if parts > 1 else (4, *x.shape[:-1])
    partial = torch.empty(shape, dtype=torch.float32, device=x.device)
    numbers, static = _settings(kind, number, threshold, weight is not None)
    launch(counts_kernel, (parts, x.numel() // n, 1), (x, y, w, partial), (n, *numbers), static, WARPS)
    return partial.sum(-1, dtype=torch.float64).to(torch.float32) if parts > 1 else partial


def gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, grad: Tensor, kind: str, number: float, threshold: float
) -> Tensor:
    """Return the gradient of the logits, of their type, from the gradient ``(4, ...)`` of the counts."""
    x, y, w = _dense(logits, target, weight)
    n = x.shape[-1]
    result = torch.empty_like(x)
    numbers, static = _settings(kind, number, threshold, weight is not None)
    tensors = x, y, w, grad.contiguous(), result
    launch(gradient_kernel, (-(-n // PART), x.numel() // n, 1), tensors, (n, *numbers), static, WARPS)
    return result


def _dense(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the programs read. They count along the last axis, so that no view is needed for the others."""
    x, y = logits.contiguous(), target.contiguous()
    y = y.view(torch.uint8) if y.dtype == torch.bool else y  # Triton does not read booleans
    return x, y, x if weight is None else weight.contiguous()


@lru_cache(maxsize=64)
def _settings(kind: str, number: float, threshold: float, weighted: bool) -> tuple[tuple[float, float], dict[str, Any]]:
    numbers, static = step_settings(kind, number, threshold)
    return numbers, static | {"WEIGHTED": weighted, "BLOCK": BLOCK, "LOOPS": LOOPS}


def step_settings(kind: str, number: float, threshold: float) -> tuple[tuple[float, float], dict[str, Any]]:
    """Return the numbers of a step for the programs, and the settings that they are compiled for."""
    t, u = both_ends(threshold, torch.float32)
    from_one = kind == "linear" and t > u  # the other steps need one compiled program for all thresholds
    return (number, u if from_one else t), {"KIND": KINDS[kind], "FROM_ONE": from_one}


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
def _linear(p, q, t, delta):
    """Return the step at a threshold of at most 1/2 and its complement: sums of three ramps, none of them negative."""
    over_t = 1.0 / t
    lower = tl.minimum(p * (2.0 * over_t), 1.0)
    middle = tl.minimum(tl.maximum((p - 0.5 * t) * over_t, 0.0), 1.0)
    upper = tl.minimum(q * (1.0 / (1.0 - 1.5 * t)), 1.0)
    mass = (1.0 - 2.0 * delta) * middle + delta * (lower + (1.0 - upper))
    rest = (1.0 - 2.0 * delta) * (1.0 - middle) + delta * (upper + (1.0 - lower))
    return mass, rest


@triton.jit
def masses(p, q, t, number, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the soft decision and its complement."""
    if KIND == 0:
        if FROM_ONE:
            rest, mass = _linear(q, p, t, number)
        else:
            mass, rest = _linear(p, q, t, number)
    elif KIND == 1:
        mass = _sigmoid(number * (p - t))
        rest = _sigmoid(number * (t - p))
    elif KIND == 2:
        mass = p
        rest = q
    else:
        v = tl.minimum(tl.maximum((p - t) / number + 1.0, 0.0), 2.0)
        mass = _raised_cosine(v)
        rest = _raised_cosine(2.0 - v)
    return mass, rest


@triton.jit
def slope(p, q, t, number, KIND: tl.constexpr, FROM_ONE: tl.constexpr):
    """Return the derivative of the step by p; for Linear it is one of its three slopes, so that nothing cancels."""
    if KIND == 0:
        if FROM_ONE:
            near = q
        else:
            near = p
        first, middle, last = 2.0 * number / t, (1.0 - 2.0 * number) / t, number / (1.0 - 1.5 * t)
        result = tl.where(near <= 0.5 * t, first, tl.where(near >= 1.5 * t, last, middle))
    elif KIND == 1:
        result = number * _sigmoid(number * (p - t)) * _sigmoid(number * (t - p))
    elif KIND == 2:
        result = tl.full(p.shape, 1.0, tl.float32)
    else:
        v = tl.minimum(tl.maximum((p - t) / number + 1.0, 0.0), 2.0)
        result = (1.0 - tl.cos(3.141592653589793 * v)) / (2.0 * number)
    return result


@triton.jit
def counts_kernel(
    X, Y, W, Partial, n, number, threshold,
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
        x = tl.load(X + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(Y + offsets, mask=inside, other=0, eviction_policy="evict_first").to(tl.float32)
        if WEIGHTED:
            w = tl.load(W + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        else:
            w = tl.where(inside, 1.0, 0.0)
        positive = w * y
        negative = w * (1.0 - y)
        p, q = _tails(x)
        mass, rest = masses(p, q, threshold, number, KIND, FROM_ONE)
        tp = tp + positive * mass
        fp = fp + negative * mass
        fn = fn + positive * rest
        tn = tn + negative * rest
    output = Partial + row * parts + part
    stride = rows * parts
    tl.store(output, tl.sum(tp))
    tl.store(output + stride, tl.sum(fp))
    tl.store(output + 2 * stride, tl.sum(fn))
    tl.store(output + 3 * stride, tl.sum(tn))


@triton.jit
def gradient_kernel(
    X, Y, W, Grad, Result, n, number, threshold,
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, LOOPS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each logit from the gradients of the counts, Grad[4, rows]."""
    part, row = tl.program_id(0), tl.program_id(1)
    rows = tl.num_programs(1)
    of_positive = tl.load(Grad + row) - tl.load(Grad + 2 * rows + row)
    of_negative = tl.load(Grad + rows + row) - tl.load(Grad + 3 * rows + row)
    for loop in tl.static_range(LOOPS):
        column = part.to(tl.int64) * (BLOCK * LOOPS) + loop * BLOCK + tl.arange(0, BLOCK)
        inside = column < n
        offsets = column + row.to(tl.int64) * n
        x = tl.load(X + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(Y + offsets, mask=inside, other=0, eviction_policy="evict_first").to(tl.float32)
        p, q = _tails(x)
        # The slope times p q comes first: both factors can be extreme, but their product is not.
        of_decision = slope(p, q, threshold, number, KIND, FROM_ONE) * p * q
        grad = (y * of_positive + (1.0 - y) * of_negative) * of_decision
        if WEIGHTED:
            grad = grad * tl.load(W + offsets, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(Result + offsets, grad.to(Result.dtype.element_ty), mask=inside, eviction_policy="evict_first")
