"""Sums and means over pairs on a CUDA device: one sort and three programs each way, 60 bytes per sample, no waiting.

The programs compute what ``kernels.pairs`` computes in plain operations. Moments are shifted from point to point, so
that nothing cancels. Parts of the sorted scores sum their moments, add the moments of the parts before them, and scan.
A binary search finds the last sample within the margin of each score. For few samples starting programs takes most of
the time, so one program compares all pairs: 10^8 pairs take 0.15 ms on an H200.

All other programs take scores sorted in falling order. They scan them from the highest to the lowest, or REVERSED from
the lowest to the highest; ``_position`` is where the s-th sample of a scan is. Sums are in float64. One compiled
program serves all numbers of samples: the last batch of an epoch must not wait for a compiler. This module is imported
only if there is a CUDA device. Its annotations are types, because Triton reads some of them.
"""
# mypy: ignore-errors
# ruff: noqa: SIM108

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from metricfit.core.numerics import ratio
from metricfit.core.tensor_numerics import SMALLEST_DIVISOR

#: Samples that are scanned at once, parts that are added at once, and samples per program of the searches.
BLOCK, CHUNK, QUERIES = 1024, 1024, 256
#: About the largest number of parts of a row. Each part adds those before it, so that there should not be more.
PARTS = 2048
#: Up to this number of pairs, over all rows, comparing all of them takes less time than starting the other programs: on
#: GPUs that compute float64 at half the rate of float32, and on others. 2**29 pairs take 0.8 ms on an H200.
FEW, FEW_WITHOUT_FLOAT64 = 2**29, 2**24
WITH_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))  # P100, V100, A100, H100 and H200, B200
FEW_QUERIES, FEW_POINTS = 16, 128


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
        means_kernel[partial.numel(), 1, 1](*tensors, *numbers, **static)
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
    falling, order = torch.sort(score, dim=-1, descending=True)
    with torch.cuda.device(score.device):
        scanned, sorted_weight = _scan(falling, order, weight.contiguous(), power, reverse=False)
        result, lower = torch.empty_like(falling), torch.empty_like(falling)
        blocks, steps = -(-score.shape[-1] // QUERIES), score.shape[-1].bit_length()
        tensors = falling, order, scanned, result, lower
        numbers = score.shape[-1], blocks, steps, float(margin)
        sums_kernel[len(score) * blocks, 1, 1](*tensors, *numbers, POWER=power, BLOCK=QUERIES)
    return result, lower, falling, sorted_weight, order


def gradient(
    upstream: Tensor, lower: Tensor, falling: Tensor, weight: Tensor, order: Tensor, margin: float, power: int
) -> Tensor:
    """Return the gradient of the scores, from the gradient of the sums and what ``sums`` returned."""
    with torch.cuda.device(falling.device):
        scanned, sorted_upstream = _scan(falling, order, upstream.contiguous(), power - 1, reverse=True)
        result = torch.empty_like(falling)
        rows, n = falling.shape
        blocks, steps = -(-n // QUERIES), n.bit_length()
        tensors = falling, order, weight, sorted_upstream, lower, scanned, result
        numbers = n, blocks, steps, float(margin)
        gradient_kernel[rows * blocks, 1, 1](*tensors, *numbers, POWER=power, BLOCK=QUERIES)
    return result


def _scan(falling: Tensor, order: Tensor, weight: Tensor, highest: int, *, reverse: bool) -> tuple[Tensor, Tensor]:
    """Return the moments up to each sample, ``(highest + 1, rows, n)``, and the sorted weights."""
    rows, n = falling.shape
    blocks = -(-n // BLOCK)
    loops = max(1, 2 ** (blocks // PARTS).bit_length() // 2)
    parts = -(-blocks // loops)
    moments = falling.new_empty(highest + 1, rows * parts, dtype=torch.float64)
    scanned = falling.new_empty(highest + 1, rows, n, dtype=torch.float64)
    sorted_weight = torch.empty_like(weight)
    static = {"REVERSED": reverse, "K": highest, "BLOCK": BLOCK}
    grid, numbers = (rows * parts, 1, 1), (n, parts, loops)
    part_moments_kernel[grid](falling, order, weight, sorted_weight, moments, *numbers, **static)
    scan_kernel[grid](falling, sorted_weight, moments, scanned, *numbers, **static, CHUNK=CHUNK)
    return scanned, sorted_weight


@triton.jit
def _position(s, n, REVERSED: tl.constexpr):
    if REVERSED:
        return n - 1 - s
    else:
        return s


@triton.jit
def _shift(gap, m0, m1, m2, m3, K: tl.constexpr):
    """Return the K-th moment about a point at a distance of ``gap`` behind, of which all terms are at least 0."""
    if K == 0:
        return m0
    elif K == 1:
        return m1 + gap * m0
    elif K == 2:
        return m2 + gap * (2.0 * m1 + gap * m0)
    else:
        return m3 + gap * (3.0 * m2 + gap * (3.0 * m1 + gap * m0))


@triton.jit
def _combine1(a0, a1, a, b0, b1, b):
    return a0 + b0, b1 + _shift(tl.abs(b - a), a0, a1, 0.0, 0.0, 1), b


@triton.jit
def _combine2(a0, a1, a2, a, b0, b1, b2, b):
    gap = tl.abs(b - a)
    return a0 + b0, b1 + _shift(gap, a0, a1, 0.0, 0.0, 1), b2 + _shift(gap, a0, a1, a2, 0.0, 2), b


@triton.jit
def _combine3(a0, a1, a2, a3, a, b0, b1, b2, b3, b):
    gap = tl.abs(b - a)
    return (
        a0 + b0,
        b1 + _shift(gap, a0, a1, 0.0, 0.0, 1),
        b2 + _shift(gap, a0, a1, a2, 0.0, 2),
        b3 + _shift(gap, a0, a1, a2, a3, 3),
        b,
    )


@triton.jit(do_not_specialize=["n", "parts", "loops"])
def part_moments_kernel(
    Score, Order, Weight, Sorted, Moments, n, parts, loops,
    REVERSED: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sort the weights, and write the moments of each part, of several blocks, about the last sample of the part."""
    program = tl.program_id(0)
    row, part = (program // parts).to(tl.int64), program % parts
    start, length = row * n, BLOCK * loops
    last = tl.load(Score + start + _position(tl.minimum(part * length + length, n) - 1, n, REVERSED)).to(tl.float64)
    m0 = tl.zeros([BLOCK], tl.float64)
    m1, m2, m3 = m0, m0, m0
    for loop in range(loops):
        s = part * length + loop * BLOCK + tl.arange(0, BLOCK)
        inside = s < n
        at = start + _position(tl.minimum(s, n - 1), n, REVERSED)
        weight = tl.load(Weight + start + tl.load(Order + at), mask=inside, other=0.0)
        tl.store(Sorted + at, weight, mask=inside)
        w = weight.to(tl.float64)
        gap = tl.abs(tl.load(Score + at).to(tl.float64) - last)
        m0 = m0 + w
        if K >= 1:
            m1 = m1 + w * gap
        if K >= 2:
            m2 = m2 + w * gap * gap
        if K >= 3:
            m3 = m3 + w * gap * gap * gap
    stride = tl.num_programs(0)
    output = Moments + program
    tl.store(output, tl.sum(m0))
    if K >= 1:
        tl.store(output + stride, tl.sum(m1))
    if K >= 2:
        tl.store(output + 2 * stride, tl.sum(m2))
    if K >= 3:
        tl.store(output + 3 * stride, tl.sum(m3))


@triton.jit(do_not_specialize=["n", "parts", "loops"])
def scan_kernel(
    Score, Sorted, Moments, Scanned, n, parts, loops,
    REVERSED: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the moments of all samples up to each one, about this one, into Scanned[K + 1, rows, n]."""
    program = tl.program_id(0)
    row, part = (program // parts).to(tl.int64), program % parts
    start, length = row * n, BLOCK * loops
    reference = tl.load(Score + start + _position(part * length, n, REVERSED)).to(tl.float64)
    stride = tl.num_programs(0)
    m0 = tl.zeros([CHUNK], tl.float64)
    m1, m2, m3 = m0, m0, m0
    for chunk in range(0, part, CHUNK):
        earlier = chunk + tl.arange(0, CHUNK)
        inside = earlier < part
        last = tl.load(Score + start + _position(earlier * length + length - 1, n, REVERSED), mask=inside, other=0.0)
        gap = tl.where(inside, tl.abs(reference - last.to(tl.float64)), 0.0)
        source = Moments + row * parts + earlier
        p0 = tl.load(source, mask=inside, other=0.0)
        p1, p2, p3 = p0, p0, p0
        m0 = m0 + p0
        if K >= 1:
            p1 = tl.load(source + stride, mask=inside, other=0.0)
            m1 = m1 + _shift(gap, p0, p1, p2, p3, 1)
        if K >= 2:
            p2 = tl.load(source + 2 * stride, mask=inside, other=0.0)
            m2 = m2 + _shift(gap, p0, p1, p2, p3, 2)
        if K >= 3:
            p3 = tl.load(source + 3 * stride, mask=inside, other=0.0)
            m3 = m3 + _shift(gap, p0, p1, p2, p3, 3)
    before0, before1, before2, before3 = tl.sum(m0), tl.sum(m1), tl.sum(m2), tl.sum(m3)

    lane = tl.arange(0, BLOCK)
    stride = (stride // parts).to(tl.int64) * n
    for loop in range(loops):
        s = part * length + loop * BLOCK + lane
        inside = s < n
        at = start + _position(tl.minimum(s, n - 1), n, REVERSED)
        score = tl.load(Score + at).to(tl.float64)
        w = tl.load(Sorted + at, mask=inside, other=0.0).to(tl.float64)
        nothing = tl.zeros([BLOCK], tl.float64)
        t1, t2, t3 = nothing, nothing, nothing
        if K == 0:
            t0 = tl.cumsum(w)
        elif K == 1:
            t0, t1, _ = tl.associative_scan((w, nothing, score), 0, _combine1)
        elif K == 2:
            t0, t1, t2, _ = tl.associative_scan((w, nothing, nothing, score), 0, _combine2)
        else:
            t0, t1, t2, t3, _ = tl.associative_scan((w, nothing, nothing, nothing, score), 0, _combine3)
        gap = tl.abs(score - reference)
        output = Scanned + at
        # The last sample of a block is where the next block goes on.
        end = lane == BLOCK - 1
        if K >= 3:
            t3 = t3 + _shift(gap, before0, before1, before2, before3, 3)
            tl.store(output + 3 * stride, t3, mask=inside)
            before3 = tl.sum(tl.where(end, t3, 0.0))
        if K >= 2:
            t2 = t2 + _shift(gap, before0, before1, before2, before3, 2)
            tl.store(output + 2 * stride, t2, mask=inside)
            before2 = tl.sum(tl.where(end, t2, 0.0))
        if K >= 1:
            t1 = t1 + _shift(gap, before0, before1, before2, before3, 1)
            tl.store(output + stride, t1, mask=inside)
            before1 = tl.sum(tl.where(end, t1, 0.0))
        t0 = t0 + before0
        tl.store(output, t0, mask=inside)
        before0 = tl.sum(tl.where(end, t0, 0.0))
        reference = tl.sum(tl.where(end, score, 0.0))


@triton.jit
def _search(Score, score, start, n, steps, margin, REVERSED: tl.constexpr):
    """Return how many samples of a scan, one after another from its start, are within the margin of each score."""
    low = tl.zeros(score.shape, tl.int32)
    high = low + n
    for _ in range(steps):
        searching = low < high
        middle = (low + high) // 2
        point = tl.load(Score + start + _position(middle, n, REVERSED), mask=searching, other=0.0).to(tl.float64)
        if REVERSED:
            within = score + margin > point
        else:
            within = point + margin > score
        low = tl.where(searching & within, middle + 1, low)
        high = tl.where(searching & ~within, middle, high)
    return low


@triton.jit
def _sums(Score, Scanned, score, start, n, rows, steps, margin, REVERSED: tl.constexpr, K: tl.constexpr):
    """Return the sums of the powers K and, if K is above 0, K - 1 of the gaps that are above 0."""
    number = _search(Score, score, start, n, steps, margin, REVERSED)
    some = number > 0
    nearest = start + _position(tl.maximum(number, 1) - 1, n, REVERSED)
    point = tl.load(Score + nearest).to(tl.float64)
    if REVERSED:
        gap = score + margin - point
    else:
        gap = point + margin - score
    gap = tl.where(some, gap, 0.0)
    stride = rows.to(tl.int64) * n
    m0 = tl.load(Scanned + nearest, mask=some, other=0.0)
    m1, m2, m3 = m0, m0, m0
    if K >= 1:
        m1 = tl.load(Scanned + stride + nearest, mask=some, other=0.0)
    if K >= 2:
        m2 = tl.load(Scanned + 2 * stride + nearest, mask=some, other=0.0)
    if K >= 3:
        m3 = tl.load(Scanned + 3 * stride + nearest, mask=some, other=0.0)
    upper = _shift(gap, m0, m1, m2, m3, K)
    lower = upper
    if K >= 1:
        lower = _shift(gap, m0, m1, m2, m3, K - 1)
    return upper, lower


@triton.jit(do_not_specialize=["n", "blocks", "steps"])
def sums_kernel(
    Score, Order, Scanned, Sums, Lower, n, blocks, steps, margin: tl.float64,
    POWER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the sums in the original order, and the sums of the next lower power, for the gradient, in sorted order."""
    program = tl.program_id(0)
    row, block = (program // blocks).to(tl.int64), program % blocks
    start, rows = row * n, tl.num_programs(0) // blocks
    s = block * BLOCK + tl.arange(0, BLOCK)
    inside = s < n
    at = start + tl.minimum(s, n - 1)
    score = tl.load(Score + at).to(tl.float64)
    sums, lower = _sums(Score, Scanned, score, start, n, rows, steps, margin, False, POWER)
    # 0 times NaN, or infinity, is NaN. The highest score and the lowest one show whether all are finite.
    highest = tl.load(Score + start).to(tl.float64)
    lowest = tl.load(Score + (start + n - 1)).to(tl.float64)
    furthest = tl.maximum(highest + margin - score, 0.0)
    power = furthest
    for _ in tl.static_range(POWER - 1):
        power = power * furthest
    flaw = 0.0 * highest + 0.0 * lowest + 0.0 * power + 0.0 * sums
    tl.store(Sums + start + tl.load(Order + at), (sums + flaw).to(Sums.dtype.element_ty), mask=inside)
    tl.store(Lower + at, (lower + flaw).to(Lower.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n", "blocks", "steps"])
def gradient_kernel(
    Score, Order, Weight, Upstream, Lower, Scanned, Result, n, blocks, steps, margin: tl.float64,
    POWER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of each score in the original order; Weight, Upstream and Lower are sorted."""
    program = tl.program_id(0)
    row, block = (program // blocks).to(tl.int64), program % blocks
    start, rows = row * n, tl.num_programs(0) // blocks
    s = block * BLOCK + tl.arange(0, BLOCK)
    inside = s < n
    at = start + tl.minimum(s, n - 1)
    score = tl.load(Score + at).to(tl.float64)
    as_point, _ = _sums(Score, Scanned, score, start, n, rows, steps, margin, True, POWER - 1)
    as_point = as_point * tl.load(Weight + at).to(tl.float64)
    as_query = tl.load(Upstream + at).to(tl.float64) * tl.load(Lower + at).to(tl.float64)
    result = POWER * (as_point - as_query)
    tl.store(Result + start + tl.load(Order + at), result.to(Result.dtype.element_ty), mask=inside)


@triton.jit
def _hinge(gap, K: tl.constexpr):
    """Return the K-th power of the gaps above 0, and 0 for the others."""
    above = tl.maximum(gap, 0.0)
    if K == 0:
        return tl.where(gap > 0.0, 1.0, 0.0).to(tl.float64)
    elif K == 1:
        return above
    else:
        return above * above


@triton.jit(do_not_specialize=["n", "blocks"])
def means_kernel(
    Score, Positive, Negative, Partial, Result, n, blocks, margin: tl.float64, least: tl.float64,
    COMPLEMENT: tl.constexpr, POWER: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Compare QUERIES samples of a row with all samples of the row.

    Write their part of the mean over pairs into Partial[rows, blocks], and the gradient of the mean by their scores
    into Result. With COMPLEMENT a negative has the weight 1 minus the weight of a positive.
    """
    program = tl.program_id(0)
    row, block = (program // blocks).to(tl.int64), program % blocks
    start = row * n
    query = block * QUERIES + tl.arange(0, QUERIES)
    asked = query < n
    x = tl.load(Score + start + query, mask=asked, other=0.0).to(tl.float64)
    as_positive = tl.zeros([QUERIES, POINTS], tl.float64)
    as_negative = as_positive
    values = as_positive
    positives = tl.zeros([POINTS], tl.float64)
    negatives, flaws = positives, positives
    for first in range(0, n, POINTS):
        point = first + tl.arange(0, POINTS)
        inside = point < n
        y = tl.load(Score + start + point, mask=inside, other=0.0).to(tl.float64)
        a = tl.load(Positive + start + point, mask=inside, other=0).to(tl.float64)
        if COMPLEMENT:
            b = tl.where(inside, 1.0 - a, 0.0)
        else:
            b = tl.load(Negative + start + point, mask=inside, other=0).to(tl.float64)
        positives = positives + a
        negatives = negatives + b
        flaws = flaws + 0.0 * y  # 0 times NaN, or infinity, is NaN
        gap = (y + margin)[None, :] - x[:, None]
        lower = _hinge(gap, POWER - 1) * b[None, :]
        as_positive = as_positive + lower
        values = values + lower * gap
        as_negative = as_negative + _hinge((x + margin)[:, None] - y[None, :], POWER - 1) * a[None, :]
    pairs = tl.sum(positives) * tl.sum(negatives)
    scale = tl.where(pairs < least, 0.0, 1.0 / tl.where(pairs < least, 1.0, pairs))
    flaw = tl.sum(flaws)
    a = tl.load(Positive + start + query, mask=asked, other=0).to(tl.float64)
    if COMPLEMENT:
        b = tl.where(asked, 1.0 - a, 0.0)
    else:
        b = tl.load(Negative + start + query, mask=asked, other=0).to(tl.float64)
    value = tl.sum(a * tl.sum(values, 1)) * scale
    tl.store(Partial + program, (value + 0.0 * value + flaw).to(Partial.dtype.element_ty))
    gradient = POWER * scale * (b * tl.sum(as_negative, 1) - a * tl.sum(as_positive, 1)) + flaw
    tl.store(Result + start + query, gradient.to(Result.dtype.element_ty), mask=asked)
