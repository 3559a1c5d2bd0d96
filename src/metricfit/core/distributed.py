"""Sums over the ranks of a distributed run, differentiable, by one all-reduce."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def sum_over_ranks(local: Tensor) -> Tensor:
    """The sum of every rank's tensor, with the gradient that DistributedDataParallel needs.

    Each rank computes the same loss of the total. Its gradient through its own part, summed over the ranks, is the
    full-batch gradient; DistributedDataParallel averages instead, so each part's gradient is taken ranks times.
    """
    ranks = number_of_ranks()
    if ranks == 1:
        return local
    total = local.detach().clone()
    dist.all_reduce(total)
    return total + ranks * (local - local.detach())


def number_of_ranks() -> int:
    """How many processes train together; 1 outside a distributed run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
