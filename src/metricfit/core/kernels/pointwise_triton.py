"""Sums of pointwise losses on a CUDA device in one pass over the input, and their gradient in another.

Nothing is kept between the passes but the input. The formulas are those of ``pointwise_form``, and tests compare them
with plain operations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels.binary_triton import triton_available
from metricfit.core.kernels.pointwise_form import PointwiseForm
from metricfit.core.kernels.triton_launch import launch

KINDS = {
    "cross_entropy": 0,
    "focal": 1,
    "absolute_error": 2,
    "surrogate": 3,
    "power_surrogate": 4,
    "squared_error": 5,
}
BLOCK = 1024


def handles(logits: Tensor) -> bool:
    """Return whether the kernel is for these logits: float32 on a CUDA device."""
    return (
        logits.device.type == "cuda"
        and logits.dtype == torch.float32
        and 0 < logits.numel() < 2**31
        and torch.version.cuda is not None
        and triton_available()
    )


def weighted_sum(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, with_gradient: bool
) -> tuple[Tensor, None]:
    """Return the weighted sum of the losses times ``scale``; the gradient is computed when it is needed."""
    from metricfit.core.kernels.pointwise_source import sum_kernel

    x, y, w = _flat(logits, target, weight)
    blocks = -(-x.numel() // BLOCK)
    partial = torch.empty(blocks, dtype=x.dtype, device=x.device)
    numbers = x.numel(), *_numbers(form)
    launch(sum_kernel, (blocks, 1, 1), (x, y, w, partial), numbers, _static(form, weight))
    return partial.sum(dtype=torch.float64).mul_(scale).to(x.dtype), None


def gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, grad: Tensor
) -> Tensor:
    """Return the gradient of the logits, from that of the sum."""
    from metricfit.core.kernels.pointwise_source import slope_kernel

    x, y, w = _flat(logits, target, weight)
    result = torch.empty_like(x)
    numbers = x.numel(), scale, *_numbers(form)
    launch(slope_kernel, (-(-x.numel() // BLOCK), 1, 1), (x, y, w, grad, result), numbers, _static(form, weight))
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
