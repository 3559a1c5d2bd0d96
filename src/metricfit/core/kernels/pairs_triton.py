"""Sums over pairs on a CUDA device: one sort and three programs each way, about 60 bytes per sample, no waiting.

The programs compute what ``pairs_sorted`` computes in plain operations. Moments are shifted from point to point as in
``pairs``, so that nothing cancels: parts of the sorted scores sum their own moments, add those of the parts before
them, and scan. A binary search finds the last sample within the margin of each score.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from metricfit.core.kernels.binary_triton import triton_available
from metricfit.core.kernels.triton_launch import launch
from metricfit.core.numerics import SMALLEST_DIVISOR, ratio

#: Samples that are scanned at once, parts that are added at once, and samples per program of the searches.
BLOCK, CHUNK, QUERIES = 1024, 1024, 256
#: About the largest number of parts of a row. Each part adds those before it, so that there should not be more.
PARTS = 2048
#: Up to this number of pairs, over all rows, comparing all of them takes less time than starting the other programs: on
#: GPUs that compute float64 at half the rate of float32, and on others. 2**29 pairs take 0.8 ms on an H200.
FEW, FEW_WITHOUT_FLOAT64 = 2**29, 2**24
WITH_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))  # P100, V100, A100, H100 and H200, B200
FEW_QUERIES, FEW_POINTS = 16, 128


def handles(score: Tensor) -> bool:
    """Return whether the programs are for these scores: float32 or float64 rows on a CUDA device."""
    return (
        score.device.type == "cuda"
        and score.dtype in (torch.float32, torch.float64)
        and 0 < score.shape[-1] < 2**30
        and 0 < score.numel() < 2**31
        and torch.version.cuda is not None
        and triton_available()
    )


def means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> tuple[Tensor, Tensor]:
    """Return the mean of ``max(0, m - (f_+ - f_-))^r`` over the pairs of each row, and its gradient by the scores.

    Args:
        score: ``(..., n)``.
        positive: The weight of each sample as a positive, ``(..., n)``, of any type.
        negative: The weight of each sample as a negative; None for 1 minus that as a positive.
        margin: The number m.
        power: The exponent r, from 1 to 3.
    """
    few = score.numel() * score.shape[-1] <= _most_pairs(score.device)
    return (_direct_means if few else _sorted_means)(score, positive, negative, margin, power)


@cache
def _most_pairs(device: torch.device) -> int:
    return FEW if torch.cuda.get_device_capability(device) in WITH_FLOAT64 else FEW_WITHOUT_FLOAT64


def _direct_means(
    score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int
) -> tuple[Tensor, Tensor]:
    from metricfit.core.kernels.pairs_triton_source import means_kernel

    n = score.shape[-1]
    blocks = -(-n // FEW_QUERIES)
    x, a, b = score.contiguous(), positive.contiguous(), None if negative is None else negative.contiguous()
    a = a.view(torch.uint8) if a.dtype == torch.bool else a
    result = torch.empty_like(x)
    partial = x.new_empty(*x.shape[:-1], blocks)
    with torch.cuda.device(x.device):
        tensors = x, a, a if b is None else b, partial, result
        numbers = n, blocks, float(margin), SMALLEST_DIVISOR[torch.float32]
        static = {"COMPLEMENT": b is None, "POWER": power, "QUERIES": FEW_QUERIES, "POINTS": FEW_POINTS}
        launch(means_kernel, (partial.numel(), 1, 1), tensors, numbers, static)
    return partial.sum(-1), result


def _sorted_means(
    score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int
) -> tuple[Tensor, Tensor]:
    a = positive.to(score.dtype)
    b = 1 - a if negative is None else negative
    x, y, w = (tensor.reshape(-1, score.shape[-1]) for tensor in (score, a, b))
    hinges, lower, falling, weight, order = sums(x, w, margin, power)
    result = gradient(y, lower, falling, weight, order, margin, power).reshape(score.shape)
    share = ratio(torch.ones((), device=a.device, dtype=torch.float64), _total(a) * _total(b)).to(score.dtype)
    return (a * hinges.reshape(a.shape)).sum(-1) * share, result.mul_(share.unsqueeze(-1))


def _total(weight: Tensor) -> Tensor:
    return weight.sum(-1, dtype=torch.float64)


def sums(score: Tensor, weight: Tensor, margin: float, power: int) -> tuple[Tensor, ...]:
    """Return ``sum_j w_j max(0, f_j + m - f_i)^r`` for each score, and what ``gradient`` needs.

    Args:
        score: ``(rows, n)``.
        weight: ``(rows, n)``.
        margin: The number m.
        power: The exponent r, from 1 to 3.

    Returns:
        The sums, then in falling order of the scores: the sums of the power r - 1, the scores, the weights, and the
        order.
    """
    from metricfit.core.kernels.pairs_triton_source import sums_kernel

    falling, order = torch.sort(score, dim=-1, descending=True)
    with torch.cuda.device(score.device):
        scanned, sorted_weight = _scan(falling, order, weight.contiguous(), power, reverse=False)
        result, lower = torch.empty_like(falling), torch.empty_like(falling)
        blocks, steps = -(-score.shape[-1] // QUERIES), score.shape[-1].bit_length()
        tensors = falling, order, scanned, result, lower
        numbers = score.shape[-1], blocks, steps, float(margin)
        launch(sums_kernel, (len(score) * blocks, 1, 1), tensors, numbers, {"POWER": power, "BLOCK": QUERIES})
    return result, lower, falling, sorted_weight, order


def gradient(
    upstream: Tensor, lower: Tensor, falling: Tensor, weight: Tensor, order: Tensor, margin: float, power: int
) -> Tensor:
    """Return the gradient of the scores, from the gradient of the sums and what ``sums`` returned."""
    from metricfit.core.kernels.pairs_triton_source import gradient_kernel

    with torch.cuda.device(falling.device):
        scanned, sorted_upstream = _scan(falling, order, upstream.contiguous(), power - 1, reverse=True)
        result = torch.empty_like(falling)
        rows, n = falling.shape
        blocks, steps = -(-n // QUERIES), n.bit_length()
        tensors = falling, order, weight, sorted_upstream, lower, scanned, result
        numbers = n, blocks, steps, float(margin)
        launch(gradient_kernel, (rows * blocks, 1, 1), tensors, numbers, {"POWER": power, "BLOCK": QUERIES})
    return result


def _scan(falling: Tensor, order: Tensor, weight: Tensor, highest: int, *, reverse: bool) -> tuple[Tensor, Tensor]:
    """Return the moments up to each sample, ``(highest + 1, rows, n)``, and the sorted weights."""
    from metricfit.core.kernels.pairs_triton_source import part_moments_kernel, scan_kernel

    rows, n = falling.shape
    blocks = -(-n // BLOCK)
    loops = max(1, 2 ** (blocks // PARTS).bit_length() // 2)
    parts = -(-blocks // loops)
    moments = falling.new_empty(highest + 1, rows * parts, dtype=torch.float64)
    scanned = falling.new_empty(highest + 1, rows, n, dtype=torch.float64)
    sorted_weight = torch.empty_like(weight)
    static = {"REVERSED": reverse, "K": highest, "BLOCK": BLOCK}
    grid, numbers = (rows * parts, 1, 1), (n, parts, loops)
    launch(part_moments_kernel, grid, (falling, order, weight, sorted_weight, moments), numbers, static)
    launch(scan_kernel, grid, (falling, sorted_weight, moments, scanned), numbers, static | {"CHUNK": CHUNK})
    return scanned, sorted_weight
