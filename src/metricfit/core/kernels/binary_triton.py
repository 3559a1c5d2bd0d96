"""Binary soft counts on a CUDA device in one pass over the input: O(n) time, 16 bytes of scratch memory per part.

Plain operations make about fifty passes over memory. These kernels read logits, target and weight once for the counts
and once for the gradient. The formulas are those of ``step_formulas``, and tests compare the two. Triton comes with
the CUDA builds of torch; without it, or on another device, plain operations are used.
"""

from __future__ import annotations

import importlib.util
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import launch
from metricfit.core.step_formulas import both_ends, linear_pieces
from metricfit.errors import InvalidValueError

KINDS = {"linear": 0, "sigmoid": 1, "identity": 2, "raised_cosine": 3}
#: Logits per iteration and iterations of one program, and its warps, by measurements on an H200.
BLOCK, LOOPS, WARPS = 1024, 4, 4
PART = BLOCK * LOOPS


@cache
def triton_available() -> bool:
    """Return whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def handles(logits: Tensor) -> bool:
    """Return whether the kernel is for these logits: rows on a CUDA device, in float32 or half precision."""
    return (
        logits.device.type == "cuda"
        and logits.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and logits.numel() > 0
        and logits.numel() // logits.shape[-1] < 2**16  # rows are the second axis of the grid
        and torch.version.cuda is not None
        and triton_available()
    )


def counts(logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Return soft counts ``(4, ...)`` of logits ``(..., n)`` in float32; the sums of parts are added in float64.

    Target and weight may be of any type, and are read as they are.
    """
    partial = partial_counts(logits, target, weight, kind, number, threshold)
    return partial.sum(-1, dtype=torch.float64).to(torch.float32).reshape(4, *logits.shape[:-1])


def partial_counts(
    logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: float
) -> Tensor:
    """Return the counts of the parts of each row, ``(4, rows, parts)``."""
    from metricfit.core.kernels.triton_source import counts_kernel

    x, y, w = _rows(logits, target, weight)
    rows, n = x.shape
    parts = -(-n // PART)
    partial = x.new_empty(4, rows, parts, dtype=torch.float32)
    numbers, static = (n, *constants(kind, number, threshold)), settings(kind, threshold, weight is not None)
    launch(counts_kernel, (parts, rows, 1), (x, y, w, partial), numbers, static, WARPS)
    return partial


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor,
    kind: str,
    number: float,
    threshold: float,
    scale: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the logits, of their type, from the gradient ``(4, ...)`` of the counts.

    With ``scale``, a tensor of one number, the result is multiplied by it.
    """
    from metricfit.core.kernels.triton_source import gradient_kernel

    x, y, w = _rows(logits, target, weight)
    rows, n = x.shape
    result = torch.empty_like(x)
    of_counts = grad.contiguous()
    tensors = x, y, w, of_counts, of_counts if scale is None else scale, result
    numbers, static = (n, *constants(kind, number, threshold)), settings(kind, threshold, weight is not None)
    static = static | {"SCALED": scale is not None}
    launch(gradient_kernel, (-(-n // PART), rows, 1), tensors, numbers, static, WARPS)
    return result.reshape(logits.shape)


def _rows(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    n = logits.shape[-1]
    x, y = logits.reshape(-1, n).contiguous(), target.reshape(-1, n).contiguous()
    return x, readable(y), x if weight is None else weight.reshape(-1, n).contiguous()


def readable(labels: Tensor) -> Tensor:
    """Return labels, or decisions, of a type that Triton programs read."""
    return labels.view(torch.uint8) if labels.dtype == torch.bool else labels


@lru_cache(maxsize=256)
def constants(kind: str, number: float, threshold: float) -> tuple[float, ...]:
    """Return the ten constants of a step for the Triton programs, computed in float64.

    Linear is evaluated from the nearer end, with (p, t) or (1 - p, 1 - t). Its constants are its kinks a and b, the
    reciprocals of the lengths of its three pieces, its two shares and its three slopes.
    """
    if kind == "linear":
        near = min(both_ends(threshold, torch.float32))
        pieces = linear_pieces(near, 1 - near)
        kinks = pieces.a, near + pieces.width / 2
        reciprocals = 1 / pieces.a, 1 / pieces.width, 1 / pieces.c
        return (*kinks, *reciprocals, number, 1 - 2 * number, *pieces.slopes(number))
    return (threshold, number, *(0.0,) * 8)


def settings(kind: str, threshold: float, is_weighted: bool) -> dict[str, Any]:
    """Return the settings that the Triton programs are compiled for."""
    if kind not in KINDS:
        raise InvalidValueError(f"the Triton kernel has no step of the kind {kind!r}")
    # Only Linear is evaluated from the nearer end; for the other steps one compiled program serves all thresholds.
    from_one = kind == "linear" and threshold > 0.5
    static = {"KIND": KINDS[kind], "FROM_ONE": from_one, "WEIGHTED": is_weighted}
    return static | {"BLOCK": BLOCK, "LOOPS": LOOPS}
