"""The Triton programs of ``thresholds_triton``; imported only if there is a CUDA device.

Place 0 is the threshold infinity, and place i > 0 the threshold at the i-th largest score. Programs walk over blocks of
``BLOCK`` places.
"""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "blocks"])
def sorted_labels_kernel(Target, Order, Labels, Sums, n, blocks, BLOCK: tl.constexpr):
    """Write the labels in the order of the scores, and each block's numbers of positives and of other labels than 0."""
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    inside = (place > 0) & (place <= n)
    sample = tl.load(Order + (place - 1), mask=inside, other=0)
    label = tl.load(Target + sample, mask=inside, other=0)
    positive = tl.where(label == 1, 1, 0)
    invalid = tl.where((label == 0) | (label == 1), 0, 1)
    tl.store(Labels + place, positive.to(tl.int8), mask=place <= n)
    tl.store(Sums + block, tl.sum(positive))
    tl.store(Sums + blocks + block, tl.sum(invalid))


@triton.jit
def count_positives(Labels, Sums, block, blocks, n, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """Return the places of a block, the positives up to each, and all positives."""
    before = tl.zeros((CHUNK,), tl.int32)
    total = tl.zeros((CHUNK,), tl.int32)
    for start in range(0, blocks, CHUNK):
        other = start + tl.arange(0, CHUNK)
        sums = tl.load(Sums + other, mask=other < blocks, other=0)
        total += sums
        before += tl.where(other < block, sums, 0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(Labels + place, mask=place <= n, other=0).to(tl.int32)
    return place, tl.sum(before) + tl.cumsum(label, 0), tl.sum(total)


@triton.jit
def write_values(Falling, Values, Highest, block, place, value, n):
    """Write the values of a block, minus infinity between ties, and the highest of them."""
    score = tl.load(Falling + (place - 1), mask=(place > 0) & (place < n), other=0.0)
    following = tl.load(Falling + place, mask=(place > 0) & (place < n), other=1.0)
    is_last_of_ties = (place <= n) & (score != following)
    value = tl.where(is_last_of_ties, value, float("-inf"))
    tl.store(Values + place, value, mask=place <= n)
    tl.store(Highest + block, tl.max(value, 0))


@triton.jit(do_not_specialize=["n", "blocks"])
def choose_kernel(
    Falling, Values, Highest, Sums, Output, n, blocks,
    ROUNDING: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the first threshold with the highest value up to rounding, its value, and what the input is judged by."""
    highest_of_chunk = tl.full((CHUNK,), float("-inf"), tl.float64)
    invalid = tl.zeros((CHUNK,), tl.int32)
    for start in range(0, blocks, CHUNK):
        block = start + tl.arange(0, CHUNK)
        value = tl.load(Highest + block, mask=block < blocks, other=float("-inf"))
        highest_of_chunk = tl.maximum(highest_of_chunk, value)
        invalid += tl.load(Sums + blocks + block, mask=block < blocks, other=0)
    highest = tl.max(highest_of_chunk, 0)
    least = highest - ROUNDING * tl.minimum(tl.abs(highest), LARGEST)
    first_of_chunk = tl.full((CHUNK,), 0, tl.int32) + blocks
    for start in range(0, blocks, CHUNK):
        block = start + tl.arange(0, CHUNK)
        value = tl.load(Highest + block, mask=block < blocks, other=float("-inf"))
        first_of_chunk = tl.minimum(first_of_chunk, tl.where((block < blocks) & (value >= least), block, blocks))
    first = tl.min(first_of_chunk, 0)
    place = first * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(Values + place, mask=place <= n, other=float("-inf"))
    chosen = tl.min(tl.where((place <= n) & (value >= least), place, n + 1), 0)
    threshold = tl.load(Falling + (chosen - 1), mask=(chosen > 0) & (chosen <= n), other=float("inf"))
    tl.store(Output, threshold.to(tl.float64))
    tl.store(Output + 1, tl.load(Values + chosen, mask=chosen <= n, other=float("nan")))
    tl.store(Output + 2, tl.load(Falling).to(tl.float64))
    tl.store(Output + 3, tl.load(Falling + (n - 1)).to(tl.float64))
    tl.store(Output + 4, tl.sum(invalid).to(tl.float64))
