"""Binary soft counts on a CUDA device in one pass over the input each way: O(n) time, 16 bytes of scratch a block.

Plain operations make some fifty passes over memory; this reads logits, target and weight once for the counts and once
more for the gradient. The formulas are those of ``steps.VALUE`` and ``steps.SLOPE``, to which the tests compare them.
Triton comes with torch's CUDA builds; without it, or on another device, the plain operations do the same work.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from metricfit.core.steps import linear_pieces

KINDS = {"linear": 0, "sigmoid": 1, "identity": 2, "raised_cosine": 3}
BLOCK = 4096


@cache
def _available() -> bool:
    return importlib.util.find_spec("triton") is not None


def handles(logits: Tensor) -> bool:
    """Whether these logits are what the kernel was written for: float32 rows on a CUDA device."""
    return (
        logits.device.type == "cuda"
        and logits.dtype == torch.float32
        and 0 < logits.numel() < 2**31
        and logits.numel() // logits.shape[-1] < 2**16  # rows are the grid's second axis
        and torch.version.cuda is not None
        and _available()
    )


def counts(logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Soft counts ``(4, ...)`` of logits ``(..., n)``; block sums are added in float64."""
    from metricfit.core._triton_source import counts_kernel

    x, y, w = _rows(logits, target, weight)
    rows, n = x.shape
    blocks = -(-n // BLOCK)
    partial = x.new_empty(4, rows, blocks)
    with torch.cuda.device(x.device):
        counts_kernel[(blocks, rows)](
            x, y, w, partial, n, *_constants(kind, number, threshold), **_static(kind, weight)
        )
    return partial.sum(-1, dtype=torch.float64).to(x.dtype).reshape(4, *logits.shape[:-1])


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    of_positive: Tensor,
    of_negative: Tensor,
    kind: str,
    number: float,
    threshold: float,
) -> Tensor:
    """The gradient with respect to the logits, given that of a positive's and a negative's mass in each row."""
    from metricfit.core._triton_source import gradient_kernel

    x, y, w = _rows(logits, target, weight)
    rows, n = x.shape
    result = torch.empty_like(x)
    coefficients = torch.stack([of_positive.reshape(rows), of_negative.reshape(rows)]).contiguous()
    with torch.cuda.device(x.device):
        gradient_kernel[(-(-n // BLOCK), rows)](
            x,
            y,
            w,
            coefficients,
            result,
            n,
            rows,
            *_constants(kind, number, threshold),
            **_static(kind, weight),
        )
    return result.reshape(logits.shape)


def _rows(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    n = logits.shape[-1]
    x, y = logits.reshape(-1, n).contiguous(), target.reshape(-1, n).contiguous()
    return x, y, x if weight is None else weight.reshape(-1, n).contiguous()


def _constants(kind: str, number: float, threshold: float) -> tuple[float, ...]:
    """Five numbers for the step and five for its complement, the step at 1 - p and 1 - t."""
    if kind == "linear":
        here, there = linear_pieces(threshold, number), linear_pieces(1 - threshold, number)
        return tuple(float(v) for a, b, m1, m2, m3 in (here, there) for v in (a, b, m1, m2 - m1, m3 - m2))
    return (threshold, number, 0.0, 0.0, 0.0, 1 - threshold, number, 0.0, 0.0, 0.0)


def _static(kind: str, weight: Tensor | None) -> dict[str, Any]:
    return {"KIND": KINDS[kind], "WEIGHTED": weight is not None, "BLOCK": BLOCK}
