"""Attention over the columns of a row, for very many rows of a few columns, as one Triton kernel per pass.

Library kernels take one sequence per block, or copy the cells into another order. Here a block holds as many whole rows
as fit: the cells of a row are next to each other in memory, so nothing is copied, and a mask keeps rows apart.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tokens(pointer, block, length, total, head, HEADS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the pointers of a block's cells and which of them exist."""
    rows = SIZE // length
    within = tl.arange(0, SIZE)
    token = block * rows * length + within
    here = (within < rows * length) & (token < total)
    offset = token.to(tl.int64)[:, None] * (HEADS * WIDTH) + head * WIDTH + tl.arange(0, WIDTH)[None, :]
    return pointer + offset, here[:, None]


@triton.jit
def _shares(query, key, length, total, block, SIZE: tl.constexpr, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the softmax of a block's cells over the cells of their rows."""
    rows = SIZE // length
    within = tl.arange(0, SIZE)
    row = tl.minimum(within // length, rows)
    here = (within < rows * length) & (block * rows * length + within < total)
    together = (row[:, None] == row[None, :]) & here[None, :]
    logits = tl.where(together, tl.dot(query, tl.trans(key)) * SCALE, -1e30)
    powers = tl.where(together, tl.exp(logits - tl.max(logits, 1)[:, None]), 0.0)
    return powers / (tl.sum(powers, 1)[:, None] + 1e-30)


@triton.jit
def _forward(query, key, value, out, length, total, HEADS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip  # noqa: E501
    """Write the attention of one block of rows and one head."""
    block, head = tl.program_id(0), tl.program_id(1)
    place, here = _tokens(query, block, length, total, head, HEADS, SIZE, WIDTH)
    q = tl.load(place, mask=here, other=0.0)
    place, here = _tokens(key, block, length, total, head, HEADS, SIZE, WIDTH)
    k = tl.load(place, mask=here, other=0.0)
    place, here = _tokens(value, block, length, total, head, HEADS, SIZE, WIDTH)
    v = tl.load(place, mask=here, other=0.0)
    p = _shares(q, k, length, total, block, SIZE, SCALE)
    place, here = _tokens(out, block, length, total, head, HEADS, SIZE, WIDTH)
    tl.store(place, tl.dot(p.to(v.dtype), v).to(v.dtype), mask=here)


@triton.jit
def _backward(query, key, value, change, d_query, d_key, d_value, length, total, HEADS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip  # noqa: E501
    """Write the gradients of one block of rows and one head; the softmax is computed again."""
    block, head = tl.program_id(0), tl.program_id(1)
    place, here = _tokens(query, block, length, total, head, HEADS, SIZE, WIDTH)
    q = tl.load(place, mask=here, other=0.0)
    place, here = _tokens(key, block, length, total, head, HEADS, SIZE, WIDTH)
    k = tl.load(place, mask=here, other=0.0)
    place, here = _tokens(value, block, length, total, head, HEADS, SIZE, WIDTH)
    v = tl.load(place, mask=here, other=0.0)
    place, here = _tokens(change, block, length, total, head, HEADS, SIZE, WIDTH)
    do = tl.load(place, mask=here, other=0.0)
    p = _shares(q, k, length, total, block, SIZE, SCALE)
    place, here = _tokens(d_value, block, length, total, head, HEADS, SIZE, WIDTH)
    tl.store(place, tl.dot(tl.trans(p).to(do.dtype), do).to(do.dtype), mask=here)
    dp = tl.dot(do, tl.trans(v))
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * SCALE).to(q.dtype)
    place, here = _tokens(d_query, block, length, total, head, HEADS, SIZE, WIDTH)
    tl.store(place, tl.dot(ds, k).to(q.dtype), mask=here)
    place, here = _tokens(d_key, block, length, total, head, HEADS, SIZE, WIDTH)
    tl.store(place, tl.dot(tl.trans(ds), q).to(q.dtype), mask=here)


def _launch(query: Tensor) -> tuple[tuple[int, int], tuple[int, int], dict[str, Any]]:
    """Return the grid, the sizes and the constants of a launch on ``(rows, columns, heads, width)``."""
    rows, length, heads, width = query.shape
    size = 64 if length <= 64 else 128
    if length > size:
        raise ValueError(f"at most {size} cells per row, got {length}; take fewer columns")
    constants = {"HEADS": heads, "SIZE": size, "WIDTH": width, "SCALE": width**-0.5}
    return (-(-rows // (size // length)), heads), (length, rows * length), constants | {"num_warps": size // 16}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        ctx.save_for_backward(query, key, value)
        out = torch.empty_like(query)
        grid, sizes, constants = _launch(query)
        _forward[grid](query, key, value, out, *sizes, **constants)
        return out

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        query, key, value = ctx.saved_tensors
        gradients = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
        grid, sizes, constants = _launch(query)
        _backward[grid](query, key, value, change.contiguous(), *gradients, *sizes, **constants)
        return gradients


def attend_columns(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return softmax attention within each row.

    Args:
        query: ``(rows, columns, heads, width)`` on a GPU; the width is a power of two from 16.
        key: The same shape.
        value: The same shape.

    Returns:
        The same shape.
    """
    result: Tensor = _Attention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return result
