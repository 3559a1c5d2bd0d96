"""Differentiable sums over the ranks of a distributed run, and samples gathered from all ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from metricfit.errors import InvalidValueError

_IS_AVAILABLE = dist.is_available()  # once, because every forward pass asks for the number of ranks


def sum_over_ranks(local: Tensor) -> Tensor:
    """Sum the tensors of all ranks with one all-reduce, with the gradient that DistributedDataParallel needs.

    Each rank computes the same loss of the total. The gradients through the ranks' own parts, summed over the ranks,
    are the full-batch gradient. DistributedDataParallel averages them instead, so each gradient is multiplied by the
    number of ranks.

    Args:
        local: The tensor of this rank; all ranks have the same shape.

    Returns:
        The sum, the same on all ranks; with one rank the tensor itself.
    """
    ranks = number_of_ranks()
    if ranks == 1:
        return local
    total = local.detach().clone()
    dist.all_reduce(total)
    return total + ranks * (local - local.detach())


def gather_over_ranks(local: Tensor, dim: int = 0) -> Tensor:
    """Join the tensors of all ranks, in the order of the ranks, along an axis in which their sizes may differ.

    This is for losses that are not functions of sums over samples, such as losses over pairs. The gradient is as in
    ``sum_over_ranks``: the gradient of a rank's part is multiplied by the number of ranks; other parts have no
    gradient. There are two all-gathers: of the shapes, and of the tensors padded to the longest.

    Args:
        local: The tensor of this rank.
        dim: The axis.

    Returns:
        The joined tensors; with one rank the tensor itself.

    Raises:
        InvalidValueError: The tensors differ in size along another axis.
    """
    ranks = number_of_ranks()
    if ranks == 1:
        return local
    lengths = _gather_lengths(local, dim, ranks)
    rows = local.detach().movedim(dim, 0)
    sent = rows.new_zeros(max(lengths), *rows.shape[1:])
    sent[: len(rows)] = rows
    received = [torch.empty_like(sent) for _ in range(ranks)]
    dist.all_gather(received, sent)
    parts = [part[:length].movedim(0, dim) for part, length in zip(received, lengths, strict=True)]
    parts[dist.get_rank()] = _scale_gradient(local, ranks)
    return torch.cat(parts, dim)


def fill_missing(local: Tensor | None, group: Any = None) -> Tensor | None:
    """Return this rank's tensor, or zeros of the other ranks' shape if it has none. Every rank must call it.

    Args:
        local: The tensor of this rank; None if it has none, for example because it has seen no batch.
        group: The process group; by default all ranks.

    Returns:
        A tensor of the same shape on all ranks; None if no rank has one.

    Raises:
        InvalidValueError: On all ranks, if their tensors have different shapes.
    """
    if number_of_ranks() == 1:
        return local
    facts: list[Any] = [None] * dist.get_world_size(group)
    own = None if local is None else (tuple(local.shape), local.dtype, local.device.type)
    dist.all_gather_object(facts, own, group)
    shapes = dict.fromkeys(shape for shape, _, _ in filter(None, facts))
    if len(shapes) > 1:
        shown = " and ".join(map(str, shapes))
        raise InvalidValueError(f"the ranks hold sums of the shapes {shown}; do they measure the same classes?")
    if local is not None or not shapes:
        return local
    shape, dtype, device = next(filter(None, facts))
    return torch.zeros(shape, dtype=dtype, device=device)


def number_of_ranks() -> int:
    """Return the number of processes; 1 outside a distributed run."""
    return dist.get_world_size() if _IS_AVAILABLE and dist.is_initialized() else 1


# What torch.compiler.assume_constant_result does; calling it would import the compiler together with this package.
number_of_ranks._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _gather_lengths(local: Tensor, dim: int, ranks: int) -> list[int]:
    """Return the size of every rank's tensor along the axis; raise the same error on all ranks if other axes differ."""
    shape = torch.tensor(local.shape, device=local.device)
    shapes = [torch.empty_like(shape) for _ in range(ranks)]
    dist.all_gather(shapes, shape)
    sizes = torch.stack(shapes).tolist()
    lengths = [size.pop(dim) for size in sizes]
    if any(size != sizes[0] for size in sizes):
        shown = ", ".join(str(tuple(rank_shape.tolist())) for rank_shape in shapes)
        raise InvalidValueError(
            f"tensors of the ranks are joined along axis {dim} and must agree along the others, got {shown}"
        )
    return lengths


def _scale_gradient(tensor: Tensor, factor: int) -> Tensor:
    """Return the same values, exactly, with the gradient multiplied by a factor."""
    same = tensor.view_as(tensor)
    if same.requires_grad:
        same.register_hook(lambda grad: grad * factor)  # type: ignore[no-untyped-call]
    return same
